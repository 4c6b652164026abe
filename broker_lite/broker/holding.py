"""Pulls that wait for a message: each is answered when one comes that it wants, or when its time is over.

Source: PullRequestHoldService (5.5.0). RocketMQ looks for late ones every 5 s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from commitlake.broker_lite.broker.filters import Filter
from commitlake.broker_lite.broker.shares import Shares
from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.headers import PullMessageRequest

MAX_HELD_OF_ONE = 4096
"""Pulls of one connection that may wait; a consumer has one for each queue."""
MAX_HELD_OF_ADDRESS = 65_536
MAX_HELD = 131_072
_SUBSCRIPTION_LENGTH = 128
_CODES = 16
"""A pull counts once more for every so many characters of its own subscription, or tags of its group's."""


@dataclass(slots=True)
class HeldPull:
    """A pull that found nothing.

    Attributes:
        request: the command, as far as its answer needs it.
        header: its arguments.
        wanted: which messages it waits for.
        deadline_ms: when it is answered whatever comes.
        next_offset: the first one that was not looked at yet.
    """

    channel: Channel
    request: Command
    header: PullMessageRequest
    wanted: Filter
    deadline_ms: int
    next_offset: int

    @property
    def weight(self) -> int:
        """As how many ordinary pulls it counts."""
        codes = self.wanted.codes or ()
        return 1 + len(self.header.subscription or "") // _SUBSCRIPTION_LENGTH + len(codes) // _CODES


class HeldPulls:
    """The waiting pulls of a broker."""

    def __init__(self) -> None:
        self._by_queue: dict[tuple[str, int], list[HeldPull]] = {}
        self._shares = Shares(of_one=MAX_HELD_OF_ONE, of_address=MAX_HELD_OF_ADDRESS, in_all=MAX_HELD)

    def __len__(self) -> int:
        return sum(map(len, self._by_queue.values()))

    def hold(self, pull: HeldPull) -> bool:
        """Keep a pull; returns whether there was room for it."""
        if not self._shares.take(pull.channel, pull.weight):
            return False
        self._by_queue.setdefault((pull.header.topic, pull.header.queue_id), []).append(pull)
        return True

    def take(self, topic: str, queue_id: int) -> list[HeldPull]:
        """Take out the pulls of a queue; those of a peer that has gone are forgotten."""
        pulls = self._by_queue.pop((topic, queue_id), [])
        for pull in pulls:
            self._shares.release(pull.channel, pull.weight)
        return [pull for pull in pulls if pull.channel.is_open]

    def take_late(self, now_ms: int) -> Iterator[HeldPull]:
        """Take out the pulls whose time is over."""
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
                self._shares.release(pull.channel, pull.weight)
                if pull.channel.is_open:
                    yield pull
