"""What is in a topic, waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from commitlake.connectors.rocketmq import NoRouteError, Puller
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from tests.support.waiting import wait_until

T = TypeVar("T")


def read_all(puller: Puller, topic: str, count: int, expression: str = "*") -> list[Message]:
    """All messages of a topic, queue by queue, once there are so many.

    A topic that its first message made is known to the name servers a little later, and a message is in its queue a
    little after it is in the log.
    """
    wait_for(lambda: _read(puller, topic), lambda messages: len(messages) >= count)
    return _read(puller, topic, expression)


def _read(puller: Puller, topic: str, expression: str = "*") -> list[Message]:
    try:
        queues = puller.queues(topic)
    except NoRouteError:
        return []
    return [
        message
        for queue in queues
        for message in puller.read(queue, 0, puller.max_offset(queue), expression=expression)
    ]


def wait_for(what: Callable[[], T], is_enough: Callable[[T], bool], seconds: float = 60) -> T:
    """A value, once it is enough."""
    found: list[T] = []

    def has_enough() -> bool:
        found.append(what())
        return is_enough(found[-1])

    wait_until(has_enough, seconds, look_seconds=0.05)
    return found[-1]
