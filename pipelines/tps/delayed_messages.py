"""Counts delayed messages and timers that wait, were delivered, or are overdue, by topic and level.

A delayed message is due after the delay of its level, a timer at the time in its property. It was delivered if its
destination has a later copy, with the same client message id and as many failed consumptions. As of the last known
minute of a broker, it waits if it is not due yet, and is overdue if it is due and has no copy. If the broker stored a
timer several times, only the last record counts.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import text_literal
from commitlake.connectors.lake.store_config import SETTING, read_store_config
from commitlake.pipelines.tps.coverage import Coverage
from commitlake.pipelines.tps.rates_query import MESSAGES, MINUTE, RatesQuestion
from commitlake.pipelines.verify.observed_delays import read_archived_delays
from commitlake.schemas.layouts.rocketmq.broker_conf import DEFAULT_DELAY_LEVELS_MS
from commitlake.schemas.times import EPOCH, MILLISECOND, epoch_us

COLUMNS = (
    "broker", "kind", "level", "topic", "messages", "waiting", "delivered", "overdue", "oldest_overdue", "max_late_s",
    "without_id", "outlives_segment",
)  # fmt: skip
"""Columns of the result for each broker, kind, level and topic."""
NEEDED = ("unique_key", "reconsume_times", "physical_offset")
"""Columns of `messages` that are read in addition to those for rates."""
DEFAULT_SEGMENT_LIFE = datetime.timedelta(hours=72)
"""Default of a broker's setting fileReservedTime."""
MAX_DELAYED = 5_000_000
"""Largest number of delayed messages, all of which are held in memory."""
_US = "'Timestamp(Microsecond, Some(\"UTC\"))'"


def count_delayed_messages(
    lake: Lake,
    coverage: Coverage,
    question: RatesQuestion,
    segment_retention: datetime.timedelta,
    *,
    has_config: bool = True,
) -> list[dict[str, Any]]:
    """Count the delayed messages of a time range by state, such as delivered, waiting or overdue.

    Args:
        question: brokers, and the time range in which the messages were stored.
        segment_retention: time for which a segment is kept.
        has_config: True if the lake knows the brokers' delay levels.

    Returns:
        Rows of `COLUMNS`, those with most overdue messages first. `topic` is the original topic of the messages.

    Raises:
        LakeError: if there are more than `MAX_DELAYED`.
    """
    if not coverage.spans:
        return []
    table = lake.table("messages")
    where = f"kind IN ('delay', 'timer') AND {question.where_sql(MESSAGES)}"
    count = run_sql(table, "messages", f"SELECT count(*) FROM messages WHERE {where}").read_all().column(0)[0].as_py()
    if count > MAX_DELAYED:
        raise LakeError(
            f"{count:,} delayed messages are in this time range, which are more than the limit of {MAX_DELAYED:,}: use "
            "a shorter time range"
        )
    delays = {broker: _read_delays_ms(lake, broker, has_config=has_config) for broker in coverage.spans}
    ends = {broker: span.end - MINUTE for broker, span in coverage.spans.items()}
    has_origins = "origin_topic" in {field.name for field in table.schema().fields}
    sql = _delayed_sql(where, epoch_us(question.start), ends, delays, segment_retention, has_origins=has_origins)
    rows: list[dict[str, Any]] = rows_to_dicts(run_sql(table, "messages", sql).read_all())
    for row in rows:
        oldest = row.pop("oldest_overdue_us")
        row["oldest_overdue"] = None if oldest is None else EPOCH + oldest // 1000 * MILLISECOND
    key = ("broker", "kind", "level", "topic")
    return sorted(rows, key=lambda row: (-row["overdue"], -row["messages"], [str(row[name]) for name in key]))


def _read_delays_ms(lake: Lake, broker: str, *, has_config: bool) -> Sequence[int]:
    """Return the delays of a broker's levels in milliseconds; the defaults if the lake does not have its setting."""
    found = read_archived_delays(read_store_config(lake, broker).values_of_kind(SETTING)) if has_config else None
    return found or DEFAULT_DELAY_LEVELS_MS


def _delayed_sql(
    where: str,
    start_us: int,
    end_times_by_broker: Mapping[str, datetime.datetime],
    delays: Mapping[str, Sequence[int]],
    segment_retention: datetime.timedelta,
    *,
    has_origins: bool,
) -> str:
    levels = ", ".join(
        f"({text_literal(broker)}, {queue_id}, {1000 * delay_ms})"
        for broker, all_delays in delays.items()
        for queue_id, delay_ms in enumerate(all_delays)
    )
    brokers = ", ".join(f"({text_literal(broker)}, {epoch_us(end)})" for broker, end in end_times_by_broker.items())
    topic = "coalesce(m.origin_topic, m.topic)" if has_origins else "m.topic"
    stored = f"arrow_cast(arrow_cast(m.store_timestamp, {_US}), 'Int64')"
    life_us = segment_retention // datetime.timedelta(microseconds=1)
    return f"""
WITH levels(broker, queue_id, delay_us) AS (VALUES {levels}),
ends(broker, end_us) AS (VALUES {brokers}),
removed AS (
    SELECT DISTINCT m.broker, m.properties['TIMER_DEL_UNIQKEY'] AS unique_key FROM messages m
    WHERE m.kind = 'timer' AND m.properties['TIMER_DEL_UNIQKEY'] IS NOT NULL
),
parked AS (
    SELECT m.broker, m.kind, m.queue_id, {topic} AS topic, m.properties['REAL_TOPIC'] AS goes_to, m.unique_key,
        m.reconsume_times, m.physical_offset, {stored} AS stored_us,
        1000 * TRY_CAST(m.properties['TIMER_OUT_MS'] AS BIGINT) AS timer_us,
        row_number() OVER (
            PARTITION BY m.broker, m.kind,
                CASE WHEN m.kind = 'timer' AND m.unique_key IS NOT NULL THEN m.unique_key
                    ELSE CAST(m.physical_offset AS VARCHAR) END
            ORDER BY m.physical_offset DESC
        ) AS place
    FROM messages m WHERE {where} AND m.properties['TIMER_DEL_UNIQKEY'] IS NULL
),
last AS (
    SELECT p.broker, p.kind, CASE WHEN p.kind = 'delay' THEN p.queue_id + 1 END AS level, p.topic, p.goes_to,
        p.unique_key, p.reconsume_times, p.physical_offset, p.stored_us, e.end_us,
        CASE WHEN p.kind = 'timer' THEN p.timer_us ELSE p.stored_us + l.delay_us END AS due_us
    FROM parked p JOIN ends e ON e.broker = p.broker
    LEFT JOIN levels l ON l.broker = p.broker AND l.queue_id = p.queue_id AND p.kind = 'delay'
    LEFT ANTI JOIN removed r ON r.broker = p.broker AND r.unique_key = p.unique_key AND p.kind = 'timer'
    WHERE p.place = 1
),
came AS (
    SELECT w.broker, w.physical_offset, min({stored}) AS came_us
    FROM last w JOIN messages m ON m.broker = w.broker AND m.unique_key = w.unique_key AND m.topic = w.goes_to
        AND m.reconsume_times = w.reconsume_times
    WHERE m.physical_offset > w.physical_offset AND {stored} >= {start_us}
    GROUP BY w.broker, w.physical_offset
)
SELECT w.broker, w.kind, w.level, w.topic, count(*) AS messages,
    sum(CASE WHEN c.came_us IS NULL AND w.unique_key IS NOT NULL AND w.due_us > w.end_us THEN 1 ELSE 0 END) AS waiting,
    sum(CASE WHEN c.came_us IS NOT NULL THEN 1 ELSE 0 END) AS delivered,
    sum(CASE WHEN c.came_us IS NULL AND w.unique_key IS NOT NULL AND w.due_us <= w.end_us THEN 1 ELSE 0 END) AS overdue,
    min(CASE WHEN c.came_us IS NULL AND w.unique_key IS NOT NULL AND w.due_us <= w.end_us THEN w.due_us END)
        AS oldest_overdue_us,
    max(CASE WHEN c.came_us > w.due_us THEN (c.came_us - w.due_us) / 1000000.0 WHEN c.came_us IS NOT NULL THEN 0.0 END)
        AS max_late_s,
    sum(CASE WHEN w.unique_key IS NULL THEN 1 ELSE 0 END) AS without_id,
    sum(CASE WHEN w.due_us - w.stored_us > {life_us} THEN 1 ELSE 0 END) AS outlives_segment
FROM last w LEFT JOIN came c ON c.broker = w.broker AND c.physical_offset = w.physical_offset
GROUP BY w.broker, w.kind, w.level, w.topic
"""
