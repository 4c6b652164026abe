"""First and last offsets of queues, from messages in the order of the log."""

from __future__ import annotations

import numpy as np
import pytest

from commitlake.pipelines.lag.backlog_counting import Queue
from commitlake.pipelines.lag.queue_offset_spans import QueueRun, QueueSpan, SpanFinder, find_topic_restarts

ORDERS, OTHER = Queue("a", "orders", 0), Queue("a", "orders", 1)


def span_of(*parts: tuple[list[int], list[int]]) -> SpanFinder:
    finder = SpanFinder()
    for offsets, physical in parts:
        finder.add_messages(ORDERS, np.array(offsets, np.int64), np.array(physical, np.int64))
    return finder


def test_a_queue_begins_with_its_first_message_and_ends_after_its_last() -> None:
    finder = span_of(([], []), ([3, 4], [100, 200]), ([7], [300]))
    finder.add_messages(OTHER, np.array([0]), np.array([150]))
    assert finder.queue_spans == {ORDERS: QueueSpan(3, 8), OTHER: QueueSpan(0, 1)}
    assert finder.restart_offsets == {}


def test_offsets_that_restart_mark_a_recreated_topic() -> None:
    for parts in (
        [([0, 1, 2, 0, 1], [10, 20, 30, 40, 50])],
        [([0, 1, 2], [10, 20, 30]), ([0, 1], [40, 50])],
        [([5, 6, 0, 1, 2, 0], [1, 2, 3, 4, 5, 40]), ([1], [50])],
    ):
        finder = span_of(*parts)
        assert finder.queue_spans == {ORDERS: QueueSpan(0, 2, floor=40)}
        assert finder.restart_offsets == {ORDERS: 40}


def test_a_queue_that_restarts_above_0_keeps_its_floor() -> None:
    assert span_of(([4, 2, 3], [1, 2, 3]), ([4, 9], [4, 5])).queue_spans == {ORDERS: QueueSpan(2, 10, floor=2)}


@pytest.mark.parametrize(
    ("other", "is_gone", "is_deleted"),
    [
        (QueueRun(first=0, begin=100, last=200), False, True),
        (QueueRun(first=0, begin=100, last=450), False, True),
        (QueueRun(first=7, begin=350, last=400), False, True),  # a queue of the new topic begins at 0
        (QueueRun(first=0, begin=350, last=400), False, False),
        (QueueRun(first=0, begin=350, last=400), True, True),
        (QueueRun(first=0, begin=550, last=600), False, False),
        (QueueRun(first=0, begin=550, last=600), True, False),  # its messages are newer than the new topic
        (QueueRun(first=0, begin=100, last=600), False, False),
    ],
)
def test_queues_without_a_message_of_the_new_topic_are_those_of_the_deleted_one(
    other: QueueRun, is_gone: bool, is_deleted: bool
) -> None:
    again = QueueRun(first=0, begin=500, last=900, before=300)
    payments = Queue("a", "payments", 0)
    runs = {ORDERS: again, OTHER: other, payments: QueueRun(first=0, begin=10, last=20)}
    expected = {ORDERS: 500} | ({OTHER: 500} if is_deleted else {})
    assert find_topic_restarts(runs, lambda _: is_gone) == expected


def test_a_queue_of_a_deleted_topic_ends_at_0() -> None:
    finder = span_of(([0, 1], [10, 20]))
    finder.add_messages(OTHER, np.array([0, 1]), np.array([12, 18]))
    finder.add_messages(ORDERS, np.array([0]), np.array([40]))
    assert finder.queue_spans == {ORDERS: QueueSpan(0, 1, floor=40), OTHER: QueueSpan(0, 0, floor=40)}


def test_folders_are_asked_once_for_a_queue_of_a_deleted_topic() -> None:
    asked: list[Queue] = []

    def is_gone(queue: Queue) -> bool:
        asked.append(queue)
        return True

    finder = SpanFinder(is_gone)
    for queue, offset, physical in ((ORDERS, 0, 10), (OTHER, 0, 20), (ORDERS, 0, 40)):
        finder.add_messages(queue, np.array([offset]), np.array([physical]))
    assert finder.restart_offsets == {ORDERS: 40, OTHER: 40}
    assert finder.queue_spans[OTHER] == QueueSpan(0, 0, floor=40)
    assert asked == [OTHER]
    finder.add_messages(OTHER, np.array([0]), np.array([50]))
    assert finder.restart_offsets == {ORDERS: 40, OTHER: 50}


def test_a_topic_can_be_created_again_several_times() -> None:
    finder = SpanFinder()
    for queue, offset, physical in (
        (ORDERS, 0, 10), (OTHER, 0, 20),
        (ORDERS, 0, 30), (OTHER, 0, 40), (ORDERS, 1, 45),
        (ORDERS, 0, 50),
    ):  # fmt: skip
        finder.add_messages(queue, np.array([offset]), np.array([physical]))
    assert finder.queue_spans == {ORDERS: QueueSpan(0, 1, floor=50), OTHER: QueueSpan(0, 0, floor=50)}
