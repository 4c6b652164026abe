"""A salvaged log has every intact record at its own offset, and can be read to its end."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.runtime.local_runner import ThreadRunner
from commitlake.jobs.rebuild.command import rebuild_exit_code, salvage_summary
from commitlake.pipelines.salvage.run import DAMAGES, MOVED, SalvageResult, salvage_store
from commitlake.pipelines.salvage.segments import MIN_FILLER_BYTES, TOPIC, make_filler, make_fillers
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.boltmq.dialect import Magic
from commitlake.schemas.layouts.rocketmq.commitlog import BLANK, HEAD, MIN_RECORD_SIZE, Message, body_crc, parse_message
from commitlake.schemas.layouts.rocketmq.consumequeue import ConsumeQueueEntry, serialize_entry
from commitlake.schemas.layouts.rocketmq.scan import SegmentScanner, SizeLimits, SpanKind
from commitlake.schemas.layouts.rocketmq.sysflag import TransactionType
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.logs import START_MS, closed_segment, messages, open_segment, records, write_store

SEGMENT = 1 << 15
COUNT = 120


def salvage(root: Path, threads: int = 1) -> SalvageResult:
    (store,) = find_stores(str(root), "a", formats=COMMITLOGS)
    return salvage_store(store, root.parent / "clean", runner=ThreadRunner(threads))


def log_of(root: Path) -> list[Message]:
    """Return all records of a log without faults."""
    found = []
    for path in sorted((root / "commitlog").iterdir()):
        data, base = path.read_bytes(), int(path.name)
        assert len(data) == SEGMENT
        for span in SegmentScanner(base, SizeLimits(base + SEGMENT, base + SEGMENT)).feed(data):
            assert span.kind is not SpanKind.FAULT, span
            if span.kind is SpanKind.RECORD:
                parsed = parse_message(data, span.start - base)
                assert parsed is not None
                found.append(parsed[0])
    return found


def kept(root: Path) -> list[Message]:
    """Return the records that are not fillers."""
    return [message for message in log_of(root) if not message.sys_flag & TransactionType.ROLLBACK]


def write_damaged(root: Path, faults: int, seed: int) -> list[Message]:
    """Write a log of three segments with random faults; return the records that none of them hit."""
    chance = random.Random(seed)
    intact, segments = [], []
    for number in range(3):
        base = number * SEGMENT
        wanted = messages(COUNT, seed=number)
        parts = records(wanted, base)
        whole = closed_segment(wanted, SEGMENT, base) if number < 2 else open_segment(wanted, SEGMENT, base)
        data = bytearray(whole)
        end = sum(map(len, parts))
        changed = bytearray(len(data))
        for _ in range(faults):
            at = chance.randrange(end - 600)
            size = chance.choice([1, 4, 64, 512])
            noise = chance.randbytes(size) if chance.random() < 0.5 else bytes(size)
            for place, byte in enumerate(noise, at):
                changed[place] |= data[place] != byte
                data[place] = byte
        at = 0
        for part in parts:
            # Bytes that no checksum covers may change without a trace: the record is then another, and intact.
            parsed = parse_message(bytes(data), at) if not any(changed[at : at + len(part)]) else None
            intact += [parsed[0]] if parsed is not None else []
            at += len(part)
        segments.append((base, bytes(data)))
    write_store(root, segments)
    return intact


@pytest.mark.parametrize("seed", range(12))
def test_every_intact_record_is_at_its_own_offset(tmp_path: Path, seed: int) -> None:
    intact = write_damaged(tmp_path / "damaged", 1 + seed, seed)
    salvaged = salvage(tmp_path / "damaged", threads=1 + seed % 2)
    found = {message.physical_offset: message for message in kept(salvaged.out)}
    assert [message for message in intact if found.get(message.physical_offset) != message] == []
    assert salvaged.records == len(found)
    assert salvaged.damages == len((salvaged.out / DAMAGES).read_text().splitlines()) > 0


def test_lists_are_synced_before_the_log_has_its_name_and_old_ones_vanish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, out = three_segments(tmp_path / "whole"), tmp_path / "clean"
    out.mkdir()
    (out / MOVED).write_text("of a run that was killed")
    synced: set[int] = set()
    sync = os.fsync

    def note(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    assert salvage(root).moved == 0
    assert (out / DAMAGES).stat().st_ino in synced
    assert not (out / MOVED).exists()


def test_a_whole_log_is_copied_byte_for_byte(tmp_path: Path) -> None:
    root = write_store(
        tmp_path / "whole", [(0, closed_segment(messages(COUNT), SEGMENT)), (SEGMENT, open_segment([], SEGMENT))]
    )
    salvaged = salvage(root)
    assert (salvaged.damages, salvaged.damaged_bytes, salvaged.moved, salvaged.records) == (0, 0, 0, COUNT)
    name = segment_name(0)
    assert (salvaged.out / "commitlog" / name).read_bytes() == (root / "commitlog" / name).read_bytes()


def three_segments(root: Path) -> Path:
    """Write a log of three segments without faults."""
    closed = [(base, closed_segment(messages(COUNT, seed=base), SEGMENT, base)) for base in (0, SEGMENT)]
    return write_store(root, [*closed, (2 * SEGMENT, open_segment(messages(COUNT), SEGMENT, 2 * SEGMENT))])


def test_a_missing_segment_becomes_one_that_a_broker_skips(tmp_path: Path) -> None:
    root = three_segments(tmp_path / "missing")
    (root / "commitlog" / segment_name(SEGMENT)).unlink()
    salvaged = salvage(root)
    data = (salvaged.out / "commitlog" / segment_name(SEGMENT)).read_bytes()
    parsed = parse_message(data)
    assert parsed is not None
    first, size = parsed
    assert (first.physical_offset, first.topic, size) == (SEGMENT, TOPIC[:1], MIN_FILLER_BYTES)
    assert BLANK.unpack(data, size) == (SEGMENT - size, Magic.BLANK)
    assert first.store_timestamp == START_MS + 1000 + COUNT - 1  # the newest before it, for the broker's look-ups
    assert len(kept(salvaged.out)) == 2 * COUNT


@pytest.mark.parametrize("damage", ["blank", "cut", "tail", "head"])
def test_the_ends_of_segments_are_repaired(tmp_path: Path, damage: str) -> None:
    root = three_segments(tmp_path / "damaged")
    path = root / "commitlog" / segment_name(SEGMENT)
    data = bytearray(path.read_bytes())
    end = sum(map(len, records(messages(COUNT, seed=SEGMENT), SEGMENT)))
    match damage:
        case "blank":
            data[end : end + 8] = bytes(8)
        case "cut":
            del data[end - 10 :]
        case "tail":
            data[end - 30 : end + 8] = b"\xff" * 38
        case "head":
            data[:10] = b"\xff" * 10
    path.write_bytes(data)
    salvaged = salvage(root)
    assert len(kept(salvaged.out)) == 3 * COUNT - (damage != "blank")
    assert salvaged.damages == 1


def test_the_error_for_a_file_far_from_the_log_names_it(tmp_path: Path) -> None:
    far = 1 << 61
    segments = [(0, closed_segment(messages(3), SEGMENT)), (far, open_segment(messages(3), SEGMENT, far))]
    root = write_store(tmp_path / "store", segments)
    with pytest.raises(UsageError, match=r"segments are missing .*02305843009213693952, expected at most 65,536"):
        salvage(root)


def test_a_torn_end_of_the_log_is_left_out(tmp_path: Path) -> None:
    root = three_segments(tmp_path / "torn")
    path = max((root / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    end = sum(map(len, records(messages(COUNT), 2 * SEGMENT)))
    data[end - 120 :] = bytes(len(data) - end + 120)
    path.write_bytes(data)
    salvaged = salvage(root)
    assert len(kept(salvaged.out)) == 3 * COUNT - 1
    assert not any((salvaged.out / "commitlog" / path.name).read_bytes()[end:])
    assert [(row["fault"], row["became"]) for row in damages_of(salvaged)] == [("physical_offset", "dropped")]


@pytest.mark.parametrize("zeroed", [0, 1, 4])
def test_zeroed_records_at_the_end_are_counted_from_the_queues(tmp_path: Path, zeroed: int) -> None:
    root = tmp_path / "store"
    options = StoreOptions(
        segment_size_bytes=SEGMENT, consume_queue_file_size_bytes=100, index_slots=100, index_entries=400
    )
    with MessageStore.open(root, options) as store:
        starts = [store.put(message).physical_offset for message in messages(COUNT)]
    path = max((root / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    end = starts[len(starts) - zeroed] - int(path.name) if zeroed else len(data)
    assert end > 0
    data[end:] = bytes(len(data) - end)
    path.write_bytes(data)
    salvaged = salvage(root)
    assert len(kept(salvaged.out)) == COUNT - zeroed
    assert (salvaged.damages, salvaged.lost) == (0, zeroed)
    assert rebuild_exit_code(None, salvaged) == (3 if zeroed else 0)
    assert (f"{zeroed:,} record" in salvage_summary(salvaged)) == (zeroed > 0)
    assert salvage(root) == salvaged


def test_a_huge_empty_queue_file_is_not_read_completely(tmp_path: Path) -> None:
    root = three_segments(tmp_path / "planted")
    queue = root / "consumequeue" / "topic-0" / "0"
    queue.mkdir(parents=True)
    with (queue / segment_name(0)).open("wb") as file:
        file.write(serialize_entry(ConsumeQueueEntry(1 << 40, 100, 0)) * 3)
        file.truncate(1 << 42)
    assert salvage(root).lost == 1


def test_records_named_by_queues_of_an_open_store_are_not_counted_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commitlake.pipelines.salvage.run.is_locked", lambda _: True)
    root = three_segments(tmp_path / "open")
    (root / "consumequeue" / "topic-0" / "0").mkdir(parents=True)
    (root / "consumequeue" / "topic-0" / "0" / segment_name(0)).write_bytes(
        serialize_entry(ConsumeQueueEntry(1 << 40, 100, 0))
    )
    assert salvage(root).lost == 0


@pytest.mark.parametrize("is_open", [False, True])
def test_an_unproven_last_record_is_kept_or_reported(
    tmp_path: Path, is_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last record of a stopped store is kept, as by a broker; that of an open store may be half written."""
    monkeypatch.setattr("commitlake.pipelines.salvage.run.is_locked", lambda _: is_open)
    root = three_segments(tmp_path / "torn")
    path = max((root / "commitlog").iterdir())
    parts = records(messages(COUNT), 2 * SEGMENT)
    data, end = bytearray(path.read_bytes()), sum(map(len, parts))
    data[end - 1] = 0
    path.write_bytes(data)
    salvaged = salvage(root)
    assert len(kept(salvaged.out)) == 3 * COUNT - is_open
    at = 2 * SEGMENT + end
    told = {"start": at - len(parts[-1]), "end": at, "fault": "unproven_end", "became": "dropped"}
    assert damages_of(salvaged) == ([told] if is_open else [])
    assert (salvaged.damages, salvaged.dropped) == (is_open, is_open)


def test_records_after_a_page_of_zeros_are_kept_in_every_segment(tmp_path: Path) -> None:
    root = three_segments(tmp_path / "holes")
    intact = [one for one in log_of(root) if one.physical_offset % SEGMENT + one.size <= 4096] + [
        one for one in log_of(root) if one.physical_offset % SEGMENT >= 8192
    ]
    for path in (root / "commitlog").iterdir():
        data = path.read_bytes()
        path.write_bytes(data[:4096] + bytes(4096) + data[8192:])
    salvaged = salvage(root)
    assert {one.physical_offset for one in kept(salvaged.out)} == {one.physical_offset for one in intact}
    assert (salvaged.damages, salvaged.dropped) == (3, 0)


def damages_of(salvaged: SalvageResult) -> list[dict[str, object]]:
    """Return the list of damages next to a salvaged log."""
    return [json.loads(line) for line in (salvaged.out / DAMAGES).read_text().splitlines()]


def test_records_after_a_range_too_small_for_a_filler_are_moved_and_listed(tmp_path: Path) -> None:
    gap = MIN_FILLER_BYTES - 20
    wanted = messages(20)
    before = b"".join(records(wanted[:10]))
    behind = records(wanted[10:], len(before) + gap)
    data = before + b"\xee" * gap + b"".join(behind)
    root = write_store(tmp_path / "forged", [(0, data.ljust(SEGMENT, b"\0"))])
    salvaged = salvage(root)
    rows = [json.loads(line) for line in (salvaged.out / MOVED).read_text().splitlines()]
    assert [row["before"] - row["now"] for row in rows] == [gap] * 10
    found = kept(salvaged.out)
    assert [message.physical_offset for message in found[10:]] == [row["now"] for row in rows]
    assert [message.body for message in found] == [message.body for message in wanted]


def test_a_broker_reads_a_salvaged_log_to_its_end_unlike_the_damaged_one(tmp_path: Path) -> None:
    root = three_segments(tmp_path / "damaged")
    path = root / "commitlog" / segment_name(0)
    data = bytearray(path.read_bytes())
    data[len(records(messages(1, seed=0))[0]) + 90] ^= 1
    path.write_bytes(data)
    salvaged = salvage(root)
    options = StoreOptions(segment_size_bytes=SEGMENT, index_slots=50, index_entries=200)
    with MessageStore.open(salvaged.out, options) as store:
        assert store.recovery.records == 3 * COUNT
    with MessageStore.open(root, options) as store:
        assert store.recovery.records == 1


@pytest.mark.parametrize("size", [MIN_FILLER_BYTES, MIN_FILLER_BYTES + 1, MIN_RECORD_SIZE + len(TOPIC) + 1, 5000])
def test_a_filler_is_a_complete_record_of_its_size(size: int) -> None:
    data = make_filler(4096, size, START_MS)
    parsed = parse_message(data)
    assert parsed is not None
    message, found = parsed
    assert (found, len(data), message.physical_offset, message.store_timestamp) == (size, size, 4096, START_MS)
    assert message.sys_flag == TransactionType.ROLLBACK
    assert HEAD.unpack(data)[2] == body_crc(message.body)


@pytest.mark.parametrize("size", [4 << 20, (4 << 20) + 1, (8 << 20) + 5])
def test_a_large_range_becomes_several_fillers(size: int) -> None:
    sizes = [len(each) for each in make_fillers(0, size, START_MS)]
    assert sum(sizes) == size
    assert max(sizes) <= 4 << 20
    assert min(sizes) >= MIN_FILLER_BYTES


def test_an_existing_log_is_not_overwritten_and_an_empty_log_is_refused(tmp_path: Path) -> None:
    root = three_segments(tmp_path / "whole")
    (tmp_path / "clean" / "commitlog").mkdir(parents=True)
    with pytest.raises(UsageError, match="already contains commitlog, and nothing is overwritten"):
        salvage(root)
    empty = write_store(tmp_path / "empty" / "store", [(0, bytes(SEGMENT))])
    with pytest.raises(UsageError, match="no record of the log is intact"):
        salvage(empty)
