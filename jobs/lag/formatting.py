"""Formatting of rows of lag for output."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from commitlake.jobs.cli.durations import duration_text
from commitlake.jobs.cli.sizes import size_text
from commitlake.jobs.cli.text_table import Column
from commitlake.pipelines.lag.groups import GroupSummary, times_of, worst_first
from commitlake.pipelines.lag.measure import Lag
from commitlake.pipelines.lag.verdicts import FigureBounds, LagVerdict
from commitlake.schemas.counts import count_text
from commitlake.schemas.layouts.rocketmq.topics import RETRY_PREFIX
from commitlake.schemas.times import iso_text

_FIGURES = (
    Column("messages", is_right=True), Column("lost", 2, is_right=True), Column("time_lag", 1, is_right=True),
    Column("bytes", 6, is_right=True), Column("consume_tps", 4, is_right=True), Column("drain", 5, is_right=True),
    Column("verdict"), Column("filter", 7), Column("notes", is_notes=True),
)  # fmt: skip
GROUP_COLUMNS = (Column("group"), Column("topics", 3), Column("queues", 8, is_right=True), *_FIGURES)
QUEUE_COLUMNS = (Column("group"), Column("topic"), Column("queue_id"), *_FIGURES)
PLAIN_COLUMNS = (
    "broker", "kind", "group", "topic", "queue_id", "as_of", "offset_min", "offset_max", "end", "difference",
    "messages_min", "messages_max", "lost_min", "lost_max", "bytes_min", "bytes_max", "time_lag_s_min",
    "time_lag_s_max", "next_message_time", "last_consumed_time", "consume_tps", "produce_tps", "drain_s", "compared_at",
    "verdict", "filter", "filter_as_of", "members", "notes",
)  # fmt: skip
Row = dict[str, Any]


def queue_rows(rows: Iterable[Lag]) -> Iterator[Row]:
    """Yield a row for people for each queue."""
    for row in rows:
        yield {"topic": row.topic, "queue_id": row.queue_id, **_figures(GroupSummary(_name_of(row), [row]))}


def group_rows(rows: Iterable[Lag]) -> Iterator[Row]:
    """Yield a row for people for each group, and for each kind of messages that no group consumes."""
    found: dict[str, list[Lag]] = {}
    for row in rows:
        found.setdefault(_name_of(row), []).append(row)
    for name, of_group in found.items():
        group = GroupSummary(name, of_group)
        first, *others = sorted(group.topics, key=lambda topic: (topic.startswith(RETRY_PREFIX), topic))
        more = f" and {len(others):,} more" if others else ""
        yield {"topics": first + more, "queues": f"{len(of_group):,}", **_figures(group)}


def _name_of(row: Lag) -> str:
    return row.group or f"({row.kind})"


def _figures(group: GroupSummary) -> Row:
    rates = [row.judged.consume_tps for row in group.rows if row.judged.consume_tps is not None]
    return {
        "group": group.group,
        "messages": bounded_text(group.messages, lambda number: f"{number:,.0f}"),
        "lost": bounded_text(group.lost, lambda number: f"{number:,.0f}") if group.lost.largest else None,
        "time_lag": bounded_text(group.seconds, seconds_text),
        "bytes": bounded_text(group.bytes, size_text),
        "consume_tps": f"{sum(rates):,.1f}" if rates else None,
        "drain": _drain_text(group.rows),
        "verdict": str(group.verdict),
        "filter": " / ".join(dict.fromkeys(row.filter for row in group.rows if row.filter)),
        "notes": [note for row in group.rows for note in row.notes],
    }


def _drain_text(rows: Sequence[Lag]) -> str | None:
    """Return how long the slowest queue takes until nothing waits; None if one of them does not get there."""
    longest = 0.0
    for row in rows:
        drain = None if row.messages.high is None else row.judged.drain_seconds(int(row.messages.high))
        if drain is None:
            return None
        longest = max(longest, drain)
    return seconds_text(longest) if longest else None


def seconds_text(seconds: float) -> str:
    """Format a number of seconds for people."""
    return duration_text(datetime.timedelta(seconds=seconds))


def bounded_text(bounds: FigureBounds, text: Callable[[float], str]) -> str:
    """Format a figure, or its lower and upper bound, for people."""
    if bounds.high is None:
        return f"{text(bounds.low)} or more"
    if bounds.is_exact:
        return text(bounds.low)
    return f"{text(bounds.low)} to {text(bounds.high)}" if bounds.low else f"up to {text(bounds.high)}"


def plain_rows(rows: Iterable[Lag]) -> Iterator[Row]:
    """Yield rows for programs."""
    times: dict[datetime.datetime, str] = {}  # there are few times, and many rows have the same one
    for row in rows:
        judged = row.judged
        if row.as_of not in times:
            times[row.as_of] = iso_text(row.as_of, "milliseconds")
        yield {
            "broker": row.broker,
            "kind": row.kind,
            "group": row.group or None,
            "topic": row.topic,
            "queue_id": row.queue_id,
            "as_of": times[row.as_of],
            "offset_min": row.offset.low,
            "offset_max": row.offset.high,
            "end": row.end,
            "difference": None if row.end is None else row.end - row.offset.low,
            "messages_min": int(row.messages.low),
            "messages_max": None if row.messages.high is None else int(row.messages.high),
            "lost_min": int(row.lost.low),
            "lost_max": int(row.lost.largest),
            "bytes_min": int(row.bytes.low),
            "bytes_max": None if row.bytes.high is None else int(row.bytes.high),
            "time_lag_s_min": row.seconds.low,
            "time_lag_s_max": row.seconds.high,
            "next_message_time": _time_text(row.next_time),
            "last_consumed_time": _time_text(row.last_consumed_time),
            "consume_tps": judged.consume_tps,
            "produce_tps": judged.produce_tps,
            "drain_s": None if row.messages.high is None else judged.drain_seconds(int(row.messages.high)),
            "compared_at": _time_text(row.compared_at),
            "verdict": str(judged.verdict),
            "filter": row.filter,
            "filter_as_of": _time_text(row.filter_as_of),
            "members": row.members,
            "notes": list(row.notes),
        }


def _time_text(time: datetime.datetime | None) -> str | None:
    return None if time is None else iso_text(time, "milliseconds")


def summary(rows: Sequence[Lag]) -> str:
    """Return a sentence that sums up all rows, with the time of the groups' figures."""
    groups = {row.group for row in rows if row.kind in {"group", "retry"}}
    behind = {row.group for row in rows if row.messages.low or row.messages.high is None or row.messages.high}
    if not rows:
        return "no consumer offsets match"
    worst = worst_first(rows)[0]
    first, *others = (f"{time:%Y-%m-%dT%H:%M:%SZ}" for time in times_of(rows))
    as_of = f"as of {first} to {others[-1]}" if others else f"as of {first}"
    text = f"{count_text(len(groups), 'group')}, {len(behind & groups)} of them behind"
    if worst.judged.verdict is LagVerdict.OK:
        return f"{text}, {as_of}"
    place = f"{worst.group or worst.kind} on {worst.topic}, queue {worst.queue_id}"
    return f"{text}; worst: {place}, is {worst.judged.verdict}, {as_of}"
