"""Scheduler that runs long requests in time slices, so that the broker serves other clients in between.

The handler of a request that may take long is a generator: it yields every few hundred microseconds, at least every few
milliseconds, and returns its answer. The first slice runs at once, so short requests are answered like any other; the
rest runs in turns, one slice for one client after another.

While short requests arrive, the long ones of all clients together get a quarter of the time: after each slice, they
pause for three times as long as it took. Otherwise a single consumer with an expensive filter could halt all producers.
If no short request has arrived for a moment, there is no pause.

Everything runs in one thread. A second thread besides the event loop would not help, because it would hold the
interpreter lock and the store's lock for as long.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from commitlake.broker_lite.broker.limits import Quotas
from commitlake.broker_lite.protocol import Channel

SLICE_SECONDS = 0.005
"""Longest time that one slice may block other requests."""

_PAUSE_FACTOR = 3
"""Length of the pause after a slice of a client's work, in lengths of that slice."""
_RECENT_SECONDS = 0.1
"""Time after a short request in which others are expected."""

Steps = Iterator[None]


class _ClientWorkQueue(NamedTuple):
    """Unfinished work that is divided into slices, which alternate with slices of other work.

    Attributes:
        channel: connection of the client that waits for it; None for the broker's own work.
        weight: approximate memory that it keeps, in KiB.
    """

    channel: Channel | None
    steps: Steps
    weight: int


class SliceScheduler:
    """Round-robin scheduler of work that takes longer than one slice.

    Clients take turns, not requests: of one client's work, only the oldest piece is started. So a client that sends
    many long requests delays only itself, and the memory for partial answers does not grow with the number of requests.

    Attributes:
        wake: function that is called when work waits; the caller must then call `run_next_slice` until it returns
            False, each time after `seconds_to_next_slice` seconds.
    """

    def __init__(self, at_once: int | None = None) -> None:
        """Create a scheduler without work.

        Args:
            at_once: maximum number of clients whose work is in progress; other clients' work waits before its first
                slice. None for no limit. The broker's own work never waits for clients.
        """
        self.wake: Callable[[], None] = lambda: None
        self._at_once = at_once
        self._in_hand: deque[deque[_ClientWorkQueue]] = deque()  # one deque per client; the first has the next turn
        self._not_begun: deque[deque[_ClientWorkQueue]] = deque()
        self._by_client: dict[Channel, deque[_ClientWorkQueue]] = {}
        self._clients_in_hand = 0
        self._paused_until = self._served_at = -math.inf
        self._quotas = Quotas(of_one=32 << 10, of_address=128 << 10, in_all=256 << 10)

    @property
    def is_empty(self) -> bool:
        """True if no work is in progress."""
        return not self._in_hand

    @property
    def seconds_to_next_slice(self) -> float:
        """Seconds until the next slice may run; 0 if the broker has work of its own, which never waits."""
        return 0.0 if any(waiting[0].channel is None for waiting in self._in_hand) else self._pause_seconds()

    def _pause_seconds(self) -> float:
        now = time.perf_counter()
        return max(0.0, self._paused_until - now) if now - self._served_at < _RECENT_SECONDS else 0.0

    def note_short_request(self) -> None:
        """Record that a short request was just answered; clients' long work pauses for a moment after each of these."""
        self._served_at = time.perf_counter()

    def run(self, steps: Steps, channel: Channel | None = None, memory_bytes: int = 0) -> bool:
        """Run the first slice of work and schedule its remaining slices; return False if the limits do not allow those.

        If the client has unfinished work, or the maximum number of clients have work in progress, or clients' work
        pauses, no slice runs yet.

        Args:
            steps: generator that does the work.
            channel: connection of the client that waits for it; the work is dropped if the connection closes.
            memory_bytes: approximate memory that the work keeps.
        """
        if channel is None:
            if not _run_steps_of_slice(steps):
                self._in_hand.append(deque([_ClientWorkQueue(None, steps, 0)]))
                self.wake()
            return True
        may_begin = channel not in self._by_client and self._can_start_work
        if may_begin and not self._pause_seconds() and self._run_client_slice(steps):
            return True
        work = _ClientWorkQueue(channel, steps, 1 + memory_bytes // 1024)
        if not self._quotas.take(channel, work.weight):
            return False
        if channel in self._by_client:
            self._by_client[channel].append(work)
            return True
        self._by_client[channel] = waiting = deque([work])
        if may_begin:
            self._start_work(waiting)
        else:
            self._not_begun.append(waiting)
        self.wake()
        return True

    @property
    def _can_start_work(self) -> bool:
        return self._at_once is None or self._clients_in_hand < self._at_once

    def _start_work(self, client_work: deque[_ClientWorkQueue]) -> None:
        self._in_hand.append(client_work)
        self._clients_in_hand += 1

    def run_next_slice(self) -> bool:
        """Run the next slice of work; during a pause, only the broker's own work runs. Return whether work remains."""
        waiting = self._take_next_work()
        if waiting is not None:
            work = waiting[0]
            is_kept = False
            try:
                if work.channel is None:
                    is_kept = not _run_steps_of_slice(work.steps)
                elif work.channel.is_open:
                    is_kept = not self._run_client_slice(work.steps)
            finally:
                if is_kept:
                    self._in_hand.append(waiting)
                else:
                    self._end_work(waiting)
        return bool(self._in_hand)

    def _take_next_work(self) -> deque[_ClientWorkQueue] | None:
        """Remove and return the work whose turn is next; during a pause, only work of the broker itself."""
        may_run = (waiting for waiting in self._in_hand if waiting[0].channel is None)
        found = next(may_run if self._pause_seconds() else iter(self._in_hand), None)
        if found is not None:
            self._in_hand.remove(found)
        return found

    def _run_client_slice(self, steps: Steps) -> bool:
        """Run one slice of a client's work, pause all clients' long work, and return whether this work has finished."""
        started = time.perf_counter()
        try:
            return _run_steps_of_slice(steps)
        finally:
            ended = time.perf_counter()
            self._paused_until = ended + (ended - started) * _PAUSE_FACTOR

    def _end_work(self, client_work: deque[_ClientWorkQueue]) -> None:
        """Remove a client's finished work, and start work of the clients that have waited longest."""
        work = client_work.popleft()
        if work.channel is None:
            return
        self._clients_in_hand -= 1
        self._quotas.release(work.channel, work.weight)
        if client_work:
            self._not_begun.append(client_work)
        else:
            del self._by_client[work.channel]
        while self._not_begun and self._can_start_work:
            self._start_work(self._not_begun.popleft())


def _run_steps_of_slice(steps: Steps) -> bool:
    """Run one slice, and return whether the work has finished."""
    end = time.perf_counter() + SLICE_SECONDS
    return all(time.perf_counter() < end for _ in steps)
