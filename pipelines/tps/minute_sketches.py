"""Merges the sketches of `topic_minutes` by group and window while its rows are read."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from datasketches import kll_doubles_sketch

from commitlake.connectors.arrays import Array
from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.topic_minutes.sketch_values import values_of
from commitlake.pipelines.tps.minute_rows import Key, MinuteRows, read_minute_rows
from commitlake.pipelines.tps.question import MINUTE, RatesQuestion

SKETCH_K = 400
"""`SKETCH_K` of `schemas.tables.topic_minutes`, which imports PySpark: that takes longer than many a question."""
Merged = dict[tuple[Key, int], dict[str, kll_doubles_sketch]]
"""By group and number of the window, the sketch of each column; columns without values are left out."""


def merge_minutes(lake: Lake, question: RatesQuestion, step: datetime.timedelta, columns: Sequence[str]) -> Merged:
    """Merge the sketches of each group and window.

    Args:
        step: length of a window; windows are numbered from the question's start.
        columns: names of the columns of sketches.
    """
    merged: Merged = {}

    def add(rows: MinuteRows) -> None:
        keys, cells = _cells(rows, step // MINUTE)
        for column in columns:
            _add_column(merged, keys, cells, column, rows.sketches[column])

    read_minute_rows(lake, question, [], add, sketches=columns)
    return merged


def _cells(rows: MinuteRows, minutes: int) -> tuple[list[tuple[Key, int]], Array]:
    """Return each pair of group and window that has rows, and for each row the index of its pair."""
    windows = rows.minutes // minutes
    width = int(windows.max()) + 1
    numbers, cells = np.unique(rows.groups * width + windows, return_inverse=True)
    return [(rows.keys[number // width], number % width) for number in numbers.tolist()], cells


def _add_column(merged: Merged, keys: Sequence[tuple[Key, int]], cells: Array, column: str, sketches: pa.Array) -> None:
    found = values_of(sketches)
    owners = np.repeat(cells, found.counts)
    values = found.values
    if (np.diff(owners) < 0).any():
        # There are at most as many cells as rows in a batch; numpy sorts numbers of two bytes by their digits.
        order = np.argsort(owners.astype(np.uint16) if len(keys) <= 1 << 16 else owners, kind="stable")
        owners, values = owners[order], values[order]
    bounds = np.append(np.flatnonzero(np.diff(owners, prepend=-1)), len(owners))
    for start, end in pairwise(bounds.tolist()):
        _sketch(merged, keys[owners[start]], column).update(values[start:end])
    for row in found.others.tolist():
        sketch = kll_doubles_sketch.deserialize(sketches[row].as_py())
        if not sketch.is_empty():
            _sketch(merged, keys[cells[row]], column).merge(sketch)


def _sketch(merged: Merged, key: tuple[Key, int], column: str) -> kll_doubles_sketch:
    sketches = merged.setdefault(key, {})
    if column not in sketches:
        sketches[column] = kll_doubles_sketch(SKETCH_K)
    return sketches[column]
