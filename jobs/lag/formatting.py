"""Formatting of rows of lag for output."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from commitlake.jobs.cli.durations import duration_text
from commitlake.jobs.cli.sizes import size_text
from commitlake.pipelines.lag.groups import times_of, worst_first
from commitlake.pipelines.lag.measure import Lag
from commitlake.pipelines.lag.verdicts import FigureBounds, LagVerdict
from commitlake.schemas.counts import count_text
from commitlake.schemas.times import iso_text

TABLE_COLUMNS = (
    "group", "topic", "queue_id", "messages", "lost", "time_lag", "bytes", "consume_tps", "drain", "verdict", "filter",
    "why",
)  # fmt: skip
PLAIN_COLUMNS = (
    "broker", "kind", "group", "topic", "queue_id", "as_of", "offset_min", "offset_max", "end", "difference",
    "messages_min", "messages_max", "lost_min", "lost_max", "bytes_min", "bytes_max", "time_lag_s_min",
    "time_lag_s_max", "next_message_time", "last_consumed_time", "consume_tps", "produce_tps", "drain_s", "compared_at",
    "verdict", "filter", "filter_as_of", "members", "notes",
)  # fmt: skip
Row = dict[str, Any]


def table_rows(rows: Iterable[Lag]) -> Iterator[Row]:
    """Yield rows for people."""
    for row in rows:
        drain = None if row.messages.high is None else row.judged.drain_seconds(int(row.messages.high))
        yield {
            "group": row.group or f"({row.kind})",
            "topic": row.topic,
            "queue_id": row.queue_id,
            "messages": bounded_text(row.messages, lambda number: f"{number:,.0f}"),
            "lost": bounded_text(row.lost, lambda number: f"{number:,.0f}") if row.lost.largest else None,
            "time_lag": bounded_text(row.seconds, seconds_text),
            "bytes": bounded_text(row.bytes, size_text),
            "consume_tps": None if row.judged.consume_tps is None else f"{row.judged.consume_tps:,.1f}",
            "drain": None if not drain else seconds_text(drain),
            "verdict": str(row.judged.verdict),
            "filter": row.filter,
            "why": "; ".join(row.notes),
        }


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
