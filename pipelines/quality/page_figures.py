"""Sums of a profile for the page: the largest topics separately, all others together.

A part holds whole topics, so the largest topics of all parts are among the largest of each. Memory grows only with the
number of time windows: sixteen bytes for each ten minutes, and as much for each topic that is shown.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from commitlake.schemas.tables.profile import WINDOW_SECONDS

_TOPIC = ["broker", "topic"]
_SECONDS = datetime.timedelta(seconds=WINDOW_SECONDS)
_SUMS = ("messages", "bytes", "missing_offsets")
FIGURE_COLUMNS = (*_TOPIC, "queue_id", "window_start", *_SUMS, "min_store_timestamp", "max_store_timestamp")
"""Columns of a profile from which the sums are computed."""
Topic = tuple[str | None, str | None]
Counts = dict[datetime.datetime, int]


@dataclass(frozen=True, slots=True)
class ChartSpan:
    """Time range that all charts of a run's page show."""

    begin: datetime.datetime
    end: datetime.datetime


class RunPageSummary:
    """Sums of message counts for the HTML page of a run, collected part by part.

    Args:
        most: number of topics that are shown separately, the largest first.

    Attributes:
        messages: number of messages.
        bytes: size of the log.
        topics: number of topics.
        queues: number of queues.
        others: sums of all other topics, by column.
        first_time: store time of the first message; None if no message has one.
        last_time: store time of the last message.
    """

    def __init__(self, most: int = 30) -> None:
        self.messages = self.bytes = self.topics = self.queues = 0
        self.others = dict.fromkeys(_SUMS, 0)
        self.first_time: datetime.datetime | None = None
        self.last_time: datetime.datetime | None = None
        self._most = most
        self._shown: pa.Table | None = None
        self._windows: pa.Table | None = None
        self._by_topic: dict[Topic, pa.Table] = {}

    def add_windows(self, windows: pa.Table) -> None:
        """Add the message counts of some topics, with all time windows of each of them."""
        grouped = windows.group_by(_TOPIC).aggregate(
            [*((name, "sum") for name in _SUMS), ("queue_id", "count_distinct")]
        )
        self.messages += _sum_column(windows, "messages")
        self.bytes += _sum_column(windows, "bytes")
        self.topics += grouped.num_rows
        self.queues += int(windows.group_by([*_TOPIC, "queue_id"]).aggregate([]).num_rows)
        self._add_window_times(windows)
        counts = _sum_by_window(windows)
        self._windows = counts if self._windows is None else _sum_counts_by_window([self._windows, counts])
        self._keep_largest_topics(grouped, windows)

    def _add_window_times(self, windows: pa.Table) -> None:
        first, last = pc.min(windows.column("min_store_timestamp")), pc.max(windows.column("max_store_timestamp"))
        if first.is_valid and last.is_valid:
            self.first_time = min(self.first_time or first.as_py(), first.as_py())
            self.last_time = max(self.last_time or last.as_py(), last.as_py())

    def _keep_largest_topics(self, topic_sums: pa.Table, windows: pa.Table) -> None:
        """Merge new topics into the list of the largest ones, and add the rest to the sums in `others`."""
        topics = topic_sums if self._shown is None else pa.concat_tables([self._shown, topic_sums])
        ordered = topics.sort_by([("messages_sum", "descending"), ("topic", "ascending"), ("broker", "ascending")])
        # A copy, because a slice would keep all of the part's topics in memory.
        self._shown = ordered.take(pa.array(range(min(self._most, ordered.num_rows)), pa.int64()))
        for name in _SUMS:
            self.others[name] += _sum_column(ordered.slice(self._most), f"{name}_sum")
        shown = {(row["broker"], row["topic"]) for row in self._shown.to_pylist()}
        new = _counts_by_topic(windows, shown - self._by_topic.keys())
        self._by_topic = {topic: counts for topic, counts in {**self._by_topic, **new}.items() if topic in shown}

    @property
    def time_span(self) -> ChartSpan | None:
        """Range from the first to the last time window with messages; None if no message has a time."""
        if self._windows is None or not self._windows.num_rows:
            return None
        times = pc.min_max(self._windows.column("window_start")).as_py()
        # The end of a window in the year 9999 would be no datetime.
        latest = datetime.datetime.max.replace(tzinfo=datetime.UTC) - _SECONDS
        return ChartSpan(times["min"], min(times["max"], latest) + _SECONDS)

    @property
    def counts_by_window(self) -> Counts:
        """Number of messages by time window, without messages that have no time."""
        return _counts_by_window_start(self._windows)

    @property
    def topic_rows(self) -> Sequence[Mapping[str, Any]]:
        """Rows of the largest topics: topic, sums such as `messages_sum`, and number of queues."""
        rows: list[Mapping[str, Any]] = [] if self._shown is None else self._shown.to_pylist()
        return rows

    def counts_of_topic(self, topic: Topic) -> Counts:
        """Return the number of messages by window, for one of the largest topics."""
        return _counts_by_window_start(self._by_topic.get(topic))


def _counts_by_topic(windows: pa.Table, topics: set[Topic]) -> dict[Topic, pa.Table]:
    narrow = windows.select([*_TOPIC, "window_start", "messages"])
    return {
        key: _sum_by_window(narrow.filter(pc.and_(*map(_equal_or_null, _topic_columns(narrow), key)))) for key in topics
    }


def _topic_columns(profile: pa.Table) -> list[pa.ChunkedArray]:
    return [profile.column(name) for name in _TOPIC]


def _equal_or_null(column: pa.ChunkedArray, name: str | None) -> pa.ChunkedArray:
    return pc.is_null(column) if name is None else pc.equal(column, name).fill_null(False)


def _sum_by_window(profile: pa.Table) -> pa.Table:
    timed = profile.select(["window_start", "messages"]).filter(pc.field("window_start").is_valid())
    return timed.group_by("window_start").aggregate([("messages", "sum")])


def _sum_counts_by_window(counts: Sequence[pa.Table]) -> pa.Table:
    both = pa.concat_tables(counts).rename_columns({"messages_sum": "messages"})
    return both.group_by("window_start").aggregate([("messages", "sum")])


def _counts_by_window_start(counts: pa.Table | None) -> Counts:
    if counts is None:
        return {}
    return dict(zip(counts.column("window_start").to_pylist(), counts.column("messages_sum").to_pylist(), strict=True))


def _sum_column(table: pa.Table, name: str) -> int:
    return int(pc.sum(table.column(name)).as_py() or 0)
