"""The state of a lake: its age, and missing parts of the log."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.committer import append_rows
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError
from commitlake.pipelines.archive_health.state import (
    LogRangeTotals,
    StoreState,
    read_archive_state,
)
from commitlake.pipelines.tps.coverage import read_coverage
from commitlake.schemas.tables.archive_runs import GAPS, QUARANTINE
from commitlake.schemas.tables.topic_minutes import TOPIC_MINUTES
from tests.support.lakes import DAY_MS, MIDNIGHT_MS, GrowingLake, shop_messages

MINUTE_MS = 60_000


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(20))
    growing.archive()
    return growing


def test_a_complete_archive_has_no_missing_parts(growing: GrowingLake) -> None:
    newest_ms = MIDNIGHT_MS + 19 * DAY_MS // 20 // MINUTE_MS * MINUTE_MS + MINUTE_MS
    state = read_archive_state(growing.lake)
    (store,) = state.stores
    assert store == StoreState(
        "broker-a", len(growing.log), datetime.datetime.fromtimestamp(newest_ms / 1000, datetime.UTC)
    )
    assert store.is_intact
    assert state.last_run is not None
    age = datetime.datetime.now(datetime.UTC) - state.last_run
    assert datetime.timedelta() <= age < datetime.timedelta(minutes=10)


def test_ranges_that_are_missing_are_counted_by_store(growing: GrowingLake) -> None:
    bad = [{"broker": "broker-a", "start_offset": 10 * n, "end_offset": 10 * n + 5} for n in range(3)]
    for name, schema, rows in (
        ("quarantine", QUARANTINE, bad),
        ("gaps", GAPS, [{"broker": "broker-a", "start_offset": 100, "end_offset": 400}]),
    ):
        append_rows(growing.lake, name, pa.Table.from_pylist(rows, arrow_schema(schema)))
    (store,) = read_archive_state(growing.lake).stores
    assert (store.quarantined, store.gaps) == (LogRangeTotals(3, 15), LogRangeTotals(1, 300))
    assert not store.is_intact


def test_minutes_outside_the_calendar_and_without_a_broker_are_not_counted(growing: GrowingLake) -> None:
    expected, whole = read_archive_state(growing.lake), read_coverage(growing.lake).whole_span
    schema = arrow_schema(TOPIC_MINUTES)
    for minute in (2**62, -(2**63), None):  # microseconds, as only another program writes them
        row: dict[str, Any] = {field.name: [None] * 2 for field in schema}
        row["broker"] = ["broker-a", None]
        row["minute"] = pa.array([minute, MIDNIGHT_MS * 1000], pa.int64()).cast(schema.field("minute").type)
        folder = Path(growing.lake.uri("topic_minutes"))
        part = folder / f"{minute}.parquet"
        pq.write_table(pa.table([pa.array(row[f.name], f.type) for f in schema], schema), part)
        file = AddAction(part.name, part.stat().st_size, {}, 0, True, json.dumps({"numRecords": 2}))
        table = DeltaTable(folder)
        table.create_write_transaction([file], mode="append", schema=table.schema())
    assert read_archive_state(growing.lake).stores == expected.stores
    assert read_coverage(growing.lake).whole_span == whole


def test_a_folder_without_a_lake_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="is not a lake"):
        read_archive_state(Lake(str(tmp_path)))
