"""Interface of a log format's compiled loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from commitlake.connectors.numpy_arrays import Array
from commitlake.schemas.layouts.rocketmq.scan import Fault


class WalkArguments(NamedTuple):
    """Arguments of `walk_records`, which locates records in a window: the window and the limits of the read."""

    window: Array
    length: int
    origin: int
    limit: int
    segment_end: int
    file_end: int
    max_record_bytes: int
    verify: bool


@dataclass(frozen=True, slots=True)
class BadRange:
    """Range of physical offsets without an intact record."""

    start: int
    end: int
    fault: Fault


@dataclass(frozen=True)
class FormatKernel:
    """Compiled loops of a format, for code that reads many records.

    Attributes:
        hop: walks from record to record; it is `kernel.record_walk.walk_records` with the first argument bound.
        find_border: finds a position that is certainly the start of a record; it is
            `kernel.record_starts.find_record_start` with
            the first argument bound.
        part_count: rows of `parts`.
        texts: rows of `parts` with the position and the length of each text that may be missing on the disk although
            the record's sizes are there.
        store_times: returns the store times of records in a window, by their parts, in ms.
        queue_ids: returns the queue ids of these records.
        queue_offsets: returns the queue offsets of these records.
        decoder: finds and decodes the records of a split; a `reading.decoding.decoder.Decoder`.
    """

    hop: Callable[..., None]
    find_border: Callable[..., int]
    part_count: int
    texts: tuple[tuple[int, int], ...]
    store_times: Callable[[Array, Array], Array]
    queue_ids: Callable[[Array, Array], Array]
    queue_offsets: Callable[[Array, Array], Array]
    decoder: type[Any]
