"""Compiled loops of a log format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from commitlake.connectors.arrays import Array
from commitlake.connectors.reading.files.segment_files import Window
from commitlake.connectors.reading.files.windows import numbers_at
from commitlake.connectors.reading.kernel.hop import START
from commitlake.connectors.reading.queue_format import QueueFormat
from commitlake.schemas.layouts.base import Layout

if TYPE_CHECKING:
    from commitlake.connectors.reading.decoding.decoder import Decoder


@dataclass(frozen=True)
class FormatKernel:
    """Interface of a format for code that reads many records.

    Attributes:
        hop: walks from record to record; it is `kernel.hop.hop` with the first argument bound.
        find_border: finds a proven start of a record; it is `kernel.borders.find_border` with the first argument bound.
        part_count: rows of `parts`.
        texts: rows of `parts` with the position and the length of each text that may be missing on the disk although
            the record's sizes are there.
        store_times: returns the store times of records in a window, by their parts, in ms.
        queue_ids: returns the queue ids of these records.
        queue_offsets: returns the queue offsets of these records.
        decoder: finds and decodes the records of a split.
        queues: the queues of the format.
    """

    hop: Callable[..., None]
    find_border: Callable[..., int]
    part_count: int
    texts: tuple[tuple[int, int], ...]
    store_times: Callable[[Window, Array], Array]
    queue_ids: Callable[[Window, Array], Array]
    queue_offsets: Callable[[Window, Array], Array]
    decoder: type[Decoder]
    queues: QueueFormat


def head_field(head: Layout, name: str) -> Callable[[Window, Array], Array]:
    """Return a function that reads a number in the heads of records in a window, by their parts."""
    return partial(_numbers_in_heads, head.offset_of(name), dict(head.numpy_fields)[name])


def _numbers_in_heads(offset: int, code: str, window: Window, parts: Array) -> Array:
    return numbers_at(window, parts[START] + offset, code)
