"""Rows of lag with the columns `QUEUE_LAG`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commitlake.pipelines.lag.group_lag import LagRow
from commitlake.pipelines.lag.verdicts import FigureBounds

Row = Mapping[str, Any]


def queue_lag_row(row: LagRow) -> Row:
    """Return the lag of a group in a queue, with the columns `QUEUE_LAG`."""
    return {
        "broker": row.broker,
        "kind": row.kind,
        "group": row.group,
        "topic": row.topic,
        "queue_id": row.queue_id,
        "as_of": row.as_of,
        "offset_min": row.offset.low,
        "offset_max": row.offset.high,
        "end": row.end,
        **figure_columns(row.messages, row.bytes, row.seconds),
        "next_message_time": row.next_time,
        "filter": row.filter,
        "members": row.members,
    }


def figure_columns(messages: FigureBounds, size: FigureBounds, seconds: FigureBounds) -> Row:
    """Return the columns for the lower and upper bounds of a lag in messages, bytes and seconds."""
    return {
        "messages_min": int(messages.low),
        "messages_max": None if messages.high is None else int(messages.high),
        "bytes_min": int(size.low),
        "bytes_max": None if size.high is None else int(size.high),
        "time_lag_s_min": seconds.low,
        "time_lag_s_max": seconds.high,
    }
