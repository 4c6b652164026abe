"""Snapshots and splits: where a log ends, and how it is divided."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.snapshots import (
    BLOCK_BYTES,
    LogTailKind,
    Snapshot,
    StoreRange,
    check_snapshot_stores,
    divide_segment,
    plan_splits,
    segment_ranges,
    take_snapshot,
)
from commitlake.connectors.reading.stores import Store, find_stores
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.rocketmq.checkpoint import Checkpoint, serialize_checkpoint
from commitlake.schemas.layouts.rocketmq.commitlog import serialize_blank
from tests.support.logs import START_MS, closed_segment, messages, new_message, open_segment, records, write_store

SIZE = 4096
SECOND = messages(6, seed=2)
SECOND_ENDS = [SIZE + sum(len(record) for record in records(SECOND, SIZE)[: number + 1]) for number in range(6)]


def store_with(root: Path, newest: bytes, *more: tuple[int, bytes]) -> Store:
    """Write a store with one closed segment and a newest one."""
    write_store(root, [(0, closed_segment(messages(8), SIZE)), (SIZE, newest), *more])
    (store,) = find_stores(str(root), "b", formats=COMMITLOGS)
    return store


def range_of(store: Store, start: int | None = None) -> StoreRange:
    """Return the range of the only store."""
    return take_snapshot([store], None if start is None else {"b": start}).ranges["b"]


def test_snapshot_ends_after_the_last_record(tmp_path: Path) -> None:
    store = store_with(tmp_path, open_segment(SECOND, SIZE, SIZE))
    assert range_of(store) == StoreRange(0, SECOND_ENDS[-1], LogTailKind.UNWRITTEN, 0, SECOND_ENDS[-2])


def test_preallocated_segments_are_not_data(tmp_path: Path) -> None:
    store = store_with(tmp_path, open_segment(SECOND, SIZE, SIZE), (2 * SIZE, bytes(SIZE)), (3 * SIZE, bytes(SIZE)))
    assert range_of(store).end == SECOND_ENDS[-1]


def test_closed_newest_segment_is_included_completely(tmp_path: Path) -> None:
    store = store_with(tmp_path, closed_segment(SECOND, SIZE, SIZE), (2 * SIZE, bytes(SIZE)))
    assert range_of(store) == StoreRange(0, 2 * SIZE, LogTailKind.CLOSED, 0, SECOND_ENDS[-2])


@pytest.mark.parametrize("kept", [1, 8, 60, 90, 100])
def test_torn_last_record_is_the_tail_and_not_damage(tmp_path: Path, kept: int) -> None:
    data = open_segment(SECOND, SIZE, SIZE)
    torn = data[: SECOND_ENDS[4] - SIZE + kept].ljust(SIZE, b"\0")
    found = range_of(store_with(tmp_path, torn))
    assert found.end == SECOND_ENDS[4]
    if any(torn[SECOND_ENDS[4] - SIZE :]):
        assert found.tail is LogTailKind.TORN


def test_last_bodies_that_did_not_reach_the_disk_are_the_tail(tmp_path: Path) -> None:
    data = bytearray(open_segment([new_message(n, body=b"x" * 50) for n in range(6)], SIZE, SIZE))
    size = len(records([new_message(0, body=b"x" * 50)])[0])
    for number in (4, 5):
        data[number * size + 88 : number * size + 138] = bytes(50)
    found = range_of(store_with(tmp_path, bytes(data)))
    assert (found.end, found.tail, found.tail_bytes) == (SIZE + 4 * size, LogTailKind.TORN, 2 * size)


@pytest.mark.parametrize("properties", [[("KEYS", "order-4711"), ("TAGS", "paid")], []])
def test_last_record_whose_texts_did_not_reach_the_disk_is_the_tail(
    tmp_path: Path, properties: list[tuple[str, str]]
) -> None:
    sent = [new_message(n, properties=properties) for n in range(3)]
    whole = open_segment(sent, SIZE, SIZE)
    ends = [SIZE + end for end in accumulate(len(record) for record in records(sent, SIZE))]
    for missing in range(1, ends[2] - ends[1]):
        data = bytearray(whole)
        data[ends[2] - SIZE - missing : ends[2] - SIZE] = bytes(missing)
        found = range_of(store_with(tmp_path, bytes(data)))
        assert found.end == (ends[2] if bytes(data) == whole else ends[1]), missing


@pytest.mark.parametrize("value", ["a\0b", "\0", "a" + "\0" * 500 + "b"])
def test_messages_with_a_nul_in_a_property_are_included(tmp_path: Path, value: str) -> None:
    data = open_segment([new_message(n, properties=[("NOTE", value)]) for n in range(3)], SIZE, SIZE)
    assert range_of(store_with(tmp_path, data)).end == SIZE + len(data.rstrip(b"\0"))


def ending_in_zeros(count: int) -> tuple[bytes, list[int]]:
    """Return a segment whose records all end in a NUL, and their ends."""
    data = bytearray(open_segment(messages(count), SIZE, SIZE))
    ends = list(accumulate(len(record) for record in records(messages(count), SIZE)))
    for end in ends:
        data[end - 1] = 0
    return bytes(data), [SIZE + end for end in ends]


def test_only_the_last_message_that_ends_in_a_nul_is_left_for_later(tmp_path: Path) -> None:
    data, ends = ending_in_zeros(3)
    found = range_of(store_with(tmp_path, data))
    assert (found.end, found.tail, found.tail_bytes) == (ends[1], LogTailKind.TORN, ends[2] - ends[1])


@pytest.mark.parametrize(
    ("flushed_ms", "is_closed", "is_taken"),
    [(1001, True, False), (1002, True, True), (1002, False, False), (1003, False, True)],
)
def test_the_checkpoint_proves_a_last_message_that_ends_in_a_nul(
    tmp_path: Path, flushed_ms: int, is_closed: bool, is_taken: bool
) -> None:
    data, ends = ending_in_zeros(3)
    store = store_with(tmp_path, data)
    (tmp_path / "checkpoint").write_bytes(serialize_checkpoint(Checkpoint(START_MS + flushed_ms)))
    if not is_closed:
        (tmp_path / "abort").touch()
    found = range_of(store)
    assert (found.end, found.tail) == ((ends[2], LogTailKind.UNWRITTEN) if is_taken else (ends[1], LogTailKind.TORN))


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize(("start", "size"), [(1, 1), (0, BLOCK_BYTES - 1), (0, BLOCK_BYTES), (1, 2 * BLOCK_BYTES)])
def test_last_messages_whose_texts_lack_whole_blocks_are_the_tail(
    tmp_path: Path, start: int, size: int, is_last: bool
) -> None:
    sent = [new_message(n, properties=[("NOTE", "x" * 1900)]) for n in range(2)]
    data, first = bytearray(open_segment(sent, SIZE, SIZE)), len(records(sent, SIZE)[0])
    end = len(bytes(data).rstrip(b"\0"))
    for begin in (0, first):
        if begin or not is_last:
            at = (begin // BLOCK_BYTES + 2) * BLOCK_BYTES + start
            data[at : at + size] = bytes(size)
    is_missing = size >= BLOCK_BYTES
    found = range_of(store_with(tmp_path, bytes(data)))
    assert found.end == SIZE + (end if not is_missing else first if is_last else 0)


def test_damage_with_records_after_it_is_not_the_tail(tmp_path: Path) -> None:
    data = bytearray(open_segment(SECOND, SIZE, SIZE))
    data[SECOND_ENDS[2] - SIZE] = 0xFF
    assert range_of(store_with(tmp_path, bytes(data))).end == SECOND_ENDS[-1]


def test_snapshot_from_the_end_is_empty(tmp_path: Path) -> None:
    store = store_with(tmp_path, open_segment(SECOND, SIZE, SIZE))
    found = range_of(store, SECOND_ENDS[-1])
    assert (found.start, found.end, found.size) == (SECOND_ENDS[-1], SECOND_ENDS[-1], 0)


def test_snapshot_from_the_middle_takes_the_rest(tmp_path: Path) -> None:
    store = store_with(tmp_path, open_segment(SECOND, SIZE, SIZE))
    assert range_of(store, SECOND_ENDS[1]).size == SECOND_ENDS[-1] - SECOND_ENDS[1]


def test_snapshot_round_trips_through_json() -> None:
    snapshot = Snapshot({"a": StoreRange(0, 10), "b": StoreRange(5, 9, LogTailKind.TORN, 3, 7)})
    assert Snapshot.from_json(snapshot.to_json()) == snapshot
    assert snapshot.size == 14


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": {"start": 1}}', '{"a": {"tail": "x"}}'])
def test_text_that_is_not_a_snapshot_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="option snapshot"):
        Snapshot.from_json(text)


def test_snapshot_of_a_missing_store_is_refused(tmp_path: Path) -> None:
    store = store_with(tmp_path, open_segment(SECOND, SIZE, SIZE))
    with pytest.raises(StoreError, match="contains the store 'other', but the path contains b"):
        check_snapshot_stores([store], Snapshot({"other": StoreRange(0, 1)}))


@pytest.mark.parametrize("partition", [1, 300, 1000, 4095, 4096, 10**6])
def test_splits_are_whole_records_one_after_the_other(tmp_path: Path, partition: int) -> None:
    store = store_with(tmp_path, open_segment(SECOND, SIZE, SIZE))
    found = range_of(store)
    splits = plan_splits(store, found, partition)
    first = [0, *(sum(len(record) for record in records(messages(8))[: n + 1]) for n in range(8))]
    starts = {*first, SIZE, *SECOND_ENDS}
    assert [split.start for split in splits[1:]] == [split.end for split in splits[:-1]]
    assert (splits[0].start, splits[-1].end) == (0, found.end)
    assert all(split.start in starts for split in splits)
    assert len(splits) > 2 or partition >= 1000


def test_splits_of_a_later_read_are_cut_at_the_same_places(tmp_path: Path) -> None:
    store = store_with(tmp_path, open_segment(SECOND, SIZE, SIZE))
    all_starts = {split.start for split in plan_splits(store, range_of(store), 300)}
    later = plan_splits(store, range_of(store, SECOND_ENDS[1]), 300)
    assert {split.start for split in later[1:]} <= all_starts


@pytest.mark.parametrize("until", [1, 500, SIZE - 1, SIZE, SIZE + 1])
def test_splits_up_to_an_offset_are_the_first_of_all(tmp_path: Path, until: int) -> None:
    store = store_with(tmp_path, open_segment(SECOND, SIZE, SIZE))
    (first, _) = segment_ranges(store, range_of(store))
    everything = list(divide_segment(first, 300, 1 << 20))
    found = list(divide_segment(first, 300, 1 << 20, until))
    assert found == everything[: len(found)]
    assert found[-1].end >= min(until, first.end)
    assert all(split.start < until for split in found)


@pytest.mark.parametrize("until", [1, SIZE - 1, SIZE])
def test_a_snapshot_up_to_a_segment_boundary_does_not_search_the_end(tmp_path: Path, until: int) -> None:
    store = store_with(tmp_path, open_segment(SECOND, SIZE, SIZE))
    assert take_snapshot([store], end_offset=until).ranges["b"] == StoreRange(0, SIZE, LogTailKind.CLOSED)
    assert take_snapshot([store], end_offset=SIZE + 1).ranges["b"] == range_of(store)


def test_a_preallocated_segment_does_not_close_the_one_before_it(tmp_path: Path) -> None:
    store = store_with(tmp_path, open_segment(SECOND, SIZE, SIZE), (2 * SIZE, bytes(SIZE)))
    assert take_snapshot([store], end_offset=2 * SIZE).ranges["b"] == range_of(store)


def test_record_inside_a_body_is_never_the_start_of_a_split(tmp_path: Path) -> None:
    fake = records([new_message(9, body=b"f" * 100)], base_offset=88)[0]
    store = write_store(
        tmp_path, [(0, closed_segment([new_message(1, body=fake + bytes(1000)), new_message(2)], SIZE))]
    )
    (found,) = find_stores(str(store), "b", formats=COMMITLOGS)
    splits = plan_splits(found, range_of(found), 64)
    assert 88 not in {split.start for split in splits}
    assert len(splits) == 2


def test_a_missing_segment_is_a_split_marked_as_missing(tmp_path: Path) -> None:
    store = store_with(tmp_path, closed_segment(SECOND, SIZE, SIZE), (3 * SIZE, open_segment(SECOND, SIZE, 3 * SIZE)))
    missing = [split for split in plan_splits(store, range_of(store), 1 << 20) if split.missing]
    assert [(split.start, split.end) for split in missing] == [(2 * SIZE, 3 * SIZE)]
    assert missing[0].path.endswith(f"{2 * SIZE:020d}")


def test_a_range_deleted_before_it_was_read_is_missing(tmp_path: Path) -> None:
    store = store_with(tmp_path, open_segment(SECOND, SIZE, SIZE))
    (store.segments and tmp_path / "commitlog" / f"{0:020d}").unlink()  # type: ignore[union-attr]
    (later,) = find_stores(str(tmp_path), "b", formats=COMMITLOGS)
    missing = [split for split in plan_splits(later, range_of(later, 1000), 1 << 20) if split.missing]
    assert [(split.start, split.end) for split in missing] == [(1000, SIZE)]


@pytest.mark.parametrize("kept", [0, 1, 7])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("make", [open_segment, closed_segment])
def test_newest_segments_without_a_whole_record_head_hide_no_record(
    tmp_path: Path, make: Callable[..., bytes], count: int, kept: int
) -> None:
    store = store_with(tmp_path, make(SECOND, SIZE, SIZE))
    expected = range_of(store)
    for number in range(count):
        (tmp_path / "commitlog" / f"{(2 + number) * SIZE:020d}").write_bytes(bytes(kept))
    (later,) = find_stores(str(tmp_path), "b", formats=COMMITLOGS)
    assert range_of(later) == expected
    assert range_of(later, expected.end) == StoreRange(expected.end, expected.end)
    assert [split.end for split in plan_splits(later, expected, SIZE)] == [SIZE, expected.end]


def test_blank_in_the_body_of_a_torn_record_does_not_close_the_newest_segment(tmp_path: Path) -> None:
    start = SECOND_ENDS[-1]
    blank = serialize_blank(2 * SIZE - start - 88)[:8]
    data = open_segment([*SECOND, new_message(6, body=blank + bytes(200))], SIZE, SIZE)
    torn = data[: start - SIZE + 200].ljust(SIZE, b"\0")
    found = range_of(store_with(tmp_path, torn))
    assert (found.end, found.tail) == (start, LogTailKind.TORN)


def test_segments_of_two_sizes_are_read_whole(tmp_path: Path) -> None:
    sizes, segments, base = [2 * SIZE, 2 * SIZE, SIZE, SIZE], [], 0
    for size in sizes:
        segments.append((base, closed_segment(messages(8), size, base)))
        base += size
    (store,) = find_stores(str(write_store(tmp_path, segments)), "b", formats=COMMITLOGS)
    splits = segment_ranges(store, range_of(store))
    assert [(split.size, split.segment_end - split.base_offset, split.missing) for split in splits] == [
        (size, size, False) for size in sizes
    ]
