"""Description of a format's queues, for `queue_index`."""

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
        name: what a plan calls them.
        folder: where they lie, beside the log.
        entry: one message of a queue.
        offset_field: the entry's field that says where its record begins; `size` says how many bytes it has.
        place_of: where an entry's bytes sort: the offset that it has, BEFORE_ALL or AFTER_ALL.
        min_record_size: what a size is at least.
        topics: names that a broker gives to topics.
        no_queues: how names of folders begin that hold no queue of their own.
    """

    name: str
    folder: str
    entry: Layout
    offset_field: str
    place_of: Callable[[bytes], int]
    min_record_size: int
    topics: re.Pattern[str]
    no_queues: str | None = None
