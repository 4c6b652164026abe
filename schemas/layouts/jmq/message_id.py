"""Id of a JMQ message, `topic/queue/queueOffset@broker`, which is not stored in records."""

from __future__ import annotations

from typing import NamedTuple

from commitlake.schemas.layouts.errors import LayoutError, UnserializableError
from commitlake.schemas.layouts.jmq.journal import MAX_QUEUE_ID
from commitlake.schemas.layouts.numbers import parse_int

_MAX_QUEUE_OFFSET = (1 << 64) - 1


class MessagePlace(NamedTuple):
    """Position of a message that its id contains."""

    topic: str
    queue_id: int
    queue_offset: int
    broker: str


def serialize_message_id(place: MessagePlace) -> str:
    """Format an id.

    Raises:
        UnserializableError: if the broker's name contains an `@`.
    """
    if "@" in place.broker:
        raise UnserializableError("broker", "a name without @", repr(place.broker))
    return f"{place.topic}/{place.queue_id}/{place.queue_offset}@{place.broker}"


def parse_message_id(text: str) -> MessagePlace:
    """Parse an id; its topic may contain any character.

    Raises:
        LayoutError: if the text is not a message id.
    """
    place, at, broker = text.rpartition("@")
    parts = place.rsplit("/", 2)
    if not at or not broker or len(parts) != 3 or not parts[0]:
        raise LayoutError("message_id", 0, "topic/queue/queueOffset@broker", repr(text[:100]))
    topic, queue_id, queue_offset = parts[0], _number(parts[1]), _number(parts[2])
    if queue_id is None or queue_offset is None or queue_id > MAX_QUEUE_ID:
        raise LayoutError("message_id", 0, f"a queue from 0 to {MAX_QUEUE_ID} and a number in it", repr(text[:100]))
    return MessagePlace(topic, queue_id, queue_offset, broker)


def _number(text: str) -> int | None:
    """Return a number in an id, which has no sign and no leading zeros, or None."""
    number = parse_int(text, 0, _MAX_QUEUE_OFFSET)
    return number if str(number) == text else None
