"""Messages after offsets of queues, counted batch by batch."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from commitlake.pipelines.lag.backlog_counting import Backlog, BacklogCounter, LagCursor, OffsetRangeCounter, Queue
from commitlake.pipelines.lag.subscription_filter import ALL, SubscriptionFilter

PAID = SubscriptionFilter.of("TAG", "paid")
ORDERS = Queue("a", "orders", 0)


def batch_of(rows: Sequence[tuple[str, int, int, int, int, str | None]]) -> pa.RecordBatch:
    """Messages: topic, queue, offset, size, store time in ms, tag."""
    topics, queue_ids, offsets, sizes, times, tags = (list(column) for column in zip(*rows, strict=True))
    return pa.record_batch(
        {
            "physical_offset": pa.array([1000 * time for time in times], pa.int64()),
            "topic": pa.array(topics, pa.string()),
            "queue_id": pa.array(queue_ids, pa.int32()),
            "queue_offset": pa.array(offsets, pa.int64()),
            "size": pa.array(sizes, pa.int32()),
            "store_timestamp": pa.array([time * 1000 for time in times], pa.timestamp("us", "UTC")),
            "tags": pa.array(tags, pa.string()),
        }
    )


def test_count_excludes_consumed_filtered_and_other_queues_messages() -> None:
    everything, paid = LagCursor(ORDERS, 1), LagCursor(ORDERS, 1, PAID)
    counter = BacklogCounter([everything, paid])
    counter.add_batch("a", batch_of([("orders", 0, 2, 20, 102, "paid"), ("orders", 1, 5, 50, 105, "paid")]))
    counter.add_batch("a", batch_of([("orders", 0, 0, 1, 100, "paid"), ("orders", 0, 1, 10, 101, None)]))
    counter.add_batch("b", batch_of([("orders", 0, 9, 1, 109, "paid")]))
    assert counter.backlog_by_cursor[everything] == Backlog(2, 30, 1, 101)
    assert counter.backlog_by_cursor[paid] == Backlog(1, 20, 2, 102)


def test_messages_that_were_stored_later_are_not_counted() -> None:
    cursor = LagCursor(ORDERS, 0)
    counter = BacklogCounter([cursor], until_ms=101)
    counter.add_batch("a", batch_of([("orders", 0, number, 1, 100 + number, None) for number in range(5)]))
    assert counter.backlog_by_cursor[cursor] == Backlog(2, 2, 0, 100)


def test_the_order_of_batches_does_not_matter() -> None:
    generator = random.Random(5)
    rows = [
        (f"t{number % 3}", number % 2 - 1, number // 6, number, 1000 + number, generator.choice(["paid", "x", None]))
        for number in range(600)
    ]
    cursors = [
        LagCursor(Queue("a", f"t{topic}", queue), offset, wanted)
        for topic in range(3) for queue in (-1, 0) for offset in (0, 7, 99, 100)
        for wanted in (PAID, SubscriptionFilter())
    ]  # fmt: skip
    generator.shuffle(rows)
    counter = BacklogCounter(cursors)
    for first in range(0, len(rows), 37):
        counter.add_batch("a", batch_of(rows[first : first + 37]))
    for cursor in cursors:
        here = [
            row for row in rows
            if Queue("a", *row[:2]) == cursor.queue and row[2] >= cursor.offset
            and (cursor.wanted.selects_all or row[5] == "paid")
        ]  # fmt: skip
        next_row = min(here, key=lambda row: row[2], default=None)
        place = (None, None) if next_row is None else (next_row[2], next_row[4])
        expected = Backlog(len(here), sum(row[3] for row in here), *place)
        assert counter.backlog_by_cursor[cursor] == expected


def test_the_counts_of_copies_that_share_the_batches_add_up() -> None:
    generator = random.Random(7)
    rows = [
        (f"t{number % 3}", number % 2, number // 6, number, 1000 + number, generator.choice(["paid", "x", None]))
        for number in range(300)
    ]
    generator.shuffle(rows)
    batches = [batch_of(rows[first : first + 23]) for first in range(0, len(rows), 23)]
    queues = [Queue("a", f"t{topic}", queue) for topic in range(4) for queue in range(2)]
    cursors = [LagCursor(queue, offset, wanted) for queue in queues for offset in (0, 20, 99) for wanted in (PAID, ALL)]

    def counters() -> tuple[BacklogCounter, OffsetRangeCounter]:
        ranges = {(queue, PAID): [10, 30] for queue in queues}
        return BacklogCounter(cursors, until_ms=1200, finds_last=True), OffsetRangeCounter(ranges)

    whole, *copies, added = (counters() for _ in range(5))
    for number, batch in enumerate(batches):
        for counter in (*whole, *copies[number % 3]):
            counter.add_batch("a", batch)
    for copy in copies:
        added[0].add_partial_counts(pickle.loads(pickle.dumps(copy[0].partial_counts())))
        added[1].add_partial_counts(pickle.loads(pickle.dumps(copy[1].partial_counts())))
    assert added[0].backlog_by_cursor == whole[0].backlog_by_cursor
    assert sum(one.last_time_ms is not None for one in added[0].backlog_by_cursor.values()) > 0
    found = [[each.count_between(queue, PAID, 10, 30) for queue in queues] for each in (whole[1], added[1])]
    assert found[0] == found[1]
    assert found[0][0] > 0


def test_records_before_a_floor_or_the_start_of_the_log_are_not_counted() -> None:
    cursor, other = LagCursor(ORDERS, 0), LagCursor(Queue("a", "orders", 1), 0)
    counter = BacklogCounter([cursor, other], log_start=101_000)
    rows = batch_of([("orders", queue, number, 1, 100 + number, None) for queue in (0, 1) for number in range(5)])
    counter.add_batch("a", rows)
    assert (counter.backlog_by_cursor[cursor].messages, counter.backlog_by_cursor[other].messages) == (4, 4)
    counter.reset_counts({ORDERS: 103_000})
    counter.add_batch("a", rows)
    assert (counter.backlog_by_cursor[cursor], counter.backlog_by_cursor[other].messages) == (Backlog(2, 2, 3, 103), 4)


def test_messages_that_an_index_lists_are_timed_afterwards() -> None:
    cursor = LagCursor(ORDERS, 2)
    counter = BacklogCounter([cursor])
    counter.count_index_entries(ORDERS, np.array([1, 2, 3]), np.array([5, 6, 7]), np.array([10, 20, 30]))
    asked: list[tuple[Queue, int, int]] = []
    counter.set_next_message_times(lambda *place: asked.append(place) or 77)  # type: ignore[func-returns-value]
    assert counter.backlog_by_cursor[cursor] == Backlog(2, 13, 2, 77)
    assert asked == [(ORDERS, 2, 20)]


def test_a_cursor_can_have_its_own_end_time() -> None:
    early, late = LagCursor(ORDERS, 0, until_ms=101), LagCursor(ORDERS, 0)
    counter = BacklogCounter([early, late], until_ms=103)
    counter.add_batch("a", batch_of([("orders", 0, number, 1, 100 + number, None) for number in range(9)]))
    assert (counter.backlog_by_cursor[early].messages, counter.backlog_by_cursor[late].messages) == (2, 4)


def test_the_message_before_a_cursor_is_timed_although_the_group_does_not_want_it() -> None:
    cursors = [LagCursor(ORDERS, offset, PAID) for offset in (0, 1, 3, 9)]
    counter = BacklogCounter(cursors, until_ms=103, finds_last=True)
    assert counter.starts == {ORDERS: 0}
    assert BacklogCounter(cursors[2:], finds_last=True).starts == {ORDERS: 2}
    rows = [("orders", 0, number, 1, 100 + number, "open") for number in range(9)]
    counter.add_batch("a", batch_of(rows[4:]))
    counter.add_batch("a", batch_of(rows[:4]))
    assert [counter.backlog_by_cursor[cursor].last_time_ms for cursor in cursors] == [None, 100, 102, None]


def test_the_message_before_a_cursor_is_the_newest_of_its_topic_and_one_that_the_broker_has() -> None:
    cursors = [LagCursor(ORDERS, offset) for offset in (1, 2)]
    counter = BacklogCounter(cursors, log_start=101_000, finds_last=True)
    both_topics = [("orders", 0, number, 1, time, None) for number, time in ((1, 104), (0, 100), (1, 101), (0, 103))]
    counter.add_batch("a", batch_of(both_topics))
    assert [counter.backlog_by_cursor[cursor].last_time_ms for cursor in cursors] == [103, 104]
    counter.reset_counts({ORDERS: 104_000})
    counter.add_batch("a", batch_of(both_topics))
    assert [counter.backlog_by_cursor[cursor].last_time_ms for cursor in cursors] == [None, 104]


def test_the_message_before_a_cursor_that_an_index_lists_is_timed_afterwards_if_it_can_be_read() -> None:
    cursors = [LagCursor(ORDERS, offset) for offset in (1, 2, 3)]
    counter = BacklogCounter(cursors, finds_last=True)
    counter.count_index_entries(ORDERS, np.array([0, 1]), np.array([5, 6]), np.array([10, 20]))
    counter.set_preceding_message_times(lambda _queue, _offset, physical: None if physical == 20 else 77)
    assert [counter.backlog_by_cursor[cursor].last_time_ms for cursor in cursors] == [77, None, None]
