"""Readers for the broker's internal queues: delayed messages, half messages and their outcomes.

A record in them may be damaged, or deleted with its segment because the disk was full. It is skipped, so that the other
records are still processed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.schemas.layouts.rocketmq.commitlog import Message

_logger = logging.getLogger(__name__)


def intact_message(store: MessageStore, topic: str, queue_id: int, number: int) -> Message | None:
    """Return a message of a queue; if the log has no intact record of it, log an error and return None.

    Args:
        store: store of the queue.
        topic: topic of the queue.
        number: queue offset of the message.
    """
    entry = store.entry_at(topic, queue_id, number)
    message = store.get_at(entry.physical_offset) if entry else None
    if message is None:
        place = f"at {entry.physical_offset} of the log" if entry else "in its queue"
        _logger.error("message %d of %s/%d is skipped: expected an intact record %s", number, topic, queue_id, place)
    return message


def numbers_from(store: MessageStore, topic: str, queue_id: int, number: int) -> range:
    """Return the queue offsets from `number` to the end of a queue, without expired messages."""
    return range(max(number, store.min_offset(topic, queue_id)), store.max_offset(topic, queue_id))


def intact_messages(
    store: MessageStore, topic: str, queue_id: int, number: int
) -> Iterator[tuple[int, Message | None]]:
    """Yield the queue offsets and messages of a queue from `number` on; see `intact_message`."""
    for each in numbers_from(store, topic, queue_id, number):
        yield each, intact_message(store, topic, queue_id, each)
