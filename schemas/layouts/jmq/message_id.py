"""The id of a JMQ message, which no record stores: `topic/queue/queueOffset@broker`."""

from __future__ import annotations

from typing import NamedTuple

from commitlake.schemas.layouts.errors import LayoutError, UnserializableError
from commitlake.schemas.layouts.jmq.journal import MAX_QUEUE_ID
from commitlake.schemas.layouts.numbers import parse_int

_MAX_QUEUE_OFFSET = (1 << 64) - 1


class MessagePlace(NamedTuple):
    """What an id says."""

    topic: str
    queue_id: int
    queue_offset: int
    broker: str


def serialize_message_id(place: MessagePlace) -> str:
    """The id as text.

    Raises:
        UnserializableError: for a broker's name with an `@`, which would move the border.
    """
    if "@" in place.broker:
        raise UnserializableError("broker", "a name without @", repr(place.broker))
    return f"{place.topic}/{place.queue_id}/{place.queue_offset}@{place.broker}"


def parse_message_id(text: str) -> MessagePlace:
    """What an id says; a topic may have any character.

    Raises:
        LayoutError: if the text is no such id.
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
    """Return a number as an id has it: no sign, no leading zeros."""
    number = parse_int(text, 0, _MAX_QUEUE_OFFSET)
    return number if str(number) == text else None
