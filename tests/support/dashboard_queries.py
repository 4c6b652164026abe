"""Queries of the dashboards' page, and a lake of the example shop in which they find rows."""

from __future__ import annotations

import datetime
import itertools
import re
from pathlib import Path

import deltalake
import pyarrow.compute as pc

import commitlake
from commitlake.broker_lite.shop_traffic import fill_shop_store
from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.demo.command import OffsetHistory
from commitlake.pipelines.archive.run import Config
from commitlake.pipelines.edges.table_update import follow_edges
from commitlake.pipelines.lag_minutes.backfill import backfill_lag_minutes
from tests.support.lakes import archive_store
from tests.support.snippets import DOCS, blocks_of

PAGE = DOCS / "how-to" / "dashboards.md"
ORDERS = 60
_EARLY_PAUSES = 21
"""Pauses before the last nine hours, of which `lag_minutes` would take long."""
QUERIES = [block.text for block in blocks_of(PAGE) if block.language == "sql"]
_OWN_TABLES = ("daily_journeys", "topic_flow")
_DAY = datetime.timedelta(days=1)


def table_of_query(sql: str) -> str:
    """Return the table that a query reads."""
    (table,) = {found[1] for found in re.finditer(r"FROM (\w+)", sql)}
    return table


def at_time(sql: str, now: datetime.datetime) -> str:
    """Return a query with a time in place of the present."""
    return sql.replace("now()", f"TIMESTAMP '{now:%Y-%m-%d %H:%M:%S}'")


def table_uri(lake: Lake, name: str) -> str:
    """Return the place of a table: in the lake, or where the page keeps its own."""
    return f"{lake.root}-dashboards/{name}" if name in _OWN_TABLES else lake.uri(name)


def own_tables_code(lake: Lake, now: datetime.datetime) -> str:
    """Return the page's code that keeps its own tables, for a lake of `shop_lake`."""
    (code,) = (block.text for block in blocks_of(PAGE) if block.language == "python")
    code = code.replace("/data/lake", lake.root).replace("2026-01-05", f"{now - 30 * _DAY:%F}")
    return code.replace("2026-01-08", f"{now + _DAY:%F}")


def write_own_tables(lake: Lake, now: datetime.datetime) -> None:
    """Keep the page's own tables, without Spark."""
    since, until = now - 30 * _DAY, now + _DAY
    analysed = commitlake.open(lake.root)
    journeys = analysed.journeys(since=since, until=until).drop_columns("steps")
    journeys = journeys.filter(pc.invert(journeys["began_before"]))
    for name, rows in zip(_OWN_TABLES, (journeys, analysed.topic_flow(since=since, until=until)), strict=True):
        deltalake.write_deltalake(table_uri(lake, name), rows)


def shop_lake(folder: Path) -> tuple[Lake, datetime.datetime]:
    """Return a lake with the example shop's messages, snapshots and `lag_minutes`, and the end of its last day."""
    store, lake = folder / "broker-a" / "store", Lake(str(folder / "lake"))
    offsets = OffsetHistory(Config(str(store), lake, broker="broker-a"))
    pauses = itertools.count()
    fill_shop_store(
        store, orders=ORDERS, pause=lambda: offsets.read_offsets() if next(pauses) >= _EARLY_PAUSES else None
    )
    archive_store(store, lake, "broker-a")
    offsets.read_offsets()
    offsets.append_to_lake()
    follow_edges(lake)
    backfill_lag_minutes(lake)
    newest = lake.table("topic_minutes").to_pyarrow_table(columns=["minute"])["minute"]
    return lake, max(newest.to_pylist()) + datetime.timedelta(days=1)
