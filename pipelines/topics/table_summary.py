"""Summary of the tables of a topic: rows, misfits by reason, the time of the newest message, and current rows."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field

from commitlake.connectors.lake.delta_log.file_actions import read_table_files
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import text_literal
from commitlake.pipelines.topics.topic_config import TopicConfig

_MISFITS = "topic_misfits"


@dataclass(frozen=True, slots=True)
class TopicTableSummary:
    """Numbers of rows and misfits of the table of a topic.

    Attributes:
        rows: number of its rows.
        misfits: numbers of messages that do not fit, by reason, the most frequent first.
        newest: store time of the newest message in it; None if it is empty.
        current_rows: number of rows that the source has, by its changes; None if there is no table of current rows.
        deleted_rows: number of rows that it had; likewise.
    """

    rows: int = 0
    misfits: Mapping[str, int] = field(default_factory=dict)
    newest: datetime.datetime | None = None
    current_rows: int | None = None
    deleted_rows: int | None = None


def summarize_topic_table(lake: Lake, config: TopicConfig) -> TopicTableSummary:
    """Return the numbers of rows and misfits of the table of a topic; zero for one that does not exist yet."""
    table, misfits = lake.find(config.lake_table), lake.find(_MISFITS)
    by_reason: dict[str, int] = {}
    if misfits is not None:
        where = f"topic_table = {text_literal(config.table)}"
        sql = f"SELECT reason, count(*) AS n FROM {_MISFITS} WHERE {where} GROUP BY reason ORDER BY n DESC, reason"
        by_reason = {row["reason"]: row["n"] for row in run_sql(misfits, _MISFITS, sql).read_all().to_pylist()}
    if table is None:
        return TopicTableSummary(misfits=by_reason)
    rows = sum(file.rows or 0 for file in read_table_files(table))
    sql = "SELECT max(_store_timestamp) AS newest FROM typed"
    (newest,) = run_sql(table, "typed", sql).read_all().column("newest").to_pylist()
    return TopicTableSummary(rows, by_reason, newest, *_count_current_rows(lake, config))


def _count_current_rows(lake: Lake, config: TopicConfig) -> tuple[int | None, int | None]:
    if config.changes is None or (table := lake.find(config.current_table)) is None:
        return None, None
    sql = "SELECT count(*) AS n, count(*) FILTER (WHERE _deleted) AS deleted FROM states"
    (row,) = run_sql(table, "states", sql).read_all().to_pylist()
    return row["n"] - row["deleted"], row["deleted"]
