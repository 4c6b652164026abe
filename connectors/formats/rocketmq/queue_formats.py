"""What the queues of a layout are, for `queue_index`; and RocketMQ's."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from commitlake.schemas.layouts.base import Layout
from commitlake.schemas.layouts.rocketmq.commitlog import MIN_RECORD_SIZE
from commitlake.schemas.layouts.rocketmq.consumequeue import ENTRY, PRE_BLANK, parse_entry

BEFORE_ALL, BEHIND_ALL = -1, 1 << 63
"""Where an entry sorts that stands for no record, and where one that ends its queue."""


@dataclass(frozen=True)
class QueueFormat:
    """The queues of a layout.

    Attributes:
        name: what a plan calls them.
        folder: where they lie, beside the log.
        entry: one message of a queue.
        offset_field: the entry's field that says where its record begins; `size` says how many bytes it has.
        place_of: where an entry's bytes sort: the offset that it has, BEFORE_ALL or BEHIND_ALL.
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


def _place_of(data: bytes) -> int:
    """Filler before everything, what the broker would not take behind it."""
    if len(data) < ENTRY.size:
        return BEHIND_ALL
    entry = parse_entry(data)
    if entry == PRE_BLANK:
        return BEFORE_ALL
    return entry.physical_offset if entry.is_valid else BEHIND_ALL


CONSUME_QUEUES = QueueFormat(
    name="ConsumeQueue",
    folder="consumequeue",
    entry=ENTRY,
    offset_field="physical_offset",
    place_of=_place_of,
    min_record_size=MIN_RECORD_SIZE,
    topics=re.compile(r"[%|a-zA-Z0-9_-]+"),
    no_queues="%LMQ%",
)
