"""Held pulls (long polling): each is answered when a matching message arrives, or at its deadline.

Source: PullRequestHoldService (5.5.0). RocketMQ checks for pulls past their deadline every 5 s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from commitlake.broker_lite.broker.filters import Filter
from commitlake.broker_lite.broker.limits import Quotas
from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.headers import PullMessageRequest

MAX_HELD_OF_ONE = 4096
"""Held pulls of one connection; a consumer has one for each queue."""
MAX_HELD_OF_ADDRESS = 65_536
MAX_HELD = 131_072
_SUBSCRIPTION_LENGTH = 128
_CODES = 16
"""A pull's weight rises by one for this many characters of its subscription, or this many tag hashes of its filter."""


@dataclass(slots=True)
class HeldPull:
    """Pull request that waits on the broker, because there was no message for it.

    Attributes:
        request: command without the parts that the answer does not need.
        header: parsed header of the request.
        wanted: filter for the messages it waits for.
        deadline_ms: time at which it is answered even if no message arrived.
        next_offset: first queue offset that has not been checked yet.
    """

    channel: Channel
    request: Command
    header: PullMessageRequest
    wanted: Filter
    deadline_ms: int
    next_offset: int

    @property
    def weight(self) -> int:
        """Cost of the waiting pull, counted against the limits, as a number of ordinary pulls."""
        codes = self.wanted.codes or ()
        return 1 + len(self.header.subscription or "") // _SUBSCRIPTION_LENGTH + len(codes) // _CODES


class HeldPulls:
    """Pull requests that wait on the broker for messages, by queue."""

    def __init__(self) -> None:
        self._by_queue: dict[tuple[str, int], list[HeldPull]] = {}
        self._quotas = Quotas(of_one=MAX_HELD_OF_ONE, of_address=MAX_HELD_OF_ADDRESS, in_all=MAX_HELD)

    def __len__(self) -> int:
        return sum(map(len, self._by_queue.values()))

    def hold(self, pull: HeldPull) -> bool:
        """Let a pull request wait for messages; return False if the limits do not allow it."""
        if not self._quotas.take(pull.channel, pull.weight):
            return False
        self._by_queue.setdefault((pull.header.topic, pull.header.queue_id), []).append(pull)
        return True

    def take(self, topic: str, queue_id: int) -> list[HeldPull]:
        """Remove and return the waiting pulls of a queue, without those whose connection has closed."""
        pulls = self._by_queue.pop((topic, queue_id), [])
        for pull in pulls:
            self._quotas.release(pull.channel, pull.weight)
        return [pull for pull in pulls if pull.channel.is_open]

    def take_expired(self, now_ms: int) -> Iterator[HeldPull]:
        """Remove waiting pulls with a passed deadline or a closed connection, and yield the former to be answered."""
        for key, pulls in list(self._by_queue.items()):
            late = [pull for pull in pulls if pull.deadline_ms <= now_ms or not pull.channel.is_open]
            if not late:
                continue
            remaining = [pull for pull in pulls if not (pull.deadline_ms <= now_ms or not pull.channel.is_open)]
            if remaining:
                self._by_queue[key] = remaining
            else:
                del self._by_queue[key]
            for pull in late:
                self._quotas.release(pull.channel, pull.weight)
                if pull.channel.is_open:
                    yield pull
