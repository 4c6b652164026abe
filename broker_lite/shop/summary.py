"""Start time and summary that the traffic generators of all layouts share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from commitlake.broker_lite.errors import StoreFilesError

DEFAULT_ORDERS = 400
DEFAULT_START_MS = 1_767_571_200_000
"""Monday 2026-01-05, 00:00 UTC."""


class Queues(Protocol):
    """Queues of a store, in any layout."""

    @property
    def queues(self) -> Iterable[tuple[str, int]]:
        """Pairs of topic and queue id."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the next offset of a queue."""


@dataclass(frozen=True)
class ShopSummary:
    """Summary of the written traffic, in any layout.

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
    def records(self) -> int:
        """Number of records in the log."""
        return sum(self.by_topic.values())


def check_is_empty(path: str | Path, size: int) -> None:
    """Check that a store has no messages.

    Args:
        path: folder of the store.
        size: size of its log in bytes.

    Raises:
        StoreFilesError: if the store has messages.
    """
    if size:
        raise StoreFilesError(f"{path}: expected a store without messages, found {size} bytes; choose an empty folder")


def count_by_topic(store: Queues) -> dict[str, int]:
    """Count the records of each topic, ordered by topic name."""
    by_topic: Counter[str] = Counter()
    for topic, queue_id in store.queues:
        by_topic[topic] += store.max_offset(topic, queue_id)
    return dict(sorted(by_topic.items()))
