"""Merges the sketches of `topic_minutes` by group and window while its rows are read.

A KLL sketch of up to k values consists of a header and its values, and most sketches in `topic_minutes` are that small.
The values of many of them are read at once. Adding them to another sketch is several times faster than calling the
library for each sketch.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from datasketches import kll_doubles_sketch

from commitlake.connectors.arrays_without_pandas import to_boolean_array
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.tps.minute_rows import Key, MinuteRows, read_minute_rows
from commitlake.pipelines.tps.rates_query import MINUTE, RatesQuestion
from commitlake.schemas.tables.topic_minutes import SKETCH_K

Merged = dict[tuple[Key, int], dict[str, kll_doubles_sketch]]
"""By group and number of the window, the sketch of each column; columns without values are left out."""
_WORD = 8
_START = np.uint64(0xFF_FFFF)  # preamble length, version and family
_MANY, _SINGLE = np.uint64(0x0F_0105), np.uint64(0x0F_0202)
_SINGLE_FLAG = np.uint64(0x0400_0000)
_MANY_HEADER, _SINGLE_HEADER = 5, 1  # words
_LEVELS_SHIFT, _LEVELS = np.uint64(16), np.uint64(0xFF)


def merge_minute_sketches(
    lake: Lake, question: RatesQuestion, step: datetime.timedelta, columns: Sequence[str]
) -> Merged:
    """Merge the sketches of all minutes in each group and time window.

    Args:
        step: length of a window; windows are numbered from the question's start.
        columns: names of the columns of sketches.
    """
    merged: Merged = {}

    def add_sketches_of_rows(rows: MinuteRows) -> None:
        keys, cells = _group_window_pairs(rows, step // MINUTE)
        for column in columns:
            _merge_column_sketches(merged, keys, cells, column, rows.sketches[column])

    read_minute_rows(lake, question, [], add_sketches_of_rows, sketch_columns=columns)
    return merged


def _group_window_pairs(rows: MinuteRows, minutes: int) -> tuple[list[tuple[Key, int]], Array]:
    """Return each pair of group and window that has rows, and for each row the index of its pair."""
    windows = rows.minutes // minutes
    width = int(windows.max()) + 1
    numbers, cells = np.unique(rows.groups * width + windows, return_inverse=True)
    return [(rows.keys[number // width], number % width) for number in numbers.tolist()], cells


def _merge_column_sketches(
    merged: Merged, keys: Sequence[tuple[Key, int]], pair_indexes: Array, column: str, sketches: pa.Array
) -> None:
    found = extract_sketch_values(sketches)
    owners = np.repeat(pair_indexes, found.counts)
    values = found.values
    if (np.diff(owners) < 0).any():
        # There are at most as many cells as rows in a batch; numpy sorts numbers of two bytes by their digits.
        order = np.argsort(owners.astype(np.uint16) if len(keys) <= 1 << 16 else owners, kind="stable")
        owners, values = owners[order], values[order]
    bounds = np.append(np.flatnonzero(np.diff(owners, prepend=-1)), len(owners))
    for start, end in pairwise(bounds.tolist()):
        _get_or_create_sketch(merged, keys[owners[start]], column).update(values[start:end])
    for row in found.others.tolist():
        sketch = kll_doubles_sketch.deserialize(sketches[row].as_py())
        if not sketch.is_empty():
            _get_or_create_sketch(merged, keys[pair_indexes[row]], column).merge(sketch)


def _get_or_create_sketch(merged: Merged, key: tuple[Key, int], column: str) -> kll_doubles_sketch:
    sketches = merged.setdefault(key, {})
    if column not in sketches:
        sketches[column] = kll_doubles_sketch(SKETCH_K)
    return sketches[column]


@dataclass(frozen=True, slots=True)
class SketchValues:
    """Values in serialized KLL sketches, and the indexes of sketches that no longer contain all of their values.

    Attributes:
        values: doubles, sketch by sketch.
        counts: number of values of each sketch; 0 for one that is null or empty, and for those in `others`.
        others: indexes of sketches that do not contain all of their values, or not in the usual form.
    """

    values: Array
    counts: Array
    others: Array


def extract_sketch_values(sketches: pa.Array) -> SketchValues:
    """Return the values that serialized KLL sketches contain.

    Args:
        sketches: binary array of sketches as the library serializes them.
    """
    sizes, data, first = _sketch_buffers(sketches)
    odd = sizes % _WORD != 0
    if odd.any():  # the words of the others would not begin at multiples of eight
        plain = extract_sketch_values(sketches.filter(to_boolean_array(~odd)))
        counts = np.zeros(len(sizes), np.int64)
        counts[~odd] = plain.counts
        others = np.concatenate([np.flatnonzero(odd), np.flatnonzero(~odd)[plain.others]])
        return SketchValues(plain.values, counts, np.sort(others))
    lengths = sizes // _WORD
    words = np.frombuffer(data, np.dtype("<u8"), int(lengths.sum()), first) if lengths.any() else np.zeros(0, np.uint64)
    starts = np.cumsum(lengths) - lengths
    there = np.flatnonzero(lengths)
    is_single, is_many = _sketch_form_masks(words, starts[there], lengths[there])
    keep = np.ones(len(words), bool)
    keep[starts[there[is_single]]] = False
    for number in range(_MANY_HEADER):
        keep[starts[there[is_many]] + number] = False
    others = there[~is_single & ~is_many]
    for index in others.tolist():
        keep[starts[index] : starts[index] + lengths[index]] = False
    counts = np.zeros(len(lengths), np.int64)
    counts[there[is_single]] = 1
    counts[there[is_many]] = lengths[there[is_many]] - _MANY_HEADER
    return SketchValues(words[keep].view(np.float64), counts, others)


def _sketch_buffers(sketches: pa.Array) -> tuple[Array, pa.Buffer, int]:
    """Return the size of each sketch in bytes (0 for null), the data buffer, and the position of the first sketch."""
    _, offsets, data = sketches.buffers()
    if not len(sketches):
        return np.zeros(0, np.int64), pa.py_buffer(b""), 0
    ends = np.frombuffer(offsets, np.int32)[sketches.offset : sketches.offset + len(sketches) + 1].astype(np.int64)
    return np.diff(ends), data or pa.py_buffer(b""), int(ends[0])


def _sketch_form_masks(words: Array, starts: Array, lengths: Array) -> tuple[Array, Array]:
    """Return masks of the sketches with exactly one value, and of those that contain each of their several values."""
    first = words[starts]
    is_single = (first & _START == _SINGLE) & (first & _SINGLE_FLAG != 0) & (lengths == _SINGLE_HEADER + 1)
    is_many = (first & _START == _MANY) & (lengths > _MANY_HEADER)
    long = np.flatnonzero(is_many)
    counts, levels = words[starts[long] + 1], words[starts[long] + 2] >> _LEVELS_SHIFT & _LEVELS
    is_many[long] = (levels == 1) & (counts == (lengths[long] - _MANY_HEADER).astype(np.uint64))
    return is_single, is_many
