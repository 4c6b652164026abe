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
        folder: where they lie, beside the log.
        topics: names of topics that have queues; None where every name has.
        dtype: an entry; `physical_offset` and `size` are among its fields, whatever the layout calls them.
        code_field: the field that follows from a record's properties; None where there is none.
        default_file_size: bytes of a file.
        is_aligned: whether the name of each file is a multiple of the files' size. Else that of the first is one of an
            entry's, and the others follow it.
        is_written: which entries a broker takes for written; the first that it does not ends the queue.
        is_filler: which of them stand for no message.
        refuses_other_names: whether a broker stops at a file among a queue's whose name is not a number.
        fills_gaps: whether these stand wherever the log has lost a message; else only before the first one.
        to_entries: columns as entries.
        words: an entry, in words.
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
