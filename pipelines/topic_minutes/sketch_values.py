"""Reads the values of KLL sketches that still contain all of them, many sketches at once.

A sketch of up to k values consists of a header and its values, see `kernel.write_small_sketches`. Most sketches in
`topic_minutes` are that small. Adding their values to another sketch is several times faster than calling the library
for each sketch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from commitlake.connectors.arrays import Array
from commitlake.connectors.plain_arrays import mask_of

_WORD = 8
_START = np.uint64(0xFF_FFFF)  # preamble length, version and family
_MANY, _SINGLE = np.uint64(0x0F_0105), np.uint64(0x0F_0202)
_SINGLE_FLAG = np.uint64(0x0400_0000)
_MANY_HEADER, _SINGLE_HEADER = 5, 1  # words
_LEVELS_SHIFT, _LEVELS = np.uint64(16), np.uint64(0xFF)


@dataclass(frozen=True, slots=True)
class SketchValues:
    """Values of sketches.

    Attributes:
        values: doubles, sketch by sketch.
        counts: number of values of each sketch; 0 for one that is null or empty, and for those in `others`.
        others: indexes of sketches that do not contain all of their values, or not in the usual form.
    """

    values: Array
    counts: Array
    others: Array


def values_of(sketches: pa.Array) -> SketchValues:
    """Return the values of sketches.

    Args:
        sketches: binary array of sketches as the library serializes them.
    """
    sizes, data, first = _parts(sketches)
    odd = sizes % _WORD != 0
    if odd.any():  # the words of the others would not begin at multiples of eight
        plain = values_of(sketches.filter(mask_of(~odd)))
        counts = np.zeros(len(sizes), np.int64)
        counts[~odd] = plain.counts
        others = np.concatenate([np.flatnonzero(odd), np.flatnonzero(~odd)[plain.others]])
        return SketchValues(plain.values, counts, np.sort(others))
    lengths = sizes // _WORD
    words = np.frombuffer(data, np.dtype("<u8"), int(lengths.sum()), first) if lengths.any() else np.zeros(0, np.uint64)
    starts = np.cumsum(lengths) - lengths
    there = np.flatnonzero(lengths)
    is_single, is_many = _forms(words, starts[there], lengths[there])
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


def _parts(sketches: pa.Array) -> tuple[Array, pa.Buffer, int]:
    """Return the size of each sketch in bytes (0 for null), the data, and the position of the first sketch in it."""
    _, offsets, data = sketches.buffers()
    if not len(sketches):
        return np.zeros(0, np.int64), pa.py_buffer(b""), 0
    ends = np.frombuffer(offsets, np.int32)[sketches.offset : sketches.offset + len(sketches) + 1].astype(np.int64)
    return np.diff(ends), data or pa.py_buffer(b""), int(ends[0])


def _forms(words: Array, starts: Array, lengths: Array) -> tuple[Array, Array]:
    """Return two masks: sketches of one value, and sketches that still hold all of their values."""
    first = words[starts]
    is_single = (first & _START == _SINGLE) & (first & _SINGLE_FLAG != 0) & (lengths == _SINGLE_HEADER + 1)
    is_many = (first & _START == _MANY) & (lengths > _MANY_HEADER)
    long = np.flatnonzero(is_many)
    counts, levels = words[starts[long] + 1], words[starts[long] + 2] >> _LEVELS_SHIFT & _LEVELS
    is_many[long] = (levels == 1) & (counts == (lengths[long] - _MANY_HEADER).astype(np.uint64))
    return is_single, is_many
