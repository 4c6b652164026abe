"""Clock of the generated traffic, and its planned events."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

Event = Callable[[], None]


@dataclass
class StoryClock:
    """Clock of the generated traffic and its store."""

    now_ms: int

    def __call__(self) -> int:
        """Return the time in ms since 1970."""
        return self.now_ms


@dataclass
class Timeline:
    """Planned events in order of time; events at the same time keep the order in which they were planned."""

    clock: StoryClock
    _events: list[tuple[int, int, Event]] = field(default_factory=list, init=False)
    _planned: int = field(default=0, init=False)

    def at(self, time_ms: int, event: Event) -> None:
        """Plan an event."""
        heapq.heappush(self._events, (time_ms, self._planned, event))
        self._planned += 1

    def after(self, delay_ms: int, event: Event) -> None:
        """Plan an event relative to the current time."""
        self.at(self.clock.now_ms + delay_ms, event)

    def until(self, end_ms: int) -> Iterator[tuple[int, Event]]:
        """Yield the events before a time, including those planned meanwhile; the caller advances the clock."""
        while self._events and self._events[0][0] < end_ms:
            time_ms, _, event = heapq.heappop(self._events)
            yield time_ms, event
