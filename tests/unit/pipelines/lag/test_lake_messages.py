"""Where queues begin and end, told from the messages of a lake."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

import pytest

from commitlake.connectors.lake import reader
from commitlake.connectors.lake.reader import open_table
from commitlake.pipelines.lag import lake_messages
from commitlake.pipelines.lag.counting import BacklogCounter, Cursor, Queue
from commitlake.pipelines.lag.lake_messages import LakeMessages
from commitlake.pipelines.lag.queues import QueueSpan, Times
from tests.support.lineage_lakes import BROKER, START, make_lake, record

END = START + datetime.timedelta(hours=2)
HOUR_BEFORE = END - datetime.timedelta(hours=1)
ORDERS = Queue(BROKER, "orders", 0)
QUEUE = range(100, 140)
"""Offsets of a queue that began long ago: one a minute is still there, for 40 minutes, and 5 of the last hour."""


def messages(
    offsets: Sequence[int], minute: int, first_physical: int, topic: str = "orders"
) -> list[dict[str, object]]:
    """Messages of a queue, one a minute."""
    return [
        record(first_physical + 100 * number, 60.0 * (minute + number), topic, queue_offset=offset)
        for number, offset in enumerate(offsets)
    ]


def measured(
    folder: Path, rows: list[dict[str, object]], start: int, log_start: int | None = 1000
) -> tuple[QueueSpan | None, int]:
    """Return the span of the queue, and the messages behind an offset."""
    lake = make_lake(folder, rows)
    cursor = Cursor(ORDERS, start)
    counter = BacklogCounter([cursor], None, log_start)
    times = Times(END, HOUR_BEFORE, log_start)
    spans = LakeMessages(open_table(lake, "messages"), BROKER, lake.bodies).measure(times, ["orders"], [counter])
    return spans.get(ORDERS), counter.behind[cursor].messages


OLD = messages(range(100, 140), 10, 1000) + messages(range(140, 145), 70, 9000)


@pytest.mark.parametrize(
    ("start", "span", "behind"),
    [
        (145, QueueSpan(144, 145, 140), 0),  # at the end
        (143, QueueSpan(140, 145, 140), 2),  # a little behind
        (110, QueueSpan(109, 145, 140), 35),  # far behind
        (20, QueueSpan(100, 145, 140), 45),  # its messages are gone
        (999, QueueSpan(140, 145, 140), 0),  # beyond the end
    ],
)
def test_an_old_queue_is_told_from_its_newest_messages(
    tmp_path: Path, start: int, span: QueueSpan, behind: int
) -> None:
    found, counted = measured(tmp_path, OLD, start)
    assert found is not None
    assert (found.end, found.compared_end, counted) == (span.end, span.compared_end, behind)
    lost, expected = (None if one.first is None else max(0, one.first - start) for one in (found, span))
    assert lost == expected  # nothing else is told by the first message


def test_a_queue_without_a_message_in_the_brokers_log_ends_where_the_archive_says(tmp_path: Path) -> None:
    assert measured(tmp_path, OLD, 145, log_start=50_000) == (QueueSpan(145, 145, 140), 0)


def test_a_queue_of_which_nothing_was_archived_has_no_span(tmp_path: Path) -> None:
    assert measured(tmp_path, messages(range(70, 80), 1, 1000, "payments"), 5) == (None, 0)


@pytest.mark.parametrize("start", [0, 20, 120, 150])
def test_a_topic_that_was_made_again_is_told_whatever_offset_a_group_has(tmp_path: Path, start: int) -> None:
    again = OLD + messages(range(30), 80, 20_000)
    found, counted = measured(tmp_path, again, start)
    assert found is not None
    assert (found.end, found.floor, counted) == (30, 20_000, max(0, 30 - start))


def test_messages_that_the_broker_has_no_longer_are_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def run_sql(table: object, name: str, sql: str, **more: bool) -> object:
        asked.append(sql)
        return reader.run_sql(table, name, sql, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(lake_messages, "run_sql", run_sql)
    measured(tmp_path, OLD, 143)
    assert asked
    assert all("physical_offset >= 1000" in sql for sql in asked)
    assert not any("last_value" in sql for sql in asked)


def test_queues_of_a_topic_are_named_at_once_where_little_else_is_read() -> None:
    many = {Queue(BROKER, "orders", number): 1000 + number % 10 for number in range(500)}
    assert list(lake_messages._places(many)) == ["(topic = 'orders' AND queue_offset >= 1000)"]
    many[Queue(BROKER, "orders", 500)] = 0
    assert len(list(lake_messages._places(many))) == 3  # 200 queues each
