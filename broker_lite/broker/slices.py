"""Long work in slices: between two of them the broker serves its other clients.

A request that may take long has a handler that is a generator: it yields wherever a few hundred microseconds have
passed, at least every few milliseconds, and returns its answer. The first slice runs at once, so short requests are
answered as any other; the rest runs in turns, one slice for one client after another.

Everything runs in one thread. A thread beside the event loop would not help: it holds the interpreter for as long, and
the store's lock, too.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from commitlake.broker_lite.broker.shares import Shares
from commitlake.broker_lite.protocol import Channel

SLICE_SECONDS = 0.005
"""How long one piece of work may keep the others waiting."""

Steps = Iterator[None]


class _Work(NamedTuple):
    """Work that is not done yet.

    Attributes:
        channel: the client that waits for it; None for work of the broker's own.
        weight: about how many KiB it keeps.
    """

    channel: Channel | None
    steps: Steps
    weight: int


class Slices:
    """The work of a broker that takes longer than one slice.

    Clients take turns, not requests: of one client's work, only the oldest piece is begun. So a client that asks for
    much makes itself wait, and what half-made answers take in memory does not grow with the number of requests.

    Attributes:
        wake: is called when work waits; somebody must then call `turn` until it returns False.
    """

    def __init__(self, at_once: int | None = None) -> None:
        """Begin without work.

        Args:
            at_once: how many clients' work is in hand at a time; that of the others waits before its first slice. None
                for no limit. Work of the broker's own never waits for clients.
        """
        self.wake: Callable[[], None] = lambda: None
        self._at_once = at_once
        self._in_hand: deque[deque[_Work]] = deque()  # of each client; the next turn is the first one's
        self._not_begun: deque[deque[_Work]] = deque()
        self._by_client: dict[Channel, deque[_Work]] = {}
        self._clients_in_hand = 0
        self._shares = Shares(of_one=32 << 10, of_address=128 << 10, in_all=256 << 10)

    @property
    def is_empty(self) -> bool:
        """Whether no work waits."""
        return not self._in_hand

    def run(self, steps: Steps, channel: Channel | None = None, kept_bytes: int = 0) -> bool:
        """Run the first slice of some work, and keep the rest; returns False if there is no room for the rest.

        Where work of the same client waits, or the clients in hand are as many as may be, no slice is run yet.

        Args:
            steps: the work.
            channel: who waits for it: the work is dropped when that one has gone.
            kept_bytes: about how much the work keeps in memory.
        """
        if channel is None:
            if not _is_done(steps):
                self._in_hand.append(deque([_Work(None, steps, 0)]))
                self.wake()
            return True
        may_begin = channel not in self._by_client and self._has_room
        if may_begin and _is_done(steps):
            return True
        work = _Work(channel, steps, 1 + kept_bytes // 1024)
        if not self._shares.take(channel, work.weight):
            return False
        if channel in self._by_client:
            self._by_client[channel].append(work)
            return True
        self._by_client[channel] = waiting = deque([work])
        if may_begin:
            self._take_in_hand(waiting)
        else:
            self._not_begun.append(waiting)
        self.wake()
        return True

    @property
    def _has_room(self) -> bool:
        return self._at_once is None or self._clients_in_hand < self._at_once

    def _take_in_hand(self, waiting: deque[_Work]) -> None:
        self._in_hand.append(waiting)
        self._clients_in_hand += 1

    def turn(self) -> bool:
        """Run one slice of the work whose turn it is; returns whether more waits."""
        if self._in_hand:
            waiting = self._in_hand.popleft()
            work = waiting[0]
            is_wanted = work.channel is None or work.channel.is_open
            is_kept = False
            try:
                is_kept = is_wanted and not _is_done(work.steps)
            finally:
                if is_kept:
                    self._in_hand.append(waiting)
                else:
                    self._end(waiting)
        return bool(self._in_hand)

    def _end(self, waiting: deque[_Work]) -> None:
        """Give back what a client's oldest work has kept, and let the client that has waited longest have its turn."""
        work = waiting.popleft()
        if work.channel is None:
            return
        self._clients_in_hand -= 1
        self._shares.release(work.channel, work.weight)
        if waiting:
            self._not_begun.append(waiting)
        else:
            del self._by_client[work.channel]
        while self._not_begun and self._has_room:
            self._take_in_hand(self._not_begun.popleft())


def _is_done(steps: Steps) -> bool:
    """Run a slice; returns whether the work has ended."""
    end = time.perf_counter() + SLICE_SECONDS
    return all(time.perf_counter() < end for _ in steps)
