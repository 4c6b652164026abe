"""The end of a growing log: the same as a batch finds, found by reading only new bytes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.files import segment_files
from commitlake.connectors.reading.snapshots import take_snapshot
from commitlake.connectors.reading.stores import Store, find_stores
from commitlake.connectors.sources.stream_log_ends import SEARCH_BYTES, ZEROS_BYTES, LogEndSearcher
from commitlake.connectors.sources.stream_offsets import StorePosition, read_known_record
from commitlake.schemas.layouts.rocketmq.commitlog import serialize_blank
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.logs import messages, new_message, records, write_store

MIB = 1 << 20
SIZE = 64 * MIB


class GrowingStore:
    """A store that is written by hand; its segments are full of real zeros, which no filesystem knows as a hole."""

    def __init__(self, root: Path, size: int = SIZE) -> None:
        self.root, self.size, self.end = root, size, 0
        write_store(root, [])
        self.begin(0)

    def begin(self, base_offset: int) -> None:
        """Begin a new segment, as a broker does before it needs it."""
        (self.root / "commitlog" / segment_name(base_offset)).write_bytes(bytes(self.size))

    def write(self, data: bytes, at: int | None = None) -> None:
        """Write bytes at the log's end, or elsewhere."""
        offset = self.end if at is None else at
        base = offset - offset % self.size
        with (self.root / "commitlog" / segment_name(base)).open("r+b") as file:
            file.seek(offset - base)
            file.write(data)
        if at is None:
            self.end += len(data)

    def put(self, count: int, seed: int = 1, body: int = 200) -> None:
        """Write messages at the log's end."""
        self.write(b"".join(records(messages(count, seed, body), self.end)))

    def close_segment(self) -> None:
        """Close the segment, as a broker that continues in the next one."""
        left = self.size - self.end % self.size
        self.write(serialize_blank(left))
        self.end += left - 8
        self.begin(self.end)

    @property
    def store(self) -> Store:
        """Return the store in its current state."""
        (found,) = find_stores(str(self.root), "b", formats=COMMITLOGS)
        return found


@pytest.fixture
def log(tmp_path: Path) -> GrowingStore:
    return GrowingStore(tmp_path / "b")


def batch_end(log: GrowingStore, start: int = 0) -> int:
    return take_snapshot([log.store], {"b": start}).ranges["b"].end


def test_the_end_equals_a_batchs_while_the_log_grows_over_segments(tmp_path: Path) -> None:
    log, chance = GrowingStore(tmp_path / "b", MIB), random.Random(3)
    end, position = LogEndSearcher(64 * MIB), StorePosition(0)
    for step in range(60):
        if chance.random() < 0.2 and log.end % MIB:
            log.close_segment()
        elif log.end % MIB < MIB // 2:
            log.put(chance.randrange(1, 300), seed=step, body=chance.choice([10, 200, 3000]))
        position = end.find_end(log.store, position)
        assert position.offset == batch_end(log, position.offset)
        assert position.record is not None
        assert position.record == read_known_record(log.store, position.record.offset)
    assert position.offset == log.end


def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that collects the sizes of reads; mapping is refused, so that all reads are counted."""
    sizes: list[int] = []
    read_into = segment_files.LocalFile.read_into

    def counted(self: segment_files.LocalFile, window: segment_files.Window, position: int) -> int:
        sizes.append(len(window))
        return read_into(self, window, position)

    monkeypatch.setattr(segment_files.LocalFile, "read_into", counted)
    monkeypatch.setattr("commitlake.connectors.reading.files.segment_windows.Mapping.map_file", lambda *_: None)
    return sizes


def test_finding_the_end_reads_new_bytes_and_not_the_whole_segment(
    log: GrowingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.put(100_000)
    end = LogEndSearcher(64 * MIB)
    position = end.find_end(log.store, StorePosition(0))
    sizes = bytes_read(monkeypatch)
    assert end.find_end(log.store, position) == position
    assert sum(sizes) < 1000  # nothing is new
    log.put(100)
    sizes.clear()
    assert end.find_end(log.store, position).offset == log.end
    assert sum(sizes) < 2 * SEARCH_BYTES
    sizes.clear()
    log.put(100)
    assert (
        end.find_end(log.store, position, max_backlog_bytes=10_000).offset == log.end
    )  # the same for a start with a lag
    assert sum(sizes) < 2 * SEARCH_BYTES


def test_the_end_of_a_backlog_is_not_searched(log: GrowingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    log.put(10)
    log.close_segment()
    log.put(50_000)
    sizes = bytes_read(monkeypatch)
    assert LogEndSearcher(64 * MIB).find_end(log.store, StorePosition(0), max_backlog_bytes=MIB) == StorePosition(SIZE)
    assert sum(sizes) < 1000


def test_a_torn_record_is_waited_for(log: GrowingStore) -> None:
    log.put(5)
    end = LogEndSearcher(64 * MIB)
    position = end.find_end(log.store, StorePosition(0))
    (torn,) = records([new_message(1, body=b"a" * 20_000)], log.end)
    for length in (1, 8, 50, 10_000, 20_000):
        log.write(torn[:length], at=log.end)
        assert end.find_end(log.store, position) == position
    log.write(torn)
    assert end.find_end(log.store, position).offset == log.end


@pytest.mark.parametrize("size", [100, ZEROS_BYTES - 1000, 9 * MIB])
def test_records_after_damage_are_found(log: GrowingStore, size: int) -> None:
    log.put(5)
    end = LogEndSearcher(64 * MIB)
    position = end.find_end(log.store, StorePosition(0))
    log.write(random.Random(1).randbytes(size))
    log.put(5, seed=2)
    assert end.find_end(log.store, position).offset == log.end == batch_end(log)


def test_a_long_hole_is_searched_only_when_the_segment_is_closed(log: GrowingStore) -> None:
    log.put(5)
    end = LogEndSearcher(64 * MIB)
    position = end.find_end(log.store, StorePosition(0))
    log.put(1)
    log.end += ZEROS_BYTES // 2
    log.put(5, seed=2)
    position = end.find_end(log.store, position)
    assert position.offset == log.end
    log.put(1)
    before_hole = log.end
    log.end += 2 * SEARCH_BYTES
    log.put(5, seed=3)
    assert end.find_end(log.store, position).offset == before_hole
    assert (
        LogEndSearcher(64 * MIB).find_end(log.store, position).offset == log.end
    )  # started again: all of the segment is looked at
    log.close_segment()
    log.put(1)
    assert end.find_end(log.store, position).offset == log.end


def test_a_log_that_was_truncated_after_the_start_is_searched_again(log: GrowingStore) -> None:
    log.put(5)
    end = LogEndSearcher(64 * MIB)
    start, before = end.find_end(log.store, StorePosition(0)), log.end
    log.put(50)
    assert end.find_end(log.store, start).offset == log.end
    log.write(bytes(log.end - before), at=before)  # a broker that lost its last pages
    log.end = before
    log.put(3, seed=9)
    assert end.find_end(log.store, start).offset == log.end


def test_a_segment_deleted_meanwhile_does_not_move_the_end(log: GrowingStore) -> None:
    log.put(5)
    end, store = LogEndSearcher(64 * MIB), log.store
    position = end.find_end(store, StorePosition(0))
    (log.root / "commitlog" / segment_name(0)).unlink()
    assert end.find_end(store, position) == position
