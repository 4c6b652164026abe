"""Files rebuilt for a JMQ store equal broker_lite's, byte for byte."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.jmq import JournalStore
from commitlake.connectors.formats.jmq.format import FORMAT as JMQ
from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.runtime.local_runner import ThreadRunner
from commitlake.pipelines.rebuild.run import RebuildResult, rebuild_store
from commitlake.pipelines.rebuild.settings import RequestedSettings, find_settings
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.jmq.journal import HEAD, serialize_filler, serialize_message
from commitlake.schemas.layouts.jmq.queue_file import ENTRY
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.indexed_stores import Clock
from tests.support.jmq_stores import FILE_BYTES, OPTIONS, write_jmq_store
from tests.support.journal_stores import journal_records, queue_entries
from tests.support.journals import BROKER, new_message, write_journal
from tests.support.rebuilt_stores import files_of

SIZES = RequestedSettings(queue_file_size=OPTIONS.queue_file_size_bytes)
LARGE = 1 << 16


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several journal files and queue files."""
    return write_jmq_store(tmp_path_factory.mktemp("jmq") / "store")


def rebuild(root: Path, out: Path, wanted: RequestedSettings = SIZES, **changes: object) -> RebuildResult:
    (found,) = find_stores(str(root), "a", formats=all_formats().select_only(JMQ))
    return rebuild_store(found, out, wanted, **changes)  # type: ignore[arg-type]


def built_by_the_broker(root: Path, copy: Path, file_bytes: int = FILE_BYTES) -> Path:
    """Copy a journal, and let broker_lite open it and make its files; return the copy."""
    shutil.copytree(root / "journal", copy / "journal")
    with JournalStore.open(copy, replace(OPTIONS, journal_file_size_bytes=file_bytes), clock=Clock()):
        pass
    return copy


def compare(expected: Path, found: Path) -> None:
    queues, own = files_of(expected / "queue"), files_of(found / "queue")
    assert sorted(own) == sorted(queues)
    assert [name for name in queues if queues[name] != own[name]] == []
    assert (found / "checkpoint").read_bytes() == (expected / "checkpoint").read_bytes()


def numbered(places: Iterable[tuple[str, int]], base_offset: int = 0) -> bytes:
    """Return records of queue 0 with these topics and queue offsets, one after the other."""
    data = b""
    for number, (topic, queue_offset) in enumerate(places):
        data += serialize_message(
            new_message(number, topic, body=b"b" * (number % 7)), queue_id=0, queue_offset=queue_offset,
            journal_offset=base_offset + len(data), receive_timestamp=1_700_000_000_500,
            store_timestamp=1_700_000_000_600, server_address=BROKER,
        )  # fmt: skip
    return data


def write_numbered(root: Path, numbers: Sequence[int], base_offset: int = 0) -> Path:
    data = numbered([("orders", number) for number in numbers], base_offset)
    return write_journal(root, [(base_offset, data.ljust(LARGE, b"\0"))])


@pytest.mark.parametrize(("partition", "threads"), [(1 << 30, 1), (5000, 1), (5000, 3)])
def test_rebuilt_files_equal_the_originals(store: Path, tmp_path: Path, partition: int, threads: int) -> None:
    rebuilt = rebuild(
        store, tmp_path / "out", RequestedSettings(), partition_bytes=partition, runner=ThreadRunner(threads)
    )
    compare(store, rebuilt.out)
    assert rebuilt.totals.records == rebuilt.entries == 600
    assert (rebuilt.skipped, rebuilt.shifted, rebuilt.lost, rebuilt.totals.bad_ranges) == (0, 0, 0, 0)
    assert sorted(path.name for path in rebuilt.out.iterdir()) == ["checkpoint", "queue"]


def test_the_store_is_not_changed(store: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    rebuild(store, tmp_path / "out")
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before


@pytest.mark.parametrize("gone", [1, 3, 5])
def test_without_the_journals_head_queues_begin_with_their_first_message(
    store: Path, tmp_path: Path, gone: int
) -> None:
    root = tmp_path / "headless"
    shutil.copytree(store / "journal", root / "journal")
    for path in sorted((root / "journal").iterdir())[:gone]:
        path.unlink()
    rebuilt = rebuild(root, tmp_path / "out", partition_bytes=5000)
    compare(built_by_the_broker(root, tmp_path / "plain"), rebuilt.out)
    assert rebuilt.lost == 0
    first = min((rebuilt.out / "queue" / "topic-1" / "1").iterdir())
    assert int(first.name) % OPTIONS.queue_file_size_bytes


@pytest.mark.parametrize("base_offset", [0, LARGE])
@pytest.mark.parametrize("numbers", [
    [0, 1, 2], [5, 6, 9, 10, 0, 11, 3, 40], [1, 2, 0, 3], [3, 0, 1, 2, 4], [9, 2, 3, 4], [9, 2, 9, 10, 3, 4, 5],
    [0, 2, 4, 6, 1, 3, 5, 7], [0, 1, 5, 2, 3, 4, 6, 2], [1 << 40, 0, 1], [0, 1 << 62, 1], [0, (1 << 64) - 1, 1],
    [0, (1 << 63) // 44, 1], [7] * 9, [100, 101, 102, 103], [0, 60, 61, 62, 63, 64, 1],
])  # fmt: skip
def test_unusual_offsets_are_entered_as_by_the_broker(tmp_path: Path, numbers: list[int], base_offset: int) -> None:
    root = write_numbered(tmp_path / "odd", numbers, base_offset)
    expected = built_by_the_broker(root, tmp_path / "plain", LARGE)
    compare(expected, rebuild(root, tmp_path / "out").out)
    compare(expected, rebuild(root, tmp_path / "parts", partition_bytes=300).out)


@pytest.mark.parametrize("seed", range(12))
def test_random_offsets_are_entered_as_by_the_broker(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    numbers, following = [], chance.choice([0, 3, 30])
    for _ in range(150):
        if chance.random() < 0.3:
            following = max(0, following + chance.randrange(-12, 12))
        numbers.append(following)
        following += 1
    root = write_numbered(tmp_path / "odd", numbers, chance.choice([0, LARGE]))
    rebuilt = rebuild(root, tmp_path / "out", partition_bytes=chance.choice([700, 5000]))
    compare(built_by_the_broker(root, tmp_path / "plain", LARGE), rebuilt.out)
    entries = queue_entries(rebuilt.out)
    assert rebuilt.lost == sum(entry.is_lost for entry in entries)
    assert rebuilt.skipped == len(numbers) - sum(not entry.is_lost for entry in entries)


def test_the_queue_offset_of_a_damaged_record_is_not_reused(store: Path, tmp_path: Path) -> None:
    root = tmp_path / "damaged"
    shutil.copytree(store / "journal", root / "journal")
    broken = list(journal_records(root))[100]
    path = root / "journal" / segment_name(FILE_BYTES * (broken.journal_offset // FILE_BYTES))
    data = bytearray(path.read_bytes())
    data[broken.journal_offset % FILE_BYTES + HEAD.offset_of("body_crc") + 7] ^= 1
    path.write_bytes(data)
    rebuilt = rebuild(root, tmp_path / "out", partition_bytes=5000)
    compare(built_by_the_broker(root, tmp_path / "plain"), rebuilt.out)
    assert (rebuilt.totals.bad_ranges, rebuilt.totals.bad_bytes, rebuilt.lost) == (1, broken.size, 1)


@pytest.mark.some_cases(4)
@pytest.mark.parametrize("seed", range(10))
def test_a_randomly_damaged_journal_is_rebuilt_as_by_the_broker(store: Path, tmp_path: Path, seed: int) -> None:
    root, chance = tmp_path / "damaged", random.Random(seed)
    shutil.copytree(store / "journal", root / "journal")
    for path in sorted((root / "journal").iterdir())[:-1]:  # of the last one a broker without a checkpoint takes less
        data = bytearray(path.read_bytes())
        for _ in range(chance.randrange(6)):
            place = chance.randrange(len(data))
            if b"topic" not in data[place - 6 : place + 6]:  # broker_lite takes fewer names than a journal may hold
                data[place] = chance.randrange(256)
        path.write_bytes(data)
    rebuilt = rebuild(root, tmp_path / "out", partition_bytes=chance.choice([5000, 1 << 30]))
    compare(built_by_the_broker(root, tmp_path / "plain"), rebuilt.out)
    assert rebuilt.totals.bad_ranges > 0


def test_an_interrupted_run_is_continued(store: Path, tmp_path: Path) -> None:
    class StoppedError(Exception):
        pass

    def stop(_: int) -> None:
        raise StoppedError

    (found,) = find_stores(str(store), "a", formats=all_formats().select_only(JMQ))
    with pytest.raises(StoppedError):
        rebuild_store(found, tmp_path / "out", SIZES, partition_bytes=5000, advance=stop)
    assert (tmp_path / "out" / ".rebuild").is_dir()
    compare(store, rebuild(store, tmp_path / "out", partition_bytes=5000).out)
    assert not (tmp_path / "out" / ".rebuild").exists()


def test_a_store_with_rebuilt_files_serves_every_message_at_once(store: Path, tmp_path: Path) -> None:
    rebuilt = rebuild(store, tmp_path / "out")
    shutil.copytree(store / "journal", rebuilt.out / "journal")
    wanted = list(journal_records(store))
    with JournalStore.open(rebuilt.out, OPTIONS, clock=Clock()) as opened:
        assert (opened.recovery.records, opened.recovery.start) == (0, wanted[-1].journal_offset + wanted[-1].size)
        found = [
            message for topic, queue_id in opened.queues for message in opened.get(topic, queue_id, 0, 1000).messages
        ]
        assert sorted(found, key=lambda message: message.journal_offset) == wanted
        put = opened.put(new_message(0, "topic-1"), 1)
        assert put.queue_offset == 1 + max(
            each.queue_offset for each in wanted if (each.topic, each.queue_id) == ("topic-1", 1)
        )


def test_a_rebuild_of_one_topic_makes_only_its_queues(store: Path, tmp_path: Path) -> None:
    out = rebuild(store, tmp_path / "out", RequestedSettings(topics=("rare", "unknown"))).out
    assert [path.name for path in out.iterdir()] == ["queue"]
    assert files_of(out / "queue" / "rare") == files_of(store / "queue" / "rare")
    assert [path.name for path in (out / "queue").iterdir()] == ["rare"]


@pytest.mark.parametrize("topic", ["..", "a/../../b", ".", "a\x00b", "a\nb", "\ufffd"])
def test_no_topic_name_leaves_the_folder(tmp_path: Path, topic: str) -> None:
    root = write_journal(tmp_path / "forged", [(0, numbered([(topic, 0), ("orders", 0)]).ljust(LARGE, b"\0"))])
    rebuilt = rebuild(root, tmp_path / "out")
    assert rebuilt.totals.refused == 1
    assert [str(path.relative_to(rebuilt.out)) for path in rebuilt.out.glob("queue/*/*")] == ["queue/orders/0"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["forged", "out"]


def test_a_journal_that_ends_with_a_filler_ends_after_its_last_record(tmp_path: Path) -> None:
    data = numbered([("orders", number) for number in range(5)])
    whole = (data + serialize_filler(LARGE - len(data))).ljust(LARGE, b"\0")
    root = write_journal(tmp_path / "filled", [(0, whole), (LARGE, bytes(LARGE))])
    expected = built_by_the_broker(root, tmp_path / "plain", LARGE)
    compare(expected, rebuild(root, tmp_path / "out").out)


def test_sizes_are_those_of_the_remaining_files(store: Path, tmp_path: Path) -> None:
    assert find_settings(store, RequestedSettings(), JMQ).queue_file_size == OPTIONS.queue_file_size_bytes
    assert find_settings(tmp_path, RequestedSettings(), JMQ).queue_file_size == 300_000 * ENTRY.size
    with pytest.raises(UsageError, match="expected a multiple of 22"):
        find_settings(store, RequestedSettings(queue_file_size=40), JMQ)


@pytest.mark.parametrize(
    "wanted",
    [
        RequestedSettings(index_slots=7),
        RequestedSettings(index_entries=7),
        RequestedSettings(index_tags=False),
        RequestedSettings(delay_levels_ms=(5,)),
    ],
)
def test_options_that_a_jmq_store_does_not_have_are_refused(store: Path, wanted: RequestedSettings) -> None:
    with pytest.raises(UsageError, match="has no index and no delay levels: leave out the options"):
        find_settings(store, wanted, JMQ)
