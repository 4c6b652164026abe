"""Ranges of a segment without a record: fillers between records, and a BLANK up to the end of the segment.

A range smaller than the smallest filler cannot be filled, so the record after it is left out as well. The log of a
broker has no such range; rows that no broker wrote, or a wrong segment size, can lead to one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from commitlake.connectors.arrays import Array
from commitlake.pipelines.salvage.fillers import MIN_FILLER_BYTES, fillers
from commitlake.schemas.layouts.rocketmq.commitlog import END_RESERVE, serialize_blank


class Stretch(NamedTuple):
    """A range without a record, between two records or before the first.

    Attributes:
        start: physical offset.
        end: offset after it.
        time: store time of its fillers, ms.
    """

    start: int
    end: int
    time: int


def keep_fitting(starts: Array, ends: Array, base: int, end: int, *, is_closed: bool) -> Array:
    """Return which records can stay, because the gaps between them and at the segment's end fit a filler or BLANK.

    Args:
        starts: physical offsets, in order.
        ends: offset after each record.
        base: physical offset of the start of the segment.
        end: offset after the end of the segment.
        is_closed: true if a BLANK follows the last record.
    """
    kept = np.ones(len(starts), bool)
    reached = np.concatenate([[base], ends[:-1]])
    small = (starts > reached) & (starts - reached < MIN_FILLER_BYTES)
    for row in np.flatnonzero(small).tolist():
        before = np.flatnonzero(kept[:row])
        reaches = int(ends[before[-1]]) if len(before) else base
        if starts[row] - reaches < MIN_FILLER_BYTES:
            kept[row] = False
    last = np.flatnonzero(kept)
    if is_closed and len(last) and end - ends[last[-1]] < END_RESERVE:
        kept[last[-1]] = False
    return kept


def stretches(starts: Array, ends: Array, times: Array, base: int) -> list[Stretch]:
    """Return the ranges between records, and the one before the first record."""
    if not len(starts):
        return []
    reached = np.concatenate([[base], ends[:-1]])
    found = []
    for row in np.flatnonzero(starts > reached).tolist():
        time = int(times[max(0, row - 1)])  # brokers search records by time
        found.append(Stretch(int(reached[row]), int(starts[row]), time))
    return found


def fill(out: Array, base: int, stretch: Stretch) -> None:
    """Fill a range with fillers, in the segment that begins at physical offset `base`."""
    at = stretch.start - base
    for record in fillers(stretch.start, stretch.end - stretch.start, stretch.time):
        out[at : at + len(record)] = np.frombuffer(record, np.uint8)
        at += len(record)


def close(out: Array, at: int) -> None:
    """Write a BLANK from a position to the end of the segment, where the file has zeros."""
    blank = serialize_blank(len(out) - at)
    out[at : at + len(blank)] = np.frombuffer(blank, np.uint8)


def empty_segment(base: int, size: int, time: int) -> bytes:
    """Return the first bytes of a segment without a record: a filler, because brokers expect a record, and a BLANK."""
    first = next(fillers(base, MIN_FILLER_BYTES, time))
    return first + serialize_blank(size - len(first))
