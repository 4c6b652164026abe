"""Bounds of the store times in segments: never narrower than the true ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.files.segment_files import LocalFile, Window
from commitlake.connectors.reading.snapshots import segment_ranges, take_snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.reading.time_bounds import TimeBounds, time_bounds
from commitlake.schemas.layouts.rocketmq.commitlog import serialize_blank, serialize_message
from tests.support.logs import BROKER_HOST, new_message, write_store

SIZE = 4096
NOON = 1_700_000_000_000


def segment(times: Sequence[int], base_offset: int, *, is_open: bool = False) -> bytes:
    """Return a segment with a record for each time."""
    data = b""
    for number, time in enumerate(times):
        data += serialize_message(
            new_message(number),
            queue_offset=number,
            physical_offset=base_offset + len(data),
            store_timestamp=NOON + time,
            store_host=BROKER_HOST,
        )
    return (data + (b"" if is_open else serialize_blank(SIZE - len(data)))).ljust(SIZE, b"\0")


def bounds_of(root: Path, tolerance_ms: int = 0, without: Sequence[int] = ()) -> list[tuple[int | None, int | None]]:
    """Return the bounds of a store's segments, in ms from noon."""
    for number in without:
        (root / "commitlog" / f"{number * SIZE:020d}").unlink()
    (store,) = find_stores(str(root), formats=COMMITLOGS)
    store_range = take_snapshot([store]).ranges[store.broker]
    wholes = segment_ranges(store, store_range)
    return [
        (None if low is None else low - NOON, None if high is None else high - NOON)
        for low, high in time_bounds(wholes, store_range.last_record, tolerance_ms, 1 << 20)
    ]


def store_of(root: Path, *times: Sequence[int]) -> Path:
    """Write a store with a segment for each list of times; the last one is open."""
    last = len(times) - 1
    return write_store(root, [(SIZE * n, segment(each, SIZE * n, is_open=n == last)) for n, each in enumerate(times)])


def test_a_segments_bounds_end_where_the_next_segment_begins(tmp_path: Path) -> None:
    root = store_of(tmp_path, [0, 5, 9], [10, 15], [20, 21, 29])
    assert bounds_of(root) == [(0, 10), (10, 20), (20, 29)]


def test_bounds_are_wider_by_the_tolerance(tmp_path: Path) -> None:
    assert bounds_of(store_of(tmp_path, [0, 5], [10, 15]), 100) == [(-100, 110), (-90, 115)]


def test_a_step_back_within_the_tolerance_swaps_the_bounds(tmp_path: Path) -> None:
    assert bounds_of(store_of(tmp_path, [50, 90], [20, 95]), 100) == [(-80, 150), (-80, 195)]


def test_a_larger_step_back_leaves_no_bounds(tmp_path: Path) -> None:
    assert bounds_of(store_of(tmp_path, [0], [5000, 6000], [3000, 7000]), 100) == [
        (-100, 5100),
        (None, None),
        (2900, 7100),
    ]


def test_a_damaged_first_record_gives_no_bound(tmp_path: Path) -> None:
    root = store_of(tmp_path, [0, 5], [10, 15], [20, 25])
    path = root / "commitlog" / f"{SIZE:020d}"
    data = bytearray(path.read_bytes())
    data[90] ^= 1
    path.write_bytes(bytes(data))
    assert bounds_of(root) == [(0, 20), (None, 20), (20, 25)]


def test_a_first_record_that_is_larger_than_the_first_read_is_a_bound(tmp_path: Path) -> None:
    size = 1 << 14
    data = b""
    for number in range(2):
        data += serialize_message(
            new_message(number, body=b"x" * 6000),
            queue_offset=number,
            physical_offset=len(data),
            store_timestamp=NOON + number,
            store_host=BROKER_HOST,
        )
    assert bounds_of(write_store(tmp_path, [(0, data.ljust(size, b"\0"))])) == [(0, 1)]


def test_a_missing_segment_is_bounded_by_its_neighbours(tmp_path: Path) -> None:
    root = store_of(tmp_path, [0, 5], [10, 15], [20, 25], [30, 35])
    assert bounds_of(root, without=[1]) == [(0, 20), (0, 20), (20, 30), (30, 35)]


HOUR = 3_600_000


@pytest.mark.parametrize(
    ("times", "wanted", "expected"),
    [
        pytest.param([[0, 1, 5 * HOUR, 5 * HOUR + 1, 3], [5, 6]], (5 * HOUR, None), [True, False], id="ahead in one"),
        pytest.param([[0, 1], [3, 5 * HOUR, 5 * HOUR + 1, 5]], (5 * HOUR, None), [False, True], id="in the newest"),
        pytest.param([[0, 1, 5 * HOUR], [2, 3]], (5 * HOUR, None), [True, False], id="set right at the border"),
        pytest.param([[5 * HOUR, 0], [5 * HOUR + 1]], (None, HOUR), [True, False], id="behind for one record"),
        pytest.param([[0, 1, 2], [3, 4]], (5 * HOUR, None), [False, False], id="never wrong"),
    ],
)
def test_a_temporary_wrong_clock_is_found_before_a_segment_is_skipped(
    tmp_path: Path, times: Sequence[Sequence[int]], wanted: tuple[int | None, int | None], expected: list[bool]
) -> None:
    (store,) = find_stores(str(store_of(tmp_path, *times)), formats=COMMITLOGS)
    store_range = take_snapshot([store]).ranges[store.broker]
    begin, end = (None if time is None else NOON + time for time in wanted)
    wholes = segment_ranges(store, store_range)
    found = time_bounds(wholes, store_range.last_record, 600_000, 1 << 20, (begin, end))
    assert [bounds.may_overlap(begin, end) for bounds in found] == expected


def test_a_large_segment_is_probed_in_some_places_and_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 8 << 20
    out, offset, number = [], 0, 0
    while offset < size - (300 << 10):
        ahead = 3 << 20 < offset < (3 << 20) + size // 15
        out.append(
            serialize_message(
                new_message(number, body=bytes(20_000)),
                queue_offset=number,
                physical_offset=offset,
                store_timestamp=NOON + number + (5 * HOUR if ahead else 0),
                store_host=BROKER_HOST,
            )
        )
        offset, number = offset + len(out[-1]), number + 1
    closed = (b"".join(out) + serialize_blank(size - offset)).ljust(size, b"\0")
    write_store(tmp_path, [(0, closed), (size, segment([10_000], size, is_open=True).ljust(size, b"\0"))])
    (store,) = find_stores(str(tmp_path), formats=COMMITLOGS)
    store_range = take_snapshot([store]).ranges[store.broker]
    read = []
    original = LocalFile.read_into

    def counting(self: LocalFile, window: Window, position: int) -> int:
        read.append(len(window))
        return original(self, window, position)

    monkeypatch.setattr(LocalFile, "read_into", counting)
    wholes = segment_ranges(store, store_range)
    (first, _) = time_bounds(wholes, store_range.last_record, 0, 1 << 20, (NOON + 5 * HOUR, None))
    assert first.high is not None
    assert first.high > NOON + 5 * HOUR
    assert sum(read) < size // 2


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        (None, None, True),
        (None, 10, False),
        (None, 11, True),
        (20, None, True),
        (21, None, False),
        (0, 10, False),
        (15, 16, True),
        (21, 30, False),
        (0, 100, True),
    ],
)
def test_bounds_meet_a_range_that_can_share_a_time(begin: int | None, end: int | None, expected: bool) -> None:
    assert TimeBounds(10, 20).may_overlap(begin, end) is expected


def test_unknown_bounds_meet_every_range() -> None:
    assert TimeBounds().may_overlap(1, 2)
