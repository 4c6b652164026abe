"""First and last offsets of queues, from messages in the order of the log."""

from __future__ import annotations

import numpy as np

from commitlake.pipelines.lag.counting import Queue
from commitlake.pipelines.lag.queues import QueueSpan, SpanFinder

ORDERS, OTHER = Queue("a", "orders", 0), Queue("a", "orders", 1)


def span_of(*parts: tuple[list[int], list[int]]) -> SpanFinder:
    finder = SpanFinder()
    for offsets, physical in parts:
        finder.add(ORDERS, np.array(offsets, np.int64), np.array(physical, np.int64))
    return finder


def test_a_queue_begins_with_its_first_message_and_ends_after_its_last() -> None:
    finder = span_of(([], []), ([3, 4], [100, 200]), ([7], [300]))
    finder.add(OTHER, np.array([0]), np.array([150]))
    assert finder.found == {ORDERS: QueueSpan(3, 8), OTHER: QueueSpan(0, 1)}
    assert finder.floors == {}


def test_offsets_that_restart_mark_a_recreated_topic() -> None:
    for parts in (
        [([0, 1, 2, 0, 1], [10, 20, 30, 40, 50])],
        [([0, 1, 2], [10, 20, 30]), ([0, 1], [40, 50])],
        [([5, 6, 0, 1, 2, 0], [1, 2, 3, 4, 5, 40]), ([1], [50])],
    ):
        finder = span_of(*parts)
        assert finder.found == {ORDERS: QueueSpan(0, 2, floor=40)}
        assert finder.floors == {ORDERS: 40}


def test_a_queue_that_restarts_above_0_keeps_its_floor() -> None:
    assert span_of(([4, 2, 3], [1, 2, 3]), ([4, 9], [4, 5])).found == {ORDERS: QueueSpan(2, 10, floor=2)}
