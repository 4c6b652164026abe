"""Inner batches: one record that holds several messages of a topic with `queue.type=BatchCQ` (5.x).

The broker stores the body of a producer's batch as it came (see `schemas.remoting.batch`) and sets the flags
INNER_BATCH and NEED_UNWRAP; the client unwraps it. Two properties say which numbers the messages have in their queue:
INNER_BASE is the first, INNER_NUM how many there are. Other records of such a topic hold one message. Source:
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
"""INNER_NUM is an int16 in Java and in a queue's entry."""
QUEUE_TYPE = "queue.type"
BATCH_QUEUE_TYPE = "BatchCQ"
SIMPLE_QUEUE_TYPE = "SimpleCQ"


def has_batch_queues(attributes: Any) -> bool:
    """Return whether a topic's attributes, as in topics.json, say that its queues are BatchConsumeQueues."""
    return isinstance(attributes, Mapping) and attributes.get(QUEUE_TYPE) == BATCH_QUEUE_TYPE


def queue_numbers(properties: Mapping[str, str], queue_offset: int) -> tuple[int, int]:
    """Return the queue offset of a record's first message, and how many messages it holds.

    Args:
        properties: the record's.
        queue_offset: the record's own field, which counts where the properties do not say both.
    """
    base = parse_int(properties.get(INNER_BASE), 0, MAX_QUEUE_OFFSET)
    count = parse_int(properties.get(INNER_NUM), 1, MAX_INNER_MESSAGES)
    return (queue_offset, 1) if base is None or count is None else (base, count)
