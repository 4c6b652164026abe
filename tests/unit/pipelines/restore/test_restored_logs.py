"""A restored log equals the archived one byte for byte, or is equivalent where rows do not determine the bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.formats.rocketmq.format import FORMAT as ROCKETMQ
from commitlake.connectors.lake.archive_commits import ArchiveCommit, CommittedRange, StoreProgress
from commitlake.connectors.lake.committer import commit_run, open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.reading.splits import Split
from commitlake.pipelines.archive.task import ArchiveTasks
from commitlake.pipelines.restore.run import NOTES, RestoreResult
from commitlake.schemas.layouts.boltmq.dialect import Magic
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.properties import MAX_SIZE
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.indexed_stores import OPTIONS, SEGMENT_BYTES, write_indexed_store
from tests.support.logs import (
    BROKER_HOST,
    START_MS,
    closed_segment,
    messages,
    new_message,
    open_segment,
    records,
    write_store,
)
from tests.support.restored_stores import lake_rows, messages_of, segments

Archive = Callable[..., Lake]
Restore = Callable[..., RestoreResult]

SIZE = 1 << 20
GOLDEN = sorted((Path(__file__).parents[3] / "golden").glob("*.bin"))
V6 = Host.of("2001:db8::17", 50123)
ODD: tuple[NewMessage, ...] = (
    new_message(0, born_host=V6),
    new_message(1, body=b""),
    new_message(2, body=bytes(range(256)) * 1200),  # a frame of its own
    new_message(3, properties=()),
    new_message(4, topic="t" * 127),
    new_message(5, topic="t" * 128),  # version 2
    new_message(6, topic="%RETRY%" + "g" * 248),
    new_message(7, topic="订单", properties=(("KEYS", "鍵 ключ 😀"), ("TAGS", "é"))),
    new_message(8, sys_flag=0x1 | 0x200, body=b"not zstd at all"),
    new_message(9, sys_flag=0x8, prepared_transaction_offset=(1 << 62) + 5, queue_id=-1, flag=-(1 << 31)),
    new_message(10, reconsume_times=3, born_timestamp=0),
    new_message(11, properties=(("k" * 5000, "v" * (MAX_SIZE - 5002)),)),
    new_message(12, properties=(("KEYS", "\ud7ff\U0010ffff"),)),
)


def without_last_separator(record: bytes) -> bytes:
    """Return a record as brokers 4.9.1 to 5.1.4 wrote it."""
    assert record[-1] == 2
    size, (length,) = len(record) - 1, struct.unpack_from(">h", record, record.rindex(b"KEYS\x01") - 2)
    place = record.rindex(b"KEYS\x01") - 2
    return struct.pack(">i", size) + record[4:place] + struct.pack(">h", length - 1) + record[place + 2 : -1]


def with_properties(record: bytes, stored: bytes, replacing: bytes) -> bytes:
    """Return a record with other properties, of any form."""
    assert record.endswith(struct.pack(">h", len(replacing)) + replacing)
    head = record[4 : len(record) - len(replacing) - 2]
    return struct.pack(">i", 4 + len(head) + 2 + len(stored)) + head + struct.pack(">h", len(stored)) + stored


def log_of(pieces: list[tuple[str, bytes]]) -> bytes:
    """Return a segment of records with one property each, in the given forms."""
    data = b""
    for number, (topic, stored) in enumerate(pieces):
        message = NewMessage(topic, b"body %d" % number, START_MS, BROKER_HOST, properties=(("a", "b"),))
        (record,) = records([message], len(data))
        data += with_properties(record, stored, b"a\x01b\x02")
    return data.ljust(SIZE, b"\0")


def test_restored_files_equal_the_originals(tmp_path: Path, archive: Archive, restore: Restore) -> None:
    root = write_indexed_store(tmp_path / "store")
    restored = restore(archive(root))
    assert (restored.records, restored.segments, restored.segment_size) == (600, 11, SEGMENT_BYTES)
    assert (restored.lacking, restored.lost, restored.made_up) == (0, 0, 0)
    assert segments(restored.out) == segments(root)
    for kind in ("consumequeue", "index"):
        theirs, ours = (
            [path for path in sorted((at / kind).rglob("*")) if path.is_file()] for at in (root, restored.out)
        )
        assert [path.read_bytes() for path in ours] == [path.read_bytes() for path in theirs] != []
    assert (restored.out / "checkpoint").read_bytes() == (root / "checkpoint").read_bytes()
    assert not (restored.out / NOTES).exists()
    assert not list(restored.out.glob(".*"))


@pytest.mark.parametrize("store_host", [BROKER_HOST, V6])
@pytest.mark.parametrize("partition", [2000, SIZE])
def test_restored_records_of_every_form_equal_the_originals(
    tmp_path: Path, archive: Archive, restore: Restore, store_host: Host, partition: int
) -> None:
    data = b"".join(records(ODD, store_host=store_host))
    root = write_store(tmp_path / "store", [(0, data.ljust(SIZE, b"\0"))])
    restored = restore(archive(root, partition=partition), segment_size=SIZE)
    assert (restored.records, restored.made_up, restored.lost) == (len(ODD), 0, 0)
    assert segments(restored.out) == segments(root)


def test_properties_without_their_last_separator_are_restored(
    tmp_path: Path, archive: Archive, restore: Restore
) -> None:
    data = b""
    for message in messages(300):
        (record,) = records([message], len(data))
        data += without_last_separator(record)
    root = write_store(tmp_path / "store", [(0, data.ljust(SIZE, b"\0"))])
    restored = restore(archive(root), segment_size=SIZE)
    assert (restored.records, restored.made_up) == (300, 0)
    assert segments(restored.out) == segments(root)


@pytest.mark.parametrize("stored", [b"a\x01b\x01c\x02", b"a\x01\x01\x02", b"a\x01b", b""])
def test_properties_that_the_table_holds_exactly_are_restored(
    tmp_path: Path, archive: Archive, restore: Restore, stored: bytes
) -> None:
    root = write_store(tmp_path / "store", [(0, log_of([("t", stored), ("t", b"c\x01d\x02"), ("t", stored)]))])
    restored = restore(archive(root), segment_size=SIZE)
    assert (restored.records, restored.made_up) == (3, 0)
    assert segments(restored.out) == segments(root)


FORMS = {
    "a key that stands there twice": b"a\x01b\x02c\x01d\x02a\x01other\x02",
    "an entry without a value": b"a\x01\x02b\x01c\x02",
    "an entry without a name": b"\x01a\x02b\x01c\x02",
    "nothing but a separator": b"\x02",
    "separators": b"\x02\x02a\x01b\x02\x02",
    "words without an equals sign": b"words\x02a\x01b",
}


@pytest.mark.parametrize("stored", FORMS.values(), ids=FORMS.keys())
def test_other_properties_are_equivalent_and_of_the_same_size(
    tmp_path: Path, archive: Archive, restore: Restore, stored: bytes
) -> None:
    root = write_store(tmp_path / "store", [(0, log_of([("t", b"a\x01b\x02"), ("t", stored), ("t", b"c\x01d")]))])
    lake = archive(root)
    restored = restore(lake, segment_size=SIZE)
    assert (restored.records, restored.made_up, restored.lost, restored.lacking) == (3, 1, 0, 0)
    before, after = messages_of(root, SIZE), messages_of(restored.out, SIZE)
    assert list(before) == list(after)
    for one, other in zip(before.values(), after.values(), strict=True):
        assert (one.properties, one.unique_key, one.size) == (other.properties, other.unique_key, other.size)
        assert (one.body, one.msg_id, one.store_timestamp) == (other.body, other.msg_id, other.store_timestamp)
    (note,) = map(json.loads, (restored.out / NOTES).read_text().splitlines())
    assert note == {"what": "properties made up", "start": sorted(before)[1]}
    rows = lake_rows(lake)
    again = tmp_path / "again"
    again.mkdir()
    assert lake_rows(_archive_restored(restored.out, again)) == rows


def test_properties_repeated_for_a_batch_are_restored(tmp_path: Path, archive: Archive, restore: Restore) -> None:
    stored = b"UNIQ_KEY\x01AA\x02WAIT\x01true\x02UNIQ_KEY\x01BB\x02WAIT\x01true\x02"
    root = write_store(tmp_path / "store", [(0, log_of([("t", stored)]))])
    restored = restore(archive(root), segment_size=SIZE)
    assert (restored.records, restored.made_up, restored.by_rule) == (1, 0, 1)
    before, after = ((one / "commitlog" / segment_name(0)).read_bytes() for one in (root, restored.out))
    assert before.rstrip(b"\0") == after.rstrip(b"\0")


def _archive_restored(root: Path, folder: Path) -> Lake:
    """Archive a restored store, and return the lake."""
    (path,) = (root / "commitlog").iterdir()
    return _archive_split(folder, Split("a", str(path), 0, 0, _end_of(path), SIZE, SIZE, ROCKETMQ))


def _end_of(path: Path) -> int:
    return len(path.read_bytes().rstrip(b"\0"))


def _archive_split(folder: Path, split: Split) -> Lake:
    """Archive one range, wherever it lies."""
    lake = Lake(str(folder / "lake-of-one"))
    open_messages_for_append(lake)
    tasks = ArchiveTasks([split], lake, "run", "1")
    files = [row.data_file for row in tasks.run_task(0, tasks.parts[:1]) if row.table == "messages"]
    ends = {split.broker: StoreProgress(split.end)}
    commit = ArchiveCommit(1, "run", ends, {split.broker: CommittedRange(split.start, split.end)})
    commit_run(lake, files, commit, {})
    return lake


@pytest.mark.parametrize(
    ("topic", "stored", "is_kept"),
    [
        (b"t", b"a\x01\xff\x02", False),  # U+FFFD takes two bytes more
        (b"t", b"a\x01\xf0\x9f\x98\x02", True),  # a cut character: as many bytes as U+FFFD, which it may have been
        (b"t", "a\x01\ufffd\x02".encode(), True),
        (b"\xff", b"a\x01b\x02", False),
    ],
)
def test_properties_that_are_not_utf8_are_noted(
    tmp_path: Path, archive: Archive, restore: Restore, topic: bytes, stored: bytes, is_kept: bool
) -> None:
    data = log_of([("t", b"a\x01b\x02"), ("t", stored), ("t", b"a\x01b\x02")])
    begin = data.index(b"body 1") + 6
    root = write_store(tmp_path / "store", [(0, data[:begin] + b"\x01" + topic + data[begin + 2 :])])
    restored = restore(archive(root), segment_size=SIZE)
    notes = [json.loads(line) for line in (restored.out / NOTES).read_text().splitlines()]
    if is_kept:
        assert (restored.records, restored.made_up, restored.lost) == (3, 1, 0)
        assert [note["what"] for note in notes] == ["properties made up"]
    else:
        assert (restored.records, restored.made_up, restored.lost) == (2, 0, 1)
        assert [note["what"] for note in notes] == ["no record", "refused"]
        assert len(messages_of(restored.out, SIZE)) == 2


@pytest.mark.parametrize("path", GOLDEN, ids=[path.stem for path in GOLDEN])
def test_records_of_real_brokers_are_restored_byte_for_byte(tmp_path: Path, restore: Restore, path: Path) -> None:
    _, _, segment, position = path.stem.split("-")
    base, start, data = int(segment), int(segment) + int(position), path.read_bytes()
    copy = tmp_path / segment_name(base)
    copy.write_bytes(bytes(int(position)) + data)
    split = Split("a", str(copy), base, start, start + len(data), base + SIZE, start + len(data), ROCKETMQ)
    restored = restore(_archive_split(tmp_path, split), segment_size=SIZE)
    assert restored.lost == 0
    found = (restored.out / "commitlog" / segment_name(base)).read_bytes()[int(position) :][: len(data)]
    assert found == data  # also for the older broker's batches, whose bytes do not follow from rows
    extents = dict(_extents(data))
    repeated = sum(data[at : at + size].count(b"WAIT\x01true") == 2 for at, size in extents.items())
    assert repeated == (8 if path.name == "rocketmq-4.9.7-00000000000003145728-271320.bin" else 0)
    assert (restored.made_up, restored.by_rule) == (0, repeated)
    assert sum(note["records"] for note in _notes(restored) if "repeated" in note["what"]) == repeated


def _extents(data: bytes) -> list[tuple[int, int]]:
    found, at = [], 0
    while at < len(data):
        size, magic = struct.unpack_from(">ii", data, at)
        assert magic in (Magic.V1, Magic.V2, Magic.BLANK)
        found.append((at, size))
        at += size
    return found


def _notes(restored: RestoreResult) -> list[dict[str, Any]]:
    path = restored.out / NOTES
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_repeated_rows_give_their_record_once(tmp_path: Path, archive: Archive, restore: Restore) -> None:
    root = write_store(
        tmp_path / "store", [(0, closed_segment(messages(700), SIZE)), (SIZE, open_segment(messages(9), SIZE, SIZE))]
    )
    restored = restore(archive(root, times=2), segment_size=SIZE)
    assert restored.records == 709
    assert segments(restored.out) == segments(root)


def test_a_store_without_its_first_segments_keeps_its_offsets(
    tmp_path: Path, archive: Archive, restore: Restore
) -> None:
    root = write_indexed_store(tmp_path / "store", options=OPTIONS)
    for name in sorted(segments(root))[:3]:
        (root / "commitlog" / name).unlink()
    restored = restore(archive(root))
    assert restored.log.start == 3 * SEGMENT_BYTES
    assert segments(restored.out) == segments(root)
    assert restored.rebuilt.shifted == 0
