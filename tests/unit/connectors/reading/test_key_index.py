"""Keys from IndexFiles: records that they may lack are scanned."""

from __future__ import annotations

import dataclasses
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.connectors.reading.planning import ReadMethod
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.indexfile import (
    ENTRY,
    HEADER,
    SLOT,
    Geometry,
    Header,
    parse_header,
    serialize_header,
)
from tests.support.indexed_stores import (
    OPTIONS,
    RARE,
    Clock,
    message,
    plan_of,
    read_by_plan,
    read_by_scan,
    read_splits,
    unique_key,
)

pytestmark = pytest.mark.usefixtures("nothing_to_seek")

GEOMETRY = Geometry(OPTIONS.index_slots, OPTIONS.index_entries)
QUESTIONS = ("order-40", unique_key(40), "group-20", "nothing", unique_key(9999), "order-0,order-580")


def index_files(root: Path) -> list[Path]:
    """Return the index files, oldest first."""
    return sorted((root / "index").iterdir())


def patch(path: Path, position: int, data: bytes) -> None:
    """Write bytes into a file."""
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(bytes(content))


def with_header(path: Path, **changes: int) -> None:
    """Change an index file's header."""
    header: Header = parse_header(path.read_bytes())
    patch(path, 0, serialize_header(header._replace(**changes)))


@pytest.mark.parametrize("keys", QUESTIONS)
def test_a_key_finds_its_records(plain: Path, keys: str) -> None:
    assert read_by_plan(plain, topics=RARE, keys=keys) == read_by_scan(plain, topics=RARE, keys=keys)


def test_a_known_key_reads_little(plain: Path) -> None:
    (plan,) = plan_of(plain, topics=RARE, keys="order-40").stores
    assert {segment.way for segment in plan.segments[:-1]} == {ReadMethod.INDEX_FILE}
    assert plan.planned_bytes < plan.store_range.size / 10
    assert "order-40 group-40" in [found.properties["KEYS"] for found in read_splits(plan.splits)]


def test_a_key_is_looked_up_with_its_topic(plain: Path) -> None:
    assert read_by_plan(plain, topics="topic-1", keys="order-40") == read_by_scan(
        plain, topics="topic-1", keys="order-40"
    )
    assert len(read_by_plan(plain, topics="rare,topic-1", keys="order-40,order-41")) == len(
        read_by_scan(plain, topics="rare,topic-1", keys="order-40,order-41")
    )


def test_a_message_id_missing_from_the_index_is_searched_in_the_log(plain: Path) -> None:
    (plan,) = plan_of(plain, topics=RARE, keys=unique_key(9999)).stores
    assert plan.read_methods == [ReadMethod.CONSUME_QUEUE]
    assert [reason.split(";")[0] for reason in plan.no_index_reasons] == [
        f"IndexFile: the index does not contain the message id {unique_key(9999)}"
    ]


def test_messages_of_a_batch_are_found_by_their_own_id(tmp_path: Path) -> None:
    """Brokers 4.9.4 to 5.3.3 append the batch's UNIQ_KEY to its messages, and index them by that one."""
    chance = random.Random(1)
    with MessageStore.open(tmp_path, OPTIONS, clock=Clock()) as store:
        for number in range(200):
            sent = message(number, chance)
            pairs = [*sent.properties, (props.UNIQ_KEY, unique_key(777_000))] if number == 60 else sent.properties
            store.put(dataclasses.replace(sent, properties=pairs))
    found = read_by_plan(tmp_path, topics=RARE, keys=unique_key(60))
    assert [each.unique_key for each in found] == [unique_key(60)]


Damage = Callable[[Path], object]


def lose_all(root: Path) -> None:
    """Delete the whole index."""
    shutil.rmtree(root / "index")


def lose_first(root: Path) -> None:
    """Delete the oldest file."""
    index_files(root)[0].unlink()


def lose_middle(root: Path) -> None:
    """Delete a file between others."""
    index_files(root)[1].unlink()


def lose_last(root: Path) -> None:
    """Delete the newest file, as a crash may."""
    index_files(root)[-1].unlink()


def cut(root: Path) -> None:
    """Truncate a file."""
    path = index_files(root)[0]
    path.write_bytes(path.read_bytes()[:-1000])


def lose_slots(root: Path) -> None:
    """Lose the slots, as if they were never written to the disk."""
    patch(index_files(root)[0], HEADER.size, bytes(SLOT.size * GEOMETRY.slots))


def lose_entries(root: Path) -> None:
    """Lose some entries, as if they were never written to the disk."""
    patch(index_files(root)[0], GEOMETRY.entry_position(20), bytes(ENTRY.size * 100))


def have_old_count(root: Path) -> None:
    """Set the counts in the header to fewer entries than there are."""
    with_header(index_files(root)[0], index_count=30, used_slots=10)


def have_wild_count(root: Path) -> None:
    """Set the counts in the header to more than the file can hold."""
    with_header(index_files(root)[0], index_count=1 << 30)


def have_wild_slots(root: Path) -> None:
    """Make every slot point outside the file."""
    patch(index_files(root)[1], HEADER.size, b"\x7f\xff\xff\xff" * GEOMETRY.slots)


def have_a_circle(root: Path) -> None:
    """Make the newest entry the predecessor of every entry."""
    path = index_files(root)[0]
    for number in range(1, GEOMETRY.entries - 1):
        patch(path, GEOMETRY.entry_position(number) + 16, (GEOMETRY.entries - 2).to_bytes(4, "big"))


def begin_elsewhere(root: Path) -> None:
    """Set the header's first offset to another one than that of the entries."""
    with_header(index_files(root)[0], begin_physical_offset=5)


def overlap(root: Path) -> None:
    """Copy a file, so that two have the same entries."""
    first = index_files(root)[0]
    shutil.copy(first, first.with_name("20991231235959000"))


def be_empty(root: Path) -> None:
    """Add a new file without an entry."""
    (root / "index" / "20991231235959000").write_bytes(bytes(GEOMETRY.file_size))


@pytest.mark.some_cases(5)
@pytest.mark.parametrize(
    "damage",
    [
        lose_all,
        lose_first,
        lose_middle,
        lose_last,
        cut,
        lose_slots,
        lose_entries,
        have_old_count,
        have_wild_count,
        have_wild_slots,
        have_a_circle,
        begin_elsewhere,
        overlap,
        be_empty,
    ],
)
@pytest.mark.parametrize(
    "with_queues",
    [
        True,
        pytest.param(
            False, marks=pytest.mark.long("test_queue_index.py loses queues, and this file indexes, each time")
        ),
    ],
)
def test_records_lost_from_the_index_are_scanned(store: Path, damage: Damage, with_queues: bool) -> None:
    damage(store)
    if not with_queues:
        shutil.rmtree(store / "consumequeue")
    for keys in QUESTIONS:
        assert read_by_plan(store, topics=RARE, keys=keys) == read_by_scan(store, topics=RARE, keys=keys), keys


def lead_elsewhere(root: Path) -> None:
    """Make every entry of a file refer to the record of another."""
    path = index_files(root)[1]
    data = path.read_bytes()
    entries = [ENTRY.unpack(data, GEOMETRY.entry_position(number)) for number in range(1, GEOMETRY.entries)]
    offsets = [entry[1] for entry in entries]
    for number, (entry, offset) in enumerate(zip(entries, [offsets[0], *offsets], strict=False), 1):
        patch(path, GEOMETRY.entry_position(number), ENTRY.pack(entry[0], offset, *entry[2:]))


def lead_nowhere(root: Path) -> None:
    """Make the entries of a file refer to offsets after the log's end."""
    path = index_files(root)[1]
    for number in range(2, GEOMETRY.entries - 1):
        patch(path, GEOMETRY.entry_position(number) + 4, (1 << 40).to_bytes(8, "big"))


@pytest.mark.parametrize("damage", [lead_elsewhere, lead_nowhere])
def test_entries_that_point_to_other_records_are_ignored(store: Path, damage: Damage) -> None:
    damage(store)
    numbers = range(0, 600, 20)
    for number in numbers:
        keys = f"order-{number}"
        assert len(read_by_plan(store, topics=RARE, keys=keys)) == 1, keys


def test_any_damage_gives_the_result_of_a_scan(plain: Path, tmp_path: Path) -> None:
    chance = random.Random(13)
    ways = set()
    for number in range(40):
        store = shutil.copytree(plain, tmp_path / str(number))
        for path in chance.sample(index_files(store), 2):
            data = bytearray(path.read_bytes())
            at = chance.randrange(len(data))
            match chance.randrange(3):
                case 0:
                    data[at] ^= 1 << chance.randrange(8)
                case 1:
                    data[at:] = bytes(len(data) - at)
                case _:
                    data[at : at + 400] = chance.randbytes(len(data[at : at + 400]))
            path.write_bytes(bytes(data))
        keys = f"order-{chance.randrange(30) * 20},group-20"
        ways.update(plan_of(store, topics=RARE, keys=keys).stores[0].read_methods)
        assert read_by_plan(store, topics=RARE, keys=keys) == read_by_scan(store, topics=RARE, keys=keys)
        shutil.rmtree(store)
    assert ReadMethod.INDEX_FILE in ways


def test_a_stretch_that_was_not_indexed_is_scanned(tmp_path: Path) -> None:
    """The broker's index was off for two mebibytes of log."""
    chance = random.Random(1)
    clock = Clock()
    options = dataclasses.replace(OPTIONS, segment_size_bytes=1 << 20, index_slots=5000, index_entries=20_000)
    with MessageStore.open(tmp_path, options, clock=clock) as store:
        for number in range(12_000):
            index = store._writer._index
            if 2000 <= number < 10_000:
                store._writer._index = None
            store.put(message(number, chance))
            store._writer._index = index
    assert len(index_files(tmp_path)) == 1
    for keys in ("order-4000", "order-0", "order-11980"):
        found = read_by_plan(tmp_path, topics=RARE, keys=keys)
        assert found == read_by_scan(tmp_path, topics=RARE, keys=keys)
        assert len(found) == 1
