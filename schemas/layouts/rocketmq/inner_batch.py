"""Inner batches: records that contain several messages of a topic with `queue.type=BatchCQ` (5.x).

The broker stores the body of a producer's batch unchanged (see `schemas.remoting.batch`) and sets the flags INNER_BATCH
and NEED_UNWRAP; the client unwraps it. Two properties contain the offsets of the messages in their queue: INNER_BASE is
the first, INNER_NUM their number. Other records of such a topic contain one message. Source:
SendMessageProcessor.sendBatchMessage, BatchConsumeQueue.assignQueueOffset, CommitLog.setBatchSizeIfNeeded (5.5.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commitlake.schemas.layouts.numbers import parse_int
from commitlake.schemas.layouts.segments import MAX_QUEUE_OFFSET

INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
MAX_INNER_MESSAGES = 32_767
"""Limit of INNER_NUM, which is an int16 in Java and in a queue's entry."""
QUEUE_TYPE = "queue.type"
BATCH_QUEUE_TYPE = "BatchCQ"
SIMPLE_QUEUE_TYPE = "SimpleCQ"


def has_batch_queues(attributes: Any) -> bool:
    """Return whether a topic's attributes in topics.json select BatchConsumeQueues."""
    return isinstance(attributes, Mapping) and attributes.get(QUEUE_TYPE) == BATCH_QUEUE_TYPE


def queue_numbers(properties: Mapping[str, str], queue_offset: int) -> tuple[int, int]:
    """Return the queue offset of a record's first message, and the number of its messages.

    Args:
        properties: properties of the record.
        queue_offset: field of the record, which counts if the properties are incomplete.
    """
    base = parse_int(properties.get(INNER_BASE), 0, MAX_QUEUE_OFFSET)
    count = parse_int(properties.get(INNER_NUM), 1, MAX_INNER_MESSAGES)
    return (queue_offset, 1) if base is None or count is None else (base, count)
