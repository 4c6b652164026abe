"""Creation of topics, and reading of their messages, with waiting for broker and name server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from commitlake.connectors.rocketmq import Admin, NoRouteError, Puller
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from tests.support.waiting import wait_until

T = TypeVar("T")


def make_topic(admin: Admin, topic: str, queues: int = 4, *, perm: int = 6) -> None:
    """Create a topic, and wait until the name server knows it.

    If a producer asks too early, it assumes that its first message will create the topic, with four queues.
    """
    admin.create_topic(topic, queues, perm=perm)
    wait_for(lambda: admin.route(topic).queue_datas, bool)


def read_all(puller: Puller, topic: str, count: int, expression: str = "*") -> list[Message]:
    """Return all messages of a topic, queue by queue, once there are enough.

    A message is dispatched to its queue shortly after it is written to the log.
    """
    wait_for(lambda: _read(puller, topic), lambda messages: len(messages) >= count)
    return _read(puller, topic, expression)


def _read(puller: Puller, topic: str, expression: str = "*") -> list[Message]:
    return [
        message
        for queue in puller.queues(topic)
        for message in puller.read(queue, 0, puller.max_offset(queue), expression=expression)
    ]


def wait_for(what: Callable[[], T], is_enough: Callable[[T], bool], seconds: float = 60) -> T:
    """Wait for a sufficient value, and return it.

    A topic without a route is not sufficient: if it was created by a message, retry or dead letter, it is registered
    with the name servers a little later.
    """
    found: list[T] = []

    def has_enough() -> bool:
        with suppress(NoRouteError):
            found.append(what())
            return is_enough(found[-1])
        return False

    wait_until(has_enough, seconds, look_seconds=0.05)
    return found[-1]
