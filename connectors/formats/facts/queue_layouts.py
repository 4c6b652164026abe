"""Description of a format's queues, for code that processes many entries at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.facts.entries import QueueEntries


@dataclass(frozen=True)
class QueueLayout:
    """Queues of a format, of one type.

    Attributes:
        folder: the folder of the queues, beside the log.
        topics: names of topics that have queues; None if every topic has.
        dtype: the dtype of an entry; it has the fields `physical_offset` and `size`, whatever the layout calls them.
        code_field: the field that is derived from a record's properties; None if there is none.
        default_file_size: size of a file, bytes.
        is_aligned: whether the name of each file is a multiple of the file size. Otherwise the name of the first file
            is a multiple of the entry size, and the others follow it.
        is_written: returns which entries a broker takes for written; the first other entry ends the queue.
        is_filler: returns which entries stand for no message.
        refuses_other_names: whether a broker refuses a queue with a file whose name is not a number.
        fills_gaps: whether fillers stand for every message that the log has lost; else only before the first message.
        to_entries: converts columns to entries.
        words: describes an entry in words.
    """

    folder: str
    topics: re.Pattern[str] | None
    dtype: np.dtype[Any]
    code_field: str | None
    default_file_size: int
    is_aligned: bool
    is_written: Callable[[Array], Array]
    is_filler: Callable[[Array], Array]
    refuses_other_names: bool
    fills_gaps: bool
    to_entries: Callable[[QueueEntries], Array]
    words: Callable[[Any], str]

    @property
    def entry_size(self) -> int:
        """Size of an entry in bytes."""
        return self.dtype.itemsize

    def has_queues(self, topic: str) -> bool:
        """Return whether a topic of this name has queues; records of other topics are only in the log."""
        return self.topics is None or self.topics.fullmatch(topic) is not None

    def is_loose(self, entries: Array) -> Array:
        """Return which entries point to a record, although the log has none with their offsets."""
        written = self.is_written(entries)
        return written & ~self.is_filler(entries) if self.fills_gaps else written

    def is_empty(self, entries: Array) -> Array:
        """Return which entries point to no record: zeros, and entries without a message."""
        any_bytes = entries.view(np.uint8).reshape(len(entries), self.entry_size).any(axis=1)
        empty: Array = ~any_bytes | self.is_filler(entries)
        return empty
