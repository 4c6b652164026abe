"""Next offset of each queue, from the reports of tasks on parts of queues."""

from __future__ import annotations

import pytest

from commitlake.connectors.lake.store_progress import LastRecord, QueueReport
from commitlake.connectors.rocketmq.errors import ProtocolError
from commitlake.pipelines.archive.from_broker.tasks_result import _next_offsets


def part(begin: int, planned: int, end: int | None = None, rows: int | None = None, queue_id: int = 0) -> QueueReport:
    """Return a part of a queue, all of whose offsets are messages."""
    end = planned if end is None else end
    return QueueReport("broker-a", "orders", queue_id, begin, planned, end, end - begin if rows is None else rows)


def test_a_queue_continues_at_the_end_of_its_first_cut_part() -> None:
    assert list(_next_offsets([part(0, 10), part(10, 20), part(5, 9, queue_id=1)])) == [
        ("orders", 0, 20),
        ("orders", 1, 9),
    ]
    assert list(_next_offsets([part(10, 20, 12), part(0, 10), part(20, 30, 20)])) == [("orders", 0, 12)]
    assert list(_next_offsets([part(0, 10, 10), part(10, 20, 10)])) == [("orders", 0, 10)]


def test_messages_after_a_cut_are_an_error() -> None:
    with pytest.raises(
        ProtocolError,
        match="expected that the broker's log has messages in the order of their queue offsets, but messages af",
    ):
        list(_next_offsets([part(0, 10, 4), part(10, 20, 20)]))


def test_a_report_round_trips_through_json() -> None:
    for report in (part(1, 2), QueueReport("b", "t", 1, 2, 3, 4, 5, 6, "where", True, LastRecord(1, 2, "ab"))):
        assert QueueReport.from_json(report.to_json()) == report
