"""Topics from ConsumeQueues: records that the queues have lost are scanned."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from commitlake.connectors.formats.rocketmq.format import FORMAT as ROCKETMQ
from commitlake.connectors.log_format.indexes import BadIndexError
from commitlake.connectors.reading.errors import IndexMismatchError
from commitlake.connectors.reading.index_lookups import check_cheaper_than_scan
from commitlake.connectors.reading.planning import ReadMethod
from commitlake.connectors.reading.splits import ListedSplit, Split
from commitlake.schemas.layouts.rocketmq.consumequeue import ENTRY, PRE_BLANK, serialize_entry
from tests.support.indexed_stores import RARE, SEGMENT_BYTES, plan_of, read_by_plan, read_by_scan, read_splits

pytestmark = pytest.mark.usefixtures("nothing_to_seek")


def queue_files(root: Path, topic: str = RARE, queue_id: int = 0) -> list[Path]:
    """Return a queue's files, in order."""
    return sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())


def patch(path: Path, position: int, data: bytes) -> None:
    """Write bytes into a file."""
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(bytes(content))


def test_a_sound_index_finds_exactly_the_topics_records(plain: Path) -> None:
    (plan,) = plan_of(plain, topics=RARE).stores
    assert plan.read_methods == [ReadMethod.CONSUME_QUEUE]
    assert {type(split) for split in plan.splits} == {ListedSplit}
    found = list(read_splits(plan.splits))
    assert found == read_by_scan(plain, topics=RARE)
    assert plan.record_count == len(found) == 30
    assert plan.planned_bytes == sum(each.size for each in found)


@pytest.mark.parametrize("queue_ids", ["0", "1,2", "7"])
def test_queue_ids_narrow_the_listed_records(plain: Path, queue_ids: str) -> None:
    found = list(read_splits(plan_of(plain, topics=RARE, queueIds=queue_ids).splits))
    assert found == read_by_scan(plain, topics=RARE, queueIds=queue_ids)


def test_records_close_together_are_scanned(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    (plan,) = plan_of(plain, topics=RARE).stores
    assert {segment.way for segment in plan.segments[:3]} == {ReadMethod.SCAN}
    assert list(plan.no_index_reasons) == [
        "ConsumeQueue: a scan is faster, because the wanted records are too many, or too close together"
    ]


def test_a_lookup_is_cheaper_where_few_of_many_records_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    whole = Split("b", "/store/x", 0, 0, 1 << 30, 1 << 30, 1 << 30, ROCKETMQ)
    offsets = np.arange(0, 1 << 30, 1 << 20)
    sizes = np.full(len(offsets), 1000)
    check_cheaper_than_scan(offsets[::4], sizes[::4], (), whole)
    check_cheaper_than_scan(offsets[:1], np.array([100 << 20]), (), whole)
    for too_much, their_sizes, unknown in (
        (offsets[:1], np.array([400 << 20]), []),
        (offsets, np.full(len(offsets), 100_000), []),
        (offsets[:1], sizes[:1], [(1 << 29, 1 << 30)]),
        (np.arange(0, 1 << 30, 1 << 15), np.full(1 << 15, 100), []),
    ):
        with pytest.raises(BadIndexError, match="a scan is faster"):
            check_cheaper_than_scan(too_much, their_sizes, unknown, whole)


def test_an_unknown_topic_reads_no_records(plain: Path) -> None:
    (plan,) = plan_of(plain, topics="nothing").stores
    assert (plan.read_methods, plan.splits, plan.record_count) == ([ReadMethod.CONSUME_QUEUE], [], 0)


def test_splits_are_bounded(plain: Path) -> None:
    plan = plan_of(plain, topics=RARE, maxPartitionBytes=400)
    assert all(split.size <= 400 for split in plan.splits)
    assert list(read_splits(plan.splits)) == read_by_scan(plain, topics=RARE)


Damage = Callable[[Path], object]


def lose_all(root: Path) -> None:
    """Delete the whole ConsumeQueue."""
    shutil.rmtree(root / "consumequeue")


def lose_topic(root: Path) -> None:
    """Delete the topic's folder."""
    shutil.rmtree(root / "consumequeue" / RARE)


def lose_queue(root: Path) -> None:
    """Delete one queue of the topic."""
    shutil.rmtree(root / "consumequeue" / RARE / "1")


def lose_file(root: Path) -> None:
    """Delete a file of another topic's queue."""
    queue_files(root, "topic-1")[1].unlink()


def lose_last_entries(root: Path) -> None:
    """Replace the entries of a queue's last file with zeros, as if it was copied before the others."""
    path = queue_files(root)[-1]
    patch(path, 0, bytes(path.stat().st_size))


def lose_middle_entry(root: Path) -> None:
    """Replace an entry with zeros."""
    patch(queue_files(root)[0], 2 * ENTRY.size, bytes(ENTRY.size))


def cut_file(root: Path) -> None:
    """Truncate a file within an entry."""
    path = queue_files(root)[0]
    path.write_bytes(path.read_bytes()[: 3 * ENTRY.size + 7])


def lag(root: Path) -> None:
    """Remove the last entries of every queue, as if they had not been dispatched yet."""
    for path in (path for path in (root / "consumequeue").rglob("0*") if path.is_file()):
        data = path.read_bytes()
        kept = [
            data[at : at + ENTRY.size]
            for at in range(0, len(data), ENTRY.size)
            if ENTRY.unpack(data, at)[0] < 3 * SEGMENT_BYTES
        ]
        path.write_bytes(b"".join(kept).ljust(len(data), b"\0"))


def claim_twice(root: Path) -> None:
    """Let an entry of another topic's queue refer to a message of this one."""
    data = queue_files(root)[0].read_bytes()[: ENTRY.size]
    patch(queue_files(root, "topic-1")[0], 0, data)


def claim_too_much(root: Path) -> None:
    """Give another topic's entry a size that covers its neighbours."""
    path = queue_files(root, "topic-1")[0]
    offset, size, code = ENTRY.unpack(path.read_bytes())
    patch(path, 0, ENTRY.pack(offset, size + 500, code))


def begin_with_filler(root: Path) -> None:
    """Make the first entries filler, as in a queue that was created again at a later offset."""
    patch(queue_files(root)[0], 0, serialize_entry(PRE_BLANK) * 4)


def be_random(root: Path) -> None:
    """Fill a file of another topic's queue with random bytes."""
    path = queue_files(root, "topic-2")[0]
    path.write_bytes(random.Random(3).randbytes(path.stat().st_size))


def be_a_file(root: Path) -> None:
    """Replace a topic's folder with a file."""
    lose_topic(root)
    (root / "consumequeue" / RARE).write_bytes(b"x")


@pytest.mark.some_cases(5)
@pytest.mark.parametrize(
    "damage",
    [
        lose_all,
        lose_topic,
        lose_queue,
        lose_file,
        lose_last_entries,
        lose_middle_entry,
        cut_file,
        lag,
        claim_twice,
        claim_too_much,
        begin_with_filler,
        be_random,
        be_a_file,
    ],
)
def test_records_lost_from_queues_are_scanned(store: Path, damage: Damage) -> None:
    expected = read_by_scan(store, topics=RARE)
    damage(store)
    assert read_by_plan(store, topics=RARE) == expected
    assert read_by_plan(store, queueIds="1") == read_by_scan(store, queueIds="1")


def test_only_records_that_dispatch_has_not_reached_are_scanned(store: Path) -> None:
    lag(store)
    (plan,) = plan_of(store, topics=RARE).stores
    assert [segment.way for segment in plan.segments[:3]] == [ReadMethod.CONSUME_QUEUE] * 3
    assert {segment.way for segment in plan.segments[3:]} == {ReadMethod.SCAN}


def test_queues_with_more_entries_than_records_can_be_are_not_read_into_memory(store: Path) -> None:
    expected = read_by_scan(store, topics=RARE)
    path = queue_files(store, "topic-1")[0]
    path.write_bytes(path.read_bytes()[: ENTRY.size] * 1000)
    plan = plan_of(store, topics=RARE).stores[0]
    assert (
        "ConsumeQueue: the queues have more entries for this range of the log than it has room for records"
        in plan.no_index_reasons
    )
    assert read_by_plan(store, topics=RARE) == expected


def test_light_queues_are_ignored(store: Path) -> None:
    expected = read_by_scan(store, topics=RARE)
    shutil.copytree(store / "consumequeue" / RARE / "0", store / "consumequeue" / "%LMQ%a" / "0")
    (plan,) = plan_of(store, topics=RARE).stores
    assert plan.read_methods == [ReadMethod.CONSUME_QUEUE]
    assert read_by_plan(store, topics=RARE) == expected


@pytest.mark.parametrize("topic", ["../../etc", "ünïcode", "\ufffd"])
def test_an_invalid_topic_name_is_searched_in_the_log(plain: Path, topic: str) -> None:
    (plan,) = plan_of(plain, topics=topic).stores
    assert plan.read_methods == [ReadMethod.SCAN]
    assert list(plan.no_index_reasons) == [
        f"ConsumeQueue: expected the name of a topic, found {topic!r}, which no topic of a broker can have"
    ]


def test_the_error_for_a_record_of_another_topic_names_the_option(store: Path) -> None:
    """The queues of two topics are exchanged, so every entry points to a record of the other topic."""
    folder = store / "consumequeue"
    (folder / RARE).rename(folder / "aside")
    (folder / "topic-1").rename(folder / RARE)
    (folder / "aside").rename(folder / "topic-1")
    with pytest.raises(IndexMismatchError) as error:
        list(read_splits(plan_of(store, topics="topic-1").splits))
    said = str(error.value)
    assert "/commitlog/" in said
    assert "expected topic 'topic-1'" in said
    assert "found 'rare'" in said
    assert "useIndexes=false" in said
    assert read_by_plan(store, topics=RARE, useIndexes="false") == read_by_scan(store, topics=RARE)


def test_any_damage_gives_the_result_of_a_scan_or_an_error(plain: Path, tmp_path: Path) -> None:
    """Damage in the topic's own queues may be found as an error; in other queues it only makes a read slower."""
    chance = random.Random(11)
    expected = read_by_scan(plain, topics=RARE)
    answered = 0
    for number in range(40):
        store = shutil.copytree(plain, tmp_path / str(number))
        paths = sorted((store / "consumequeue").rglob("0*"))
        for path in chance.sample([path for path in paths if path.is_file()], 2):
            data = bytearray(path.read_bytes())
            at = chance.randrange(len(data))
            match chance.randrange(3):
                case 0:
                    data[at] ^= 1 << chance.randrange(8)
                case 1:
                    del data[at:]
                case _:
                    data[at : at + 40] = bytes(len(data[at : at + 40]))
            path.write_bytes(bytes(data))
        try:
            assert read_by_plan(store, topics=RARE) == expected
            answered += 1
        except IndexMismatchError:
            continue
        finally:
            shutil.rmtree(store)
    assert answered > 20
