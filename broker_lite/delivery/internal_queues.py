"""Reading of the broker's internal queues: delayed messages, half messages, and decisions about half messages.

A record in these queues may be damaged, or deleted with its segment because the disk was full. It is skipped, so that
the other records are still processed.

A broker writes REAL_TOPIC and REAL_QID itself, after checking both. A record in a store's files may contain anything;
it must not be delivered to the broker's internal topics, or create queues that its topic does not have.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from commitlake.broker_lite.stores.engine.topic_names import is_broker_topic, is_valid_topic
from commitlake.broker_lite.stores.rocketmq import MAX_QUEUES, MessageStore
from commitlake.schemas.errors import CommitLakeError
from commitlake.schemas.layouts.integer_parsing import parse_int32
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.commitlog import Message

_SHOWN_CHARACTERS = 80
_logger = logging.getLogger(__name__)


def read_intact_message(store: MessageStore, topic: str, queue_id: int, queue_offset: int) -> Message | None:
    """Return a message of an internal queue; log an error and return None if the log has no intact record of it.

    Args:
        store: store of the queue.
        topic: topic of the queue.
        queue_offset: queue offset of the message.
    """
    entry = store.entry_at(topic, queue_id, queue_offset)
    message = store.get_at(entry.physical_offset) if entry else None
    if message is None:
        place = f"at {entry.physical_offset} of the log" if entry else "in its queue"
        _logger.error(
            "message %d of %s/%d is skipped: expected an intact record %s", queue_offset, topic, queue_id, place
        )
    return message


def remaining_queue_offsets(store: MessageStore, topic: str, queue_id: int, first_offset: int) -> range:
    """Return a queue's offsets from `first_offset` to its end, or from its first message that has not expired."""
    return range(max(first_offset, store.min_offset(topic, queue_id)), store.max_offset(topic, queue_id))


def read_intact_messages(
    store: MessageStore, topic: str, queue_id: int, first_offset: int
) -> Iterator[tuple[int, Message | None]]:
    """Yield a queue's offsets from `first_offset` on, each with its message, or None if that is missing or damaged."""
    for each in remaining_queue_offsets(store, topic, queue_id, first_offset):
        yield each, read_intact_message(store, topic, queue_id, each)


class TargetError(CommitLakeError, ValueError):
    """Error for a delayed record whose properties do not name a valid topic and queue for delivery."""


def parse_delivery_target(store: MessageStore, properties: Mapping[str, str]) -> tuple[str, int]:
    """Return the topic and queue to which a delayed message must be delivered.

    A topic may have fewer queues than when the message was sent: then the message goes to one of its current queues.

    Args:
        store: store with the topics.
        properties: properties of the parked record.

    Raises:
        TargetError: if a property is missing, or names an internal topic or an impossible queue.
    """
    topic = properties.get(props.REAL_TOPIC, "")
    if not is_valid_topic(topic) or is_broker_topic(topic):
        raise TargetError(f"{props.REAL_TOPIC}: expected a topic to which producers may send, found {_shorten(topic)}")
    text = properties.get(props.REAL_QID, "")
    queue_id = parse_int32(text)
    queues = store.config.topics.queue_count(topic)
    if queue_id is None or not 0 <= queue_id < max(queues, MAX_QUEUES):
        raise TargetError(f"{props.REAL_QID}: expected the number of a queue of {topic}, found {_shorten(text)}")
    if queues and queue_id >= queues:
        _logger.warning("%s has only %d queues: a message for queue %d goes to another queue", topic, queues, queue_id)
        queue_id %= queues
    return topic, queue_id


def _shorten(text: str) -> str:
    return repr(text[:_SHOWN_CHARACTERS])
