"""Light queues (LMQ, 4.9.3 and later): further queues that a record is entered into, besides its topic's own.

A producer names them in INNER_MULTI_DISPATCH (`%LMQ%a,%LMQ%b`). A broker with `enableLmq` and `enableMultiDispatch`
adds INNER_MULTI_QUEUE_OFFSET (`7,8`), the record's number in each, and enters the record at that number into
`consumequeue/%LMQ%a/0`. Source: LmqDispatch, MultiDispatchUtils, ConsumeQueue.multiDispatchLmqQueue (5.5.0).
"""

from __future__ import annotations

from collections.abc import Mapping

from commitlake.schemas.layouts.numbers import parse_int
from commitlake.schemas.layouts.rocketmq.topics import RETRY_PREFIX, SCHEDULE_TOPIC, SYSTEM_PREFIX
from commitlake.schemas.layouts.segments import MAX_QUEUE_OFFSET

LIGHT_PREFIX = "%LMQ%"
LIGHT_QUEUE_ID = 0
MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
SEPARATOR = ","
_MAX_NAME_BYTES = 255
"""A queue is a folder of this name."""


def is_light_queue(name: str) -> bool:
    """Return whether a broker dispatches records to a queue of this name."""
    return name.startswith(LIGHT_PREFIX) and "/" not in name


def can_be_folder(name: str) -> bool:
    """Return whether a light queue can be kept under its name."""
    return is_light_queue(name) and "\0" not in name and len(name.encode()) <= _MAX_NAME_BYTES


def light_queue_names(topic: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names in INNER_MULTI_DISPATCH, whatever they are; none for topics that are never dispatched."""
    names = properties.get(MULTI_DISPATCH)
    if not names or topic.startswith((RETRY_PREFIX, SYSTEM_PREFIX)) or topic == SCHEDULE_TOPIC:
        return ()
    return tuple(names.split(SEPARATOR))


def light_queue_entries(topic: str, properties: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """Return the light queues that a stored record is in, and its number in each.

    Where the lists differ in length, there are none. Other names are left out, and numbers that no queue can have.
    """
    names = light_queue_names(topic, properties)
    numbers = properties.get(MULTI_QUEUE_OFFSET, "").split(SEPARATOR)
    if len(names) != len(numbers):
        return ()
    parsed = [(name, parse_int(number, 0, MAX_QUEUE_OFFSET)) for name, number in zip(names, numbers, strict=True)]
    return tuple((name, number) for name, number in parsed if number is not None and is_light_queue(name))
