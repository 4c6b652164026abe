"""What the shop's stories have in common when they are written: when they begin, and what is told of the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from commitlake.broker_lite.stores.engine.errors import StoreFilesError

DEFAULT_ORDERS = 400
DEFAULT_START_MS = 1_767_571_200_000
"""2026-01-05, 00:00 UTC, a Monday."""


class Queues(Protocol):
    """The queues of a store."""

    @property
    def queues(self) -> Iterable[tuple[str, int]]:
        """Topics and queue numbers."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the next offset of a queue."""


@dataclass(frozen=True)
class WrittenShop:
    """What was written, whatever the store's layout.

    Attributes:
        path: the store.
        start_ms: when the story began.
        end_ms: when it ended.
        by_topic: how many records each topic has.
        dead_lettered: keys of orders that could not be shipped.
    """

    path: Path
    start_ms: int
    end_ms: int
    by_topic: dict[str, int]
    dead_lettered: list[str]

    @property
    def records(self) -> int:
        """How many records the log has."""
        return sum(self.by_topic.values())


def check_is_empty(path: str | Path, size: int) -> None:
    """Refuse a store that has messages.

    Args:
        path: the store.
        size: how many bytes its log has.

    Raises:
        StoreFilesError: if there are any.
    """
    if size:
        raise StoreFilesError(f"{path}: expected a store without messages, found {size} bytes")


def count_by_topic(store: Queues) -> dict[str, int]:
    """Count the records of each topic, in the order of their names."""
    by_topic: Counter[str] = Counter()
    for topic, queue_id in store.queues:
        by_topic[topic] += store.max_offset(topic, queue_id)
    return dict(sorted(by_topic.items()))
