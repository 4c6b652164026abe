"""Light queues (LMQ, since 4.9.3): additional queues that contain a record, besides its topic's queue.

A producer names them in INNER_MULTI_DISPATCH (`%LMQ%a,%LMQ%b`). A broker with `enableLmq` and `enableMultiDispatch`
adds INNER_MULTI_QUEUE_OFFSET (`7,8`), the record's offset in each, and enters the record at that offset into
`consumequeue/%LMQ%a/0`. A record that names a queue twice is entered once, because the queue already points after it;
RocketMQ's counter of the queue is then one too high until the broker restarts.

The number of names is only limited by the 32,767 bytes of a record's properties: with their numbers, some 3,600 fit.
Source: LmqDispatch, MultiDispatchUtils, ConsumeQueue.multiDispatchLmqQueue (5.5.0).
"""

from __future__ import annotations

from collections.abc import Mapping

from commitlake.schemas.layouts.integer_parsing import parse_int
from commitlake.schemas.layouts.rocketmq.topics import LIGHT_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, SYSTEM_PREFIX
from commitlake.schemas.layouts.segment_names import MAX_QUEUE_OFFSET

LIGHT_QUEUE_ID = 0
MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
SEPARATOR = ","
MAX_LIGHT_QUEUES = 20_000
"""RocketMQ's setting maxLmqConsumeQueueNum, which 5.5.0 does not enforce. Each queue is a folder with an open file."""
MAX_LIGHT_QUEUES_OF_MESSAGE = 64
"""Our limit for a producer's message: a new queue takes half a millisecond, and other clients wait meanwhile."""
_MAX_NAME_BYTES = 255
"""Limit of a name, because a queue is a folder with its name."""


def is_light_queue(name: str) -> bool:
    """Return whether a name is that of a light queue (LMQ), to which a broker dispatches records of other topics."""
    return name.startswith(LIGHT_PREFIX) and "/" not in name


def is_valid_folder_name(name: str) -> bool:
    """Return whether a light queue's name can be used as a folder name."""
    return is_light_queue(name) and "\0" not in name and len(name.encode()) <= _MAX_NAME_BYTES


def light_queue_names(topic: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the light queue names in a record's INNER_MULTI_DISPATCH property, including invalid ones."""
    names = properties.get(MULTI_DISPATCH)
    if not names or topic.startswith((RETRY_PREFIX, SYSTEM_PREFIX)) or topic == SCHEDULE_TOPIC:
        return ()
    return _split_list(names)


def _split_list(text: str) -> tuple[str, ...]:
    """Split a list like Java's String.split, which drops empty parts at the end."""
    text = text.rstrip(SEPARATOR)
    return tuple(text.split(SEPARATOR)) if text else ()


def light_queue_offsets(topic: str, properties: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """Return the light queues that contain a stored record, each with the record's offset in that queue.

    If the lists differ in length, the result is empty. Invalid names and impossible offsets are omitted.
    """
    names = light_queue_names(topic, properties)
    numbers = _split_list(properties.get(MULTI_QUEUE_OFFSET, ""))
    if len(names) != len(numbers):
        return ()
    found: dict[str, int] = {}
    for name, text in zip(names, numbers, strict=True):
        number = parse_int(text, 0, MAX_QUEUE_OFFSET)
        if number is not None and is_light_queue(name):
            found.setdefault(name, number)
    return tuple(found.items())
