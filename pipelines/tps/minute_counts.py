"""Sums rows of `topic_minutes` by group and window while they are read, and finds the busiest minute of each group.

Each group and window is a cell of an array, to which rows are added.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.tps.minute_rows import Key, MinuteRows, read_minute_rows
from commitlake.pipelines.tps.rates_query import MINUTE, SUMS, RatesQuestion

MAX_PEAK_CELLS = 1 << 25
"""Largest number of cells (groups times minutes, 8 bytes each) for finding peaks; longer times are read in parts."""
_MAX_DENSE_CELLS = 1 << 16
CheckCells = Callable[[int], None]
Peaks = dict[Key, tuple[int, datetime.datetime]]


class _SumsByGroupAndWindow:
    """Array of sums by group and time window, which grows when a new group is added.

    Args:
        layers: number of sums of each cell.
        windows: number of windows.
        check: called with the number of cells; may raise an error.
    """

    def __init__(self, layers: int, windows: int, check: CheckCells) -> None:
        self.places: dict[Key, int] = {}
        self.windows = windows
        self.numbers: Array = np.zeros((layers, 0, windows), np.int64)
        self._check = check

    def group_indexes(self, keys: Sequence[Key]) -> Array:
        """Return the index of each group in the array, after adding groups that are new."""
        found = np.array([self.places.setdefault(key, len(self.places)) for key in keys], np.int64)
        if len(self.places) > self.numbers.shape[1]:
            self._check(len(self.places) * self.windows)
            larger = np.zeros((len(self.numbers), 2 * len(self.places), self.windows), np.int64)
            larger[:, : self.numbers.shape[1]] = self.numbers
            self.numbers = larger
        return found

    def add_to_sums(self, sum_index: int, cells: Array, values: Array) -> None:
        """Add values to the cells of one sum, where a cell is a group's time window.

        A cell's index is its group's index times the number of windows, plus its window.
        """
        np.add.at(self.numbers[sum_index].reshape(-1), cells, values)


def sum_windows(
    lake: Lake, question: RatesQuestion, step: datetime.timedelta, check_cell_count: CheckCells
) -> dict[Key, Array]:
    """Return, for each group, an array with a row for each of `SUMS` and a column for each time window.

    Args:
        question: a question whose start is a multiple of `step` since 1970, in whole minutes.
        step: length of a window.
        check_cell_count: called with the number of cells; may raise an error.
    """
    cells = _SumsByGroupAndWindow(len(SUMS), -((question.start - question.end) // step), check_cell_count)
    read_minute_rows(lake, question, SUMS, lambda rows: _add_rows_to_sums(cells, rows, step // MINUTE))
    return {key: cells.numbers[:, place] for key, place in cells.places.items()}


def sum_whole_range(
    lake: Lake, question: RatesQuestion, check_cell_count: CheckCells
) -> tuple[dict[Key, Array], Peaks]:
    """Return the sums of each group over the whole time range, and the busiest minute of each group.

    Args:
        check_cell_count: called with the number of groups; may raise an error.

    Returns:
        Sums by group; and by group, the number of messages of its busiest minute and that minute, the first if equal.
    """
    minutes = (question.end - question.start) // MINUTE
    sums = _SumsByGroupAndWindow(len(SUMS), 1, check_cell_count)
    finder: _SumsByGroupAndWindow | None = _SumsByGroupAndWindow(1, minutes, lambda _: None)

    def add_minute_rows(rows: MinuteRows) -> None:
        nonlocal finder
        _add_rows_to_sums(sums, rows, minutes)
        if finder is not None and len(finder.places.keys() | set(rows.keys)) * minutes > MAX_PEAK_CELLS:
            finder = None
        if finder is not None:
            _add_rows_to_minutes(finder, rows)

    read_minute_rows(lake, question, SUMS, add_minute_rows)
    found = {key: sums.numbers[:, place, 0] for key, place in sums.places.items()}
    peaks = (
        _find_busiest_minutes_in_parts(lake, question, len(found))
        if finder is None
        else _find_busiest_minutes(finder, question.start)
    )
    return found, peaks


def _find_busiest_minutes_in_parts(lake: Lake, question: RatesQuestion, groups: int) -> Peaks:
    """Find each group's busiest minute, reading one part of the time range at a time to limit memory."""
    peaks: Peaks = {}
    length = max(1, MAX_PEAK_CELLS // groups) * MINUTE
    start = question.start
    while start < question.end:
        part = replace(question, start=start, end=min(start + length, question.end))
        finder = _SumsByGroupAndWindow(1, (part.end - part.start) // MINUTE, lambda _: None)
        read_minute_rows(lake, part, ["messages"], partial(_add_rows_to_minutes, finder))
        for key, (most, minute) in _find_busiest_minutes(finder, part.start).items():
            if key not in peaks or most > peaks[key][0]:
                peaks[key] = most, minute
        start = part.end
    return peaks


def _add_rows_to_sums(cells: _SumsByGroupAndWindow, rows: MinuteRows, window_minutes: int) -> None:
    """Add rows to the sums of time windows that are `window_minutes` minutes long."""
    windows = rows.minutes // window_minutes
    first, last = int(windows.min()), int(windows.max())
    width = last - first + 1
    places = cells.group_indexes(rows.keys)
    if len(rows.keys) * width > _MAX_DENSE_CELLS:
        numbers = places[rows.groups] * cells.windows + windows
        for layer, name in enumerate(SUMS):
            if len(rows.sums[name]):
                cells.add_to_sums(layer, numbers, rows.sums[name])
        return
    # If there are few cells, rows are summed by cell first, because most rows share a cell with others.
    near = rows.groups * width + (windows - first)
    numbers = (places[:, None] * cells.windows + np.arange(first, last + 1)).reshape(-1)
    for layer, name in enumerate(SUMS):
        if len(rows.sums[name]) and rows.sums[name].any():
            summed = np.zeros(len(numbers), np.int64)
            np.add.at(summed, near, rows.sums[name])
            cells.add_to_sums(layer, numbers, summed)


def _add_rows_to_minutes(minute_cells: _SumsByGroupAndWindow, rows: MinuteRows) -> None:
    places = minute_cells.group_indexes(rows.keys)
    minute_cells.add_to_sums(0, places[rows.groups] * minute_cells.windows + rows.minutes, rows.sums["messages"])


def _find_busiest_minutes(minute_cells: _SumsByGroupAndWindow, start: datetime.datetime) -> Peaks:
    peaks = {}
    for key, place in minute_cells.places.items():
        counts = minute_cells.numbers[0, place]
        minute = int(counts.argmax())
        peaks[key] = int(counts[minute]), start + minute * MINUTE
    return peaks
