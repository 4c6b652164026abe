"""First and last offsets of queues, found from the messages of a lake."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.lake import reader
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.runtime.local_runner import ThreadRunner
from commitlake.pipelines.lag import messages_table
from commitlake.pipelines.lag.backlog_counting import BacklogCounter, LagCursor, Queue
from commitlake.pipelines.lag.lake_messages import LakeMessages
from commitlake.pipelines.lag.messages_table import ArrowMessagesTable, RunnerMessagesTable
from commitlake.pipelines.lag.queue_offset_spans import CountLimits, QueueSpan
from commitlake.pipelines.lag.subscription_filter import ALL
from tests.support.lineage_lakes import BROKER, START, make_lake, record

END = START + datetime.timedelta(hours=2)
HOUR_BEFORE = END - datetime.timedelta(hours=1)
ORDERS = Queue(BROKER, "orders", 0)
QUEUE = range(100, 140)
"""Offsets of a queue that began long ago: one a minute is still there, for 40 minutes, and 5 of the last hour."""


def messages_of(lake: Lake) -> LakeMessages:
    """Return the messages of a lake, read in this process."""
    return LakeMessages(ArrowMessagesTable(lake.table("messages")), BROKER)


def messages(
    offsets: Sequence[int], minute: int, first_physical: int, topic: str = "orders"
) -> list[dict[str, object]]:
    """Return messages of a queue, one per minute."""
    return [
        record(first_physical + 100 * number, 60.0 * (minute + number), topic, queue_offset=offset)
        for number, offset in enumerate(offsets)
    ]


def measured(
    folder: Path, rows: list[dict[str, object]], start: int, log_start: int | None = 1000
) -> tuple[QueueSpan | None, int]:
    """Return the span of the queue, and the number of messages from an offset on."""
    lake = make_lake(folder, rows)
    cursor = LagCursor(ORDERS, start)
    counter = BacklogCounter([cursor], None, log_start)
    times = CountLimits(END, HOUR_BEFORE, log_start)
    spans = messages_of(lake).measure_queues(times, ["orders"], [counter])
    return spans.get(ORDERS), counter.backlog_by_cursor[cursor].messages


OLD = messages(range(100, 140), 10, 1000) + messages(range(140, 145), 70, 9000)


@pytest.mark.parametrize(
    ("start", "span", "behind"),
    [
        (145, QueueSpan(144, 145, 140), 0),  # at the end
        (143, QueueSpan(140, 145, 140), 2),  # a small lag
        (110, QueueSpan(109, 145, 140), 35),  # a large lag
        (20, QueueSpan(100, 145, 140), 45),  # its messages are gone
        (999, QueueSpan(140, 145, 140), 0),  # beyond the end
    ],
)
def test_the_span_of_an_old_queue_is_found_from_its_newest_messages(
    tmp_path: Path, start: int, span: QueueSpan, behind: int
) -> None:
    found, counted = measured(tmp_path, OLD, start)
    assert found is not None
    assert (found.end, found.compared_end, counted) == (span.end, span.compared_end, behind)
    lost, expected = (None if one.first is None else max(0, one.first - start) for one in (found, span))
    assert lost == expected  # the first message is used for nothing else


def test_a_queue_with_only_deleted_messages_ends_as_in_the_archive(tmp_path: Path) -> None:
    assert measured(tmp_path, OLD, 145, log_start=50_000) == (QueueSpan(145, 145, 140), 0)


def test_a_queue_without_archived_messages_has_no_span(tmp_path: Path) -> None:
    assert measured(tmp_path, messages(range(70, 80), 1, 1000, "payments"), 5) == (None, 0)


@pytest.mark.parametrize("start", [0, 20, 120, 150])
def test_a_recreated_topic_is_recognised_for_any_offset_of_a_group(tmp_path: Path, start: int) -> None:
    again = OLD + messages(range(30), 80, 20_000)
    found, counted = measured(tmp_path, again, start)
    assert found is not None
    assert (found.end, found.floor, counted) == (30, 20_000, max(0, 30 - start))


@pytest.mark.some_cases(3)
@pytest.mark.parametrize("start", [20, 110, 143])
@pytest.mark.parametrize("most", [1, 3, 4_000_000])
def test_tasks_count_the_messages_of_a_queue_in_parts(tmp_path: Path, start: int, most: int) -> None:
    again = [*OLD, *messages(range(30), 80, 20_000, "payments")]
    lake = make_lake(tmp_path, again)
    found = []
    for table in (ArrowMessagesTable(lake.table("messages")), RunnerMessagesTable(lake, ThreadRunner(2))):
        if isinstance(table, RunnerMessagesTable):
            table.statement_messages = most
        cursors = [LagCursor(ORDERS, start), LagCursor(ORDERS, start + 9), LagCursor(Queue(BROKER, "payments", 0), 7)]
        counter = BacklogCounter(cursors, None, 1000, {"orders": [ALL], "payments": [ALL]}, finds_last=True)
        spans = LakeMessages(table, BROKER).measure_queues(
            CountLimits(END, HOUR_BEFORE, 1000), ["orders", "payments"], [counter]
        )
        found.append((spans, counter.backlog_by_cursor))
    assert found[0] == found[1]
    assert len(found[0][0]) == 2


def test_long_queues_are_divided_among_statements(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, [])
    table = RunnerMessagesTable(lake, ThreadRunner(1))
    table.statement_messages = 100
    read = LakeMessages(table, BROKER)
    long, short, huge = (Queue(BROKER, name, 0) for name in ("long", "short", "huge"))
    ends = {long: 260, short: 20}
    *parts, last = read._start_offset_conditions({long: 10, short: 10}, ends)
    assert parts == [
        "((topic = 'long' AND queue_id = 0) AND queue_offset >= 10 AND queue_offset < 110)",
        "((topic = 'long' AND queue_id = 0) AND queue_offset >= 110 AND queue_offset < 210)",
    ]
    assert last == (
        "((topic = 'long' AND queue_id = 0) AND queue_offset >= 210) OR "
        "((topic = 'short' AND queue_id = 0) AND queue_offset >= 10)"
    )
    # Of most of so many offsets, the lake has no message.
    assert len(list(read._start_offset_conditions({huge: 0}, {huge: 2**62}))) == 1000


def test_messages_deleted_by_the_broker_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def run_sql(table: object, name: str, sql: str, **more: bool) -> object:
        asked.append(sql)
        return reader.run_sql(table, name, sql, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(messages_table, "run_sql", run_sql)
    measured(tmp_path, OLD, 143)
    assert asked
    assert all("physical_offset >= 1000" in sql for sql in asked)
    assert not any("last_value" in sql for sql in asked)


def test_queues_of_a_topic_are_read_in_one_query_if_that_is_cheap(tmp_path: Path) -> None:
    messages = messages_of(make_lake(tmp_path, []))
    many = {Queue(BROKER, "orders", number): 1000 + number % 10 for number in range(500)}
    assert list(messages._start_offset_conditions(many)) == ["(topic = 'orders' AND queue_offset >= 1000)"]
    many[Queue(BROKER, "orders", 500)] = 0
    assert len(list(messages._start_offset_conditions(many))) == 3  # 200 queues each


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ([], {0, 1, 2, 5}),
        ([0, 1, 2], {5}),
        ([0, 5], {1, 2}),
        ([2**31 - 1], {0, 1, 2, 5}),
        ([0, 1, 2, 5], set()),
    ],
)
def test_queues_without_a_cursor_are_found(tmp_path: Path, known: list[int], expected: set[int]) -> None:
    rows = [
        record(1000 + 100 * queue_id, 60, topic, queue_id=queue_id, queue_offset=7)
        for number, topic in enumerate(("orders", "others", "%RETRY%billing", "%RETRY%other"))
        for queue_id in [0, 1, 2, 5]
    ]
    lake = make_lake(tmp_path, [*rows, record(500, 60, "orders", queue_id=9)])  # the broker has deleted it
    cursors = [LagCursor(Queue(BROKER, "orders", queue_id), 3) for queue_id in known]
    counter = BacklogCounter(cursors, None, 1000, {"orders": [ALL], "%RETRY%billing": [ALL]})
    messages = messages_of(lake)
    spans = messages.measure_queues(CountLimits(END, None, 1000), list(counter.topics), [counter])
    found = {cursor.queue: behind.messages for cursor, behind in counter.backlog_by_cursor.items() if not cursor.offset}
    retries = {0, 1, 2, 5}
    assert found == {Queue(BROKER, "orders", queue_id): 1 for queue_id in expected} | {
        Queue(BROKER, "%RETRY%billing", queue_id): 1 for queue_id in retries
    }
    assert found.keys() <= spans.keys()


def test_ends_are_those_of_the_newest_messages_in_the_log(tmp_path: Path) -> None:
    rows = [
        *messages(range(5), 0, 0),  # deleted by the broker
        *messages(range(5, 9), 10, 1000),
        *messages(range(2), 90, 5000),  # the topic was created again
        *messages(range(3), 95, 6000, "payments"),
        *messages(range(3), 95, 7000, "known"),
        record(9000, 60.0 * 121, "payments", queue_offset=3),  # later
    ]
    lake = make_lake(tmp_path, rows)
    found = messages_of(lake).read_queue_ends(CountLimits(END, HOUR_BEFORE, 1000), ["known"])
    assert {queue.topic: span.end for queue, span in found.items()} == {"orders": 2, "payments": 3}


def test_queues_of_a_deleted_topic_are_found_with_one_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [record(100 + 10 * queue, 10, "orders", queue_id=queue, queue_offset=7) for queue in range(4)]
    rows += [record(500 + 10 * queue, 60, "orders", queue_id=queue, queue_offset=0) for queue in range(3)]
    lake = make_lake(tmp_path, rows)
    messages = messages_of(lake)
    asked: list[str] = []
    ask = LakeMessages._query_rows

    def spy(self: LakeMessages, sql: str) -> list[dict[str, Any]]:
        asked.append(sql)
        return ask(self, sql)

    monkeypatch.setattr(LakeMessages, "_query_rows", spy)
    spans = messages.measure_queues(CountLimits(END, None, None), ["orders"], [])
    assert {queue.queue_id: (span.end, span.floor) for queue, span in spans.items()} == {
        **{queue: (1, 500 + 10 * queue) for queue in range(3)},
        3: (0, 500),
    }
    assert len([sql for sql in asked if "floor" in sql]) == 1


def test_a_topic_of_a_lake_can_be_created_again_several_times(tmp_path: Path) -> None:
    places = [(0, 0, 10), (1, 0, 20), (0, 0, 30), (1, 0, 40), (0, 1, 45), (0, 0, 50)]
    rows = [record(place, place, "orders", queue_id=queue, queue_offset=offset) for queue, offset, place in places]
    lake = make_lake(tmp_path, rows)
    spans = messages_of(lake).measure_queues(CountLimits(END, None, None), ["orders"], [])
    assert {queue.queue_id: (span.end, span.floor) for queue, span in spans.items()} == {0: (1, 50), 1: (0, 50)}
