"""Long work in slices: between two of them the broker serves its other clients.

A request that may take long has a handler that is a generator: it yields wherever a few hundred microseconds have
passed, at least every few milliseconds, and returns its answer. The first slice runs at once, so short requests are
answered as any other; the rest runs in turns, one slice of one request after another.

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

    Attributes:
        wake: is called when work waits; somebody must then call `turn` until it returns False.
    """

    def __init__(self, at_once: int | None = None) -> None:
        """Begin without work.

        Args:
            at_once: how many pieces of work are in hand at a time; the others wait before their first slice. None for
                no limit.
        """
        self.wake: Callable[[], None] = lambda: None
        self._at_once = at_once
        self._waiting: deque[_Work] = deque()
        self._not_begun: deque[_Work] = deque()
        self._shares = Shares(of_one=32 << 10, of_address=128 << 10, in_all=256 << 10)

    @property
    def is_empty(self) -> bool:
        """Whether no work waits."""
        return not self._waiting

    def run(self, steps: Steps, channel: Channel | None = None, kept_bytes: int = 0) -> bool:
        """Run the first slice of some work, and keep the rest; returns False if there is no room for the rest.

        Args:
            steps: the work.
            channel: who waits for it: the work is dropped when that one has gone.
            kept_bytes: about how much the work keeps in memory.
        """
        may_begin = self._at_once is None or len(self._waiting) < self._at_once
        if may_begin and _is_done(steps):
            return True
        weight = 1 + kept_bytes // 1024
        if channel is not None and not self._shares.take(channel, weight):
            return False
        (self._waiting if may_begin else self._not_begun).append(_Work(channel, steps, weight))
        self.wake()
        return True

    def turn(self) -> bool:
        """Run one slice of the work that has waited longest; returns whether more waits."""
        if self._waiting:
            work = self._waiting.popleft()
            is_wanted = work.channel is None or work.channel.is_open
            is_kept = False
            try:
                is_kept = is_wanted and not _is_done(work.steps)
            finally:
                if is_kept:
                    self._waiting.append(work)
                else:
                    self._end(work)
        return bool(self._waiting)

    def _end(self, work: _Work) -> None:
        """Give back what some work has kept, and let the next one begin."""
        if work.channel is not None:
            self._shares.release(work.channel, work.weight)
        if self._not_begun:
            self._waiting.append(self._not_begun.popleft())


def _is_done(steps: Steps) -> bool:
    """Run a slice; returns whether the work has ended."""
    end = time.perf_counter() + SLICE_SECONDS
    return all(time.perf_counter() < end for _ in steps)
