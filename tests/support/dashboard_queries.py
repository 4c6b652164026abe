"""Queries of the dashboards' page, and a lake of the example shop in which they find rows."""

from __future__ import annotations

import datetime
import itertools
import re
from pathlib import Path

from commitlake.broker_lite.shop_traffic import fill_shop_store
from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.demo.command import OffsetHistory
from commitlake.pipelines.archive.run import Config
from commitlake.pipelines.lag_minutes.backfill import backfill_lag_minutes
from tests.support.lakes import archive_store
from tests.support.snippets import DOCS, blocks_of

PAGE = DOCS / "how-to" / "dashboards.md"
_EARLY_PAUSES = 20
"""Pauses before the last half a day, of which `lag_minutes` would take long."""
QUERIES = [block.text for block in blocks_of(PAGE) if block.language == "sql"]


def table_of_query(sql: str) -> str:
    """Return the table that a query reads."""
    (table,) = {found[1] for found in re.finditer(r"FROM (\w+)", sql)}
    return table


def at_time(sql: str, now: datetime.datetime) -> str:
    """Return a query with a time in place of the present."""
    return sql.replace("now()", f"TIMESTAMP '{now:%Y-%m-%d %H:%M:%S}'")


def shop_lake(folder: Path) -> tuple[Lake, datetime.datetime]:
    """Return a lake with the example shop's messages, snapshots and `lag_minutes`, and the end of its last day."""
    store, lake = folder / "broker-a" / "store", Lake(str(folder / "lake"))
    offsets = OffsetHistory(Config(str(store), lake, broker="broker-a"))
    pauses = itertools.count()
    fill_shop_store(store, orders=60, pause=lambda: offsets.read_offsets() if next(pauses) >= _EARLY_PAUSES else None)
    archive_store(store, lake, "broker-a")
    offsets.read_offsets()
    offsets.append_to_lake()
    backfill_lag_minutes(lake)
    newest = lake.table("topic_minutes").to_pyarrow_table(columns=["minute"])["minute"]
    return lake, max(newest.to_pylist()) + datetime.timedelta(days=1)
