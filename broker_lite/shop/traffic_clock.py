"""Time of the generated traffic: its clock, its planned events, and a summary at its end."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from commitlake.broker_lite.errors import StoreFilesError

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

Event = Callable[[], None]
DEFAULT_ORDERS = 400
DEFAULT_START_MS = 1_767_571_200_000
"""Monday 2026-01-05, 00:00 UTC."""


@dataclass
class SimulatedClock:
    """Simulated clock, which the generated traffic and its store use."""

    now_ms: int

    def __call__(self) -> int:
        """Return the time in ms since 1970."""
        return self.now_ms


@dataclass
class EventTimeline:
    """Planned events in order of time; events at the same time stay in the order of their planning."""

    clock: SimulatedClock
    _events: list[tuple[int, int, Event]] = field(default_factory=list, init=False)
    _planned: int = field(default=0, init=False)

    def plan_event_at(self, time_ms: int, event: Event) -> None:
        """Plan an event for a time."""
        heapq.heappush(self._events, (time_ms, self._planned, event))
        self._planned += 1

    def plan_event_after(self, delay_ms: int, event: Event) -> None:
        """Plan an event for a time after the current time of the simulated clock."""
        self.plan_event_at(self.clock.now_ms + delay_ms, event)

    def events_before(self, end_ms: int) -> Iterator[tuple[int, Event]]:
        """Yield the events before a time, also those planned while iterating; the caller advances the clock."""
        while self._events and self._events[0][0] < end_ms:
            time_ms, _, event = heapq.heappop(self._events)
            yield time_ms, event


class Queues(Protocol):
    """Interface of a store's queues, in any layout."""

    @property
    def queues(self) -> Iterable[tuple[str, int]]:
        """Pairs of topic and queue id of all queues."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the next offset of a queue."""


@dataclass(frozen=True)
class ShopSummary:
    """Summary of the example traffic written to a store of any layout: its times, and numbers of messages.

    Attributes:
        path: folder of the store.
        start_ms: time of the first event.
        end_ms: time of the last event.
        by_topic: number of records by topic.
        dead_lettered: keys of orders that could not be shipped.
    """

    path: Path
    start_ms: int
    end_ms: int
    by_topic: dict[str, int]
    dead_lettered: list[str]

    @property
    def record_count(self) -> int:
        """Number of records in the log."""
        return sum(self.by_topic.values())


def check_store_is_empty(path: str | Path, log_size: int) -> None:
    """Check that a store has no messages.

    Args:
        path: folder of the store.
        log_size: size of its log in bytes.

    Raises:
        StoreFilesError: if the store has messages.
    """
    if log_size:
        raise StoreFilesError(
            f"{path}: expected a store without messages, found one with {log_size} bytes of them: choose an empty "
            "folder"
        )


def count_records_by_topic(store: Queues) -> dict[str, int]:
    """Count the records of each topic, ordered by topic name."""
    by_topic: Counter[str] = Counter()
    for topic, queue_id in store.queues:
        by_topic[topic] += store.max_offset(topic, queue_id)
    return dict(sorted(by_topic.items()))
