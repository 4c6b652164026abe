"""The table `lag_minutes` of a lake, compared with `commitlake lag --at` minute by minute."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Iterable, Mapping
from typing import Any

from commitlake.connectors.lake.delta_log.newest_versions import delete_newest_version
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.snapshot_tables import OFFSETS, snapshot_brokers
from commitlake.pipelines.lag.group_summaries import GROUP_KINDS
from commitlake.pipelines.lag.queue_lag_rows import queue_lag_row
from commitlake.pipelines.lag.store_lag import lag_of_lake
from commitlake.pipelines.lag_minutes.backfill import backfill_lag_minutes
from commitlake.pipelines.lag_minutes.minute_reader import lag_at_minutes
from commitlake.pipelines.lag_minutes.progress import read_progress
from commitlake.schemas.selection import Selection
from commitlake.schemas.tables.lag_minutes import LAG_MINUTES

MINUTE = datetime.timedelta(minutes=1)
FIGURES = [name for name in LAG_MINUTES.names if name not in {"minute", "within_hour", "consumed"}]
"""The columns that `lag` has, too."""


def last_minutes(lake: Lake) -> Mapping[str, int]:
    """Return the last minute that the table has of each store, minutes since 1970; -1 for none."""
    brokers = snapshot_brokers(lake.table(OFFSETS), OFFSETS)
    return {broker: store.until for broker, store in read_progress(lake.find("lag_minutes"), brokers).stores.items()}


def all_rows(lake: Lake) -> list[dict[str, Any]]:
    """Return all rows of the table, in an order of their own."""
    table = lake.find("lag_minutes")
    return [] if table is None else sorted(table.to_pyarrow_table().to_pylist(), key=repr)


def rows_at(lake: Lake, minute: int, broker: str) -> list[dict[str, Any]]:
    """Return the figures of a store's groups at a minute, as the table has them."""
    found = lag_at_minutes(lake.table("lag_minutes"), [minute], Selection(brokers=[broker]))
    rows = (row for table in found for row in table.to_pylist())
    return sorted(({name: row[name] for name in FIGURES} for row in rows), key=repr)


def expected_at(lake: Lake, minute: int, broker: str) -> list[dict[str, Any]]:
    """Return the same figures as `commitlake lag --at` has them."""
    time = datetime.datetime.fromtimestamp(minute * 60, datetime.UTC)
    found = (
        {**queue_lag_row(row), "broadcasts": row.broadcasts, "verdict": str(row.judged.verdict)}
        for row in lag_of_lake(lake, time, Selection(brokers=[broker])).rows
        if row.kind in GROUP_KINDS
    )
    return sorted(({name: row[name] for name in FIGURES} for row in found), key=repr)


def check_minutes(lake: Lake, minutes: Iterable[int]) -> int:
    """Check that the table has the figures of `commitlake lag --at` at minutes, and return their number.

    Minutes that it does not have of a store are left out.
    """
    compared, lasts = 0, last_minutes(lake)
    for minute in minutes:
        for broker, last in lasts.items():
            if minute <= last:
                found = rows_at(lake, minute, broker)
                assert found == expected_at(lake, minute, broker), (broker, minute)
                compared += len(found)
    return compared


def computed_from_scratch(lake: Lake) -> list[dict[str, Any]]:
    """Return the rows that a single run computes for a lake whose table was removed."""
    shutil.rmtree(lake.uri("lag_minutes"))
    delete_newest_version(lake.uri("lag_minutes"))
    backfill_lag_minutes(lake)
    return all_rows(lake)
