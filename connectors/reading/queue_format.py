"""Description of a format's queues, for `index_lookups.QueueIndex`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from commitlake.schemas.layouts.base import Layout

BEFORE_ALL, AFTER_ALL = -1, 1 << 63
"""Sort keys of entries without a record, and of entries that end the queue."""


@dataclass(frozen=True)
class QueueFormat:
    """Queues of a format.

    Attributes:
        name: the name of the queues in a plan.
        folder: their folder, beside the log.
        entry: the layout of an entry.
        offset_field: the entry's field with the physical offset of the record; `size` has the record's size.
        place_of: returns the sort key of an entry's bytes: its offset, BEFORE_ALL or AFTER_ALL.
        min_record_size: the smallest valid size.
        topics: names that a topic can have.
        no_queues: prefix of the names of folders without queues of their own.
    """

    name: str
    folder: str
    entry: Layout
    offset_field: str
    place_of: Callable[[bytes], int]
    min_record_size: int
    topics: re.Pattern[str]
    no_queues: str | None = None
