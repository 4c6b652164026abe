"""A delayed message is due according to its own broker's delay levels."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.edges.step_records import DelayCache
from commitlake.pipelines.edges.table_update import catch_up_edges
from commitlake.schemas.layouts.rocketmq.broker_conf import DEFAULT_DELAY_LEVELS_MS
from commitlake.schemas.tables.archive_runs import STORE_CONFIG
from tests.support.lakes import GrowingLake
from tests.support.logs import START_MS
from tests.support.message_families import Family, delayed, timed
from tests.support.table_damages import damage

BROKER = "broker-a"


def write_levels(lake: Lake, broker: str, levels: str) -> None:
    now = datetime.datetime.now(datetime.UTC)
    row = dict(zip(STORE_CONFIG.names, [broker, now, "setting", "delay_levels_ms", levels, "1"], strict=True))
    rows = pa.Table.from_pylist([row], schema=arrow_schema(STORE_CONFIG))
    write_deltalake(lake.uri("store_config"), rows, mode="append")


def due_seconds(lake: Lake) -> list[float]:
    """Return when messages are due, in seconds since the first was stored."""
    rows = DeltaTable(lake.uri("edges")).to_pyarrow_table(columns=["side", "due_timestamp"]).to_pylist()
    return sorted(row["due_timestamp"].timestamp() - START_MS / 1000 for row in rows if row["side"] != "to")


def test_levels_in_the_lake_are_preferred_to_the_defaults(tmp_path: Path) -> None:
    family = Family(GrowingLake(tmp_path), [])
    family.write(delayed("U1", 0, level=3), delayed("U2", 1, level=2), timed("U3", 2, due_ms=START_MS + 60_000))
    family.growing.archive()
    write_levels(family.growing.lake, BROKER, '{"3":2000}')
    write_levels(family.growing.lake, "another", '{"3":7000}')
    catch_up_edges(family.growing.lake)
    assert due_seconds(family.growing.lake) == [2.0, 6.0, 60.0]


def test_each_broker_has_its_own_levels(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    write_levels(lake, BROKER, '{"1":3000}')
    write_levels(lake, "another", '{"1":4000,"2":9000}')
    levels = DelayCache(lake)
    assert list(levels.delays_of(BROKER))[:2] == [3000, DEFAULT_DELAY_LEVELS_MS[1]]
    assert list(levels.delays_of("another"))[:2] == [4000, 9000]
    assert levels.delays_of("a third") == DEFAULT_DELAY_LEVELS_MS
    assert DelayCache().delays_of(BROKER) == DEFAULT_DELAY_LEVELS_MS


def test_defaults_are_used_with_a_warning_if_the_table_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake = Lake(str(tmp_path))
    write_levels(lake, BROKER, '{"1":3000}')
    damage(next(Path(lake.uri("store_config")).glob("*.parquet")), "cut")
    assert DelayCache(lake).delays_of(BROKER) == DEFAULT_DELAY_LEVELS_MS
    assert "'commitlake maintain --repair'" in caplog.text
    assert BROKER in caplog.text
