"""Reading the queues that the broker keeps for itself: what waits, what is undecided, what was decided.

A record in them may be damaged, or have gone with its segment from a disk that was too full. The others must not wait
for it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.schemas.layouts.rocketmq.commitlog import Message

_logger = logging.getLogger(__name__)


def whole_message(store: MessageStore, topic: str, queue_id: int, number: int) -> Message | None:
    """A message of a queue; None where the log has no whole record of it, which is told in our own log.

    Args:
        store: where the queue is.
        topic: the queue's.
        queue_id: the queue's.
        number: the message's, in the queue.
    """
    entry = store.entry_at(topic, queue_id, number)
    message = store.get_at(entry.physical_offset) if entry else None
    if message is None:
        place = f"at {entry.physical_offset} of the log" if entry else "in its queue"
        _logger.error("message %d of %s/%d is left out: expected a whole record %s", number, topic, queue_id, place)
    return message


def numbers_from(store: MessageStore, topic: str, queue_id: int, number: int) -> range:
    """The numbers of the messages that a queue has now, from one on; those that have expired are not among them."""
    return range(max(number, store.min_offset(topic, queue_id)), store.max_offset(topic, queue_id))


def whole_messages(store: MessageStore, topic: str, queue_id: int, number: int) -> Iterator[tuple[int, Message | None]]:
    """Numbers and messages of what a queue has now, from a number on; see `whole_message`."""
    for each in numbers_from(store, topic, queue_id, number):
        yield each, whole_message(store, topic, queue_id, each)
