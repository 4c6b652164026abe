"""Entries of a file window by window, with the ranges that hold none."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from commitlake.connectors.formats.index_entries import entry_windows
from commitlake.connectors.formats.index_entries.entry_damage import Reason
from commitlake.connectors.formats.index_entries.entry_windows import EntryRange, walk_entries
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.files.segment_files import LocalFile

_DTYPE = np.dtype(">i4")
_BROKEN = -1
Found = tuple[list[int], list[tuple[int, int, Reason]]]


@pytest.fixture(autouse=True, params=[1, 3, 1 << 14])
def _window_entries(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of one entry, of some, and of all: the results are the same."""
    monkeypatch.setattr(entry_windows, "WINDOW_ENTRIES", request.param)


def walk(
    path: Path, numbers: list[int], *, end: int | None = None, written: int = 0, are_zeros_sound: bool = False
) -> Found:
    """Write numbers as entries, and walk them: those above 0 are sound. Bad ranges are given in entries."""
    path.write_bytes(np.array(numbers, _DTYPE).tobytes())
    return walk_file(path, len(numbers), end=end, written=written, are_zeros_sound=are_zeros_sound)


def walk_file(
    path: Path, size: int, *, end: int | None = None, written: int = 0, are_zeros_sound: bool = False
) -> Found:
    """Walk a file of this number of entries."""
    low = -1 if are_zeros_sound else 0
    wanted = EntryRange(
        _DTYPE, 0, 4 * (size if end is None else end), 4 * size, 4 * written,
        lambda _, entries: entries > low if low == 0 else entries >= 0, "a number above 0", are_zeros_sound,
    )  # fmt: skip
    values: list[int] = []
    bad: list[tuple[int, int, Reason]] = []
    with closing(LocalFile(str(path))) as file:
        for window in walk_entries(file, wanted):
            entries = window.entries if window.sound is None else window.entries[window.sound]
            values += entries.tolist()
            bad += [(each.start // 4, each.end // 4, each.reason) for each in window.bad]
    return values, bad


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file to write."""
    return tmp_path / "file"


@pytest.mark.parametrize(
    ("numbers", "values", "bad"),
    [
        ([1, 2, 3, 4], [1, 2, 3, 4], []),
        ([], [], []),
        ([0, 0, 0, 0], [], []),  # made, and nothing written
        ([1, 2, 0, 0, 0, 0], [1, 2], []),  # the end of the queue
        ([1, 2, _BROKEN, 0, 0], [1, 2], []),  # an entry that is being written
        ([1, 2, _BROKEN, _BROKEN, 0, 0], [1, 2], [(2, 4)]),  # too much for that
        ([1, 2, 0, _BROKEN, 0], [1, 2], [(2, 4)]),
        ([1, 0, 0, 4, 0], [1, 4], [(1, 3)]),  # a page of zeros was lost
        ([0, 0, 3, 4], [3, 4], [(0, 2)]),
        ([1, _BROKEN, 3, _BROKEN, 5], [1, 3, 5], [(1, 2), (3, 4)]),
        ([1, _BROKEN, 0, 4, _BROKEN], [1, 4], [(1, 3)]),
    ],
)
def test_unwritten_entries_with_written_ones_after_them_are_bad(
    path: Path, numbers: list[int], values: list[int], bad: list[tuple[int, int]]
) -> None:
    assert walk(path, numbers) == (values, [(*place, Reason.ENTRY) for place in bad])


def test_zeros_at_the_end_of_a_range_are_bad_if_entries_follow(path: Path) -> None:
    assert walk(path, [1, 2, 0, 0, 0, 0], end=4) == ([1, 2], [])
    assert walk(path, [1, 2, 0, 0, 0, 6], end=4) == ([1, 2], [(2, 4, Reason.ENTRY)])


def test_unwritten_entries_that_must_be_written_are_bad_at_the_end(path: Path) -> None:
    assert walk(path, [1, 2, 0, 0, 0], written=3) == ([1, 2], [(2, 3, Reason.ENTRY)])
    assert walk(path, [0, 0], written=9) == ([], [(0, 2, Reason.ENTRY)])


def test_zeros_can_be_entries(path: Path) -> None:
    assert walk(path, [0, 7, 0, _BROKEN, 0], written=5, are_zeros_sound=True) == (
        [0, 7, 0, 0],
        [(3, 4, Reason.ENTRY)],
    )


def test_a_file_that_is_cut_during_the_read_is_bad_from_the_cut(path: Path) -> None:
    path.write_bytes(np.array([1, 2], _DTYPE).tobytes() + b"\0\0")
    assert walk_file(path, 5) == ([1, 2], [(2, 5, Reason.CUT)])


def test_holes_are_not_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hole = 64 << 20
    with path.open("wb") as file:
        file.write(np.array([1, 2], _DTYPE).tobytes())
        file.seek(hole)
        file.write(np.array([3], _DTYPE).tobytes())
        file.truncate(2 * hole)
    monkeypatch.setattr(entry_windows, "WINDOW_ENTRIES", 1 << 10)
    assert walk_file(path, 2 * hole // 4) == ([1, 2, 3], [(2, hole // 4, Reason.ENTRY)])


def test_a_queue_that_grows_during_the_read_keeps_its_end(path: Path) -> None:
    path.write_bytes(np.array([1, 2, 0, 0], _DTYPE).tobytes())
    grown = np.array([1, 2, 3, 4], _DTYPE)

    def is_sound(start: int, entries: Array) -> Array:
        written = entries > 0
        path.write_bytes(grown.tobytes())  # the broker goes on as soon as it has been looked at
        return written

    wanted = EntryRange(_DTYPE, 0, 16, 16, 0, is_sound, "a number above 0")
    with closing(LocalFile(str(path))) as file:
        windows = list(walk_entries(file, wanted))
    assert not [bad for window in windows for bad in window.bad]
    values = [value for window in windows for value in window.entries.tolist() if value]
    assert values == [1, 2, 3, 4][: len(values)]
