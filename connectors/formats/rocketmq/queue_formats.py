"""Description of RocketMQ's ConsumeQueues, for `connectors.reading.index_lookups`."""

from __future__ import annotations

import re

from commitlake.connectors.log_format.queues import AFTER_ALL, BEFORE_ALL, QueueFormat
from commitlake.schemas.layouts.rocketmq.commitlog import MIN_RECORD_SIZE
from commitlake.schemas.layouts.rocketmq.consumequeue import ENTRY, PRE_BLANK, parse_entry


def _place_of(data: bytes) -> int:
    """Return the sort key of an entry: filler comes first, and entries that the broker rejects last."""
    if len(data) < ENTRY.size:
        return AFTER_ALL
    entry = parse_entry(data)
    if entry == PRE_BLANK:
        return BEFORE_ALL
    return entry.physical_offset if entry.is_valid else AFTER_ALL


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
