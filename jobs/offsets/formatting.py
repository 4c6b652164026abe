"""Formatting of offsets for output."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence

from commitlake.jobs.arguments.times import time_text
from commitlake.jobs.lag.report import bounds_text, seconds_text
from commitlake.jobs.report.rows_output import Row
from commitlake.pipelines.lag.group_summaries import sum_of_bounds
from commitlake.pipelines.lag.verdicts import FigureBounds
from commitlake.pipelines.offsets.group_offsets import PlannedOffset
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report import format_whole_number
from commitlake.schemas.report_columns import Column

GROUP_COLUMNS = (
    Column("group"), Column("broker", 6), Column("topic"), Column("queue_id"), Column("offset"), Column("bounds", 2),
    Column("now", 1, key="current"), Column("messages", 3, is_number=True),
    Column("time_lag", 4, key="time_lag_s", is_number=True, text=seconds_text),
    Column("next_message", 5, key="next_message_time"), Column("notes", is_notes=True),
)  # fmt: skip
PLAIN_COLUMNS = (
    "broker", "group", "topic", "queue_id", "offset", "offset_min", "offset_max", "current", "first", "end",
    "messages_min", "messages_max", "bytes", "next_message_time", "time_lag_s", "problem", "notes",
)  # fmt: skip


def format_table_row(row: Row) -> Row:
    """Convert a machine-readable row into the row of the printed table."""
    low, high, messages = row["offset_min"], row["offset_max"], row["messages_min"]
    return row | {
        "bounds": None if low == high and not row["problem"] else _bounds_text(low, high),
        "messages": None if messages is None else _count_text(FigureBounds(messages, row["messages_max"])),
        "notes": [*filter(None, [row["problem"]]), *row["notes"]],
    }


def _bounds_text(low: int, high: int | None) -> str:
    if low == high:
        return str(low)
    return f"{low} or more" if high is None else f"{low} to {high}"


def _waiting_seconds(row: PlannedOffset, now: datetime.datetime) -> float | None:
    if row.lag is None or row.lag.next_time is None:
        return None
    return max(0.0, (now - row.lag.next_time).total_seconds())


def machine_readable_rows(rows: Iterable[PlannedOffset], group: str, now: datetime.datetime) -> Iterator[Row]:
    """Yield a machine-readable row for each queue's offset."""
    for row in rows:
        asked, lag, live = row.asked, row.lag, row.live
        yield {
            "broker": asked.queue.broker,
            "group": group,
            "topic": asked.queue.topic,
            "queue_id": asked.queue.queue_id,
            "offset": None if asked.problem else asked.low,
            "offset_min": asked.low,
            "offset_max": asked.high,
            "current": row.current,
            "first": None if live is None else live.first,
            "end": None if live is None else live.end,
            "messages_min": None if lag is None else int(lag.messages.low),
            "messages_max": None if lag is None or lag.messages.high is None else int(lag.messages.high),
            "bytes": None if lag is None else lag.bytes,
            "next_message_time": None if lag is None or lag.next_time is None else time_text(lag.next_time),
            "time_lag_s": _waiting_seconds(row, now),
            "problem": asked.problem or None,
            "notes": list(asked.notes),
        }


def summary_sentence(rows: Sequence[PlannedOffset], group: str) -> str:
    """Return a sentence that sums up the offsets of all queues."""
    settable = [row for row in rows if not row.asked.problem]
    bounded = sum(not row.asked.is_exact for row in settable)
    messages = sum_of_bounds(row.lag.messages for row in settable if row.lag is not None)
    text = f"{format_count(len(settable), 'offset')} of {group}"
    text += f", {bounded} of them the lower of two bounds" if bounded else ""
    return f"{text}: once they are set, {_count_text(messages)} messages are behind"


def _count_text(bounds: FigureBounds) -> str:
    return bounds_text(bounds, format_whole_number)
