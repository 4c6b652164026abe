"""The story's time, and what happens when."""

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
    """The story's time; the store's clock."""

    now_ms: int

    def __call__(self) -> int:
        """The time, in ms since 1970."""
        return self.now_ms


@dataclass
class Timeline:
    """Events that are to come; what is planned for one moment happens in the order of planning."""

    clock: StoryClock
    _events: list[tuple[int, int, Event]] = field(default_factory=list, init=False)
    _planned: int = field(default=0, init=False)

    def at(self, time_ms: int, event: Event) -> None:
        """Plan an event."""
        heapq.heappush(self._events, (time_ms, self._planned, event))
        self._planned += 1

    def after(self, delay_ms: int, event: Event) -> None:
        """Plan an event, from now on."""
        self.at(self.clock.now_ms + delay_ms, event)

    def until(self, end_ms: int) -> Iterator[tuple[int, Event]]:
        """The events before a time, those planned meanwhile too; the caller lets the time pass."""
        while self._events and self._events[0][0] < end_ms:
            time_ms, _, event = heapq.heappop(self._events)
            yield time_ms, event
