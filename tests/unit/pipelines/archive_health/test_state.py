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
    DELETED,
    ArchiveState,
    MissingRanges,
    RangeTotals,
    StoreState,
    missing_ranges_by_reason,
    read_archive_state,
    read_unmet_expectations,
)
from commitlake.pipelines.tps.coverage import read_coverage
from commitlake.schemas.tables.archive_runs import GAPS, QUALITY_RESULTS, QUARANTINE
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
    age = state.age(datetime.datetime.now(datetime.UTC))
    assert age is not None
    assert datetime.timedelta() <= age < datetime.timedelta(minutes=10)


def test_ranges_that_are_missing_are_counted_by_store(growing: GrowingLake) -> None:
    bad = [{"broker": "broker-a", "start_offset": 10 * n, "end_offset": 10 * n + 5} for n in range(3)]
    for name, schema, rows in (
        ("quarantine", QUARANTINE, bad),
        ("gaps", GAPS, [{"broker": "broker-a", "start_offset": 100, "end_offset": 400}]),
    ):
        append_rows(growing.lake, name, pa.Table.from_pylist(rows, arrow_schema(schema)))
    (store,) = read_archive_state(growing.lake).stores
    assert (store.quarantined, store.gaps) == (RangeTotals(3, 15), RangeTotals(1, 300))
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


def test_a_lake_without_runs_has_no_age() -> None:
    assert ArchiveState([]).age(datetime.datetime.now(datetime.UTC)) is None


def test_a_folder_without_a_lake_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="is not a lake"):
        read_archive_state(Lake(str(tmp_path)))


def test_missing_ranges_are_grouped_by_reason(growing: GrowingLake) -> None:
    assert missing_ranges_by_reason(growing.lake) == []
    bad = [
        {"broker": "broker-a", "reason": reason, "start_offset": start, "end_offset": start + 5}
        for reason, start in (("body_crc", 10), ("body_crc", 40), ("size", 70))
    ]
    for name, schema, rows in (
        ("quarantine", QUARANTINE, bad),
        ("gaps", GAPS, [{"broker": "broker-a", "start_offset": 100, "end_offset": 400}]),
    ):
        append_rows(growing.lake, name, pa.Table.from_pylist(rows, arrow_schema(schema)))
    assert missing_ranges_by_reason(growing.lake) == [
        MissingRanges("broker-a", DELETED, 1, 300, 100),
        MissingRanges("broker-a", "body_crc", 2, 10, 10),
        MissingRanges("broker-a", "size", 1, 5, 70),
    ]


def test_unmet_expectations_of_the_last_run_are_reported(growing: GrowingLake) -> None:
    assert read_unmet_expectations(growing.lake) == []
    judged = [
        ("old", 1, "a", False),
        ("new", 2, "b", True),
        ("new", 2, "c", False),
        ("new", 2, "no_message_is_dead", False),
        ("new", 2, "verdict", False),
    ]
    rows = [
        {
            "run_id": run,
            "suite": "run" if name == "verdict" else "topics",
            "expectation": name,
            "severity": "warning",
            "success": success,
            "judged_at": datetime.datetime(2026, 1, day, tzinfo=datetime.UTC),
        }
        for run, day, name, success in judged
    ]
    append_rows(
        growing.lake,
        "quality_results",
        pa.Table.from_pylist(rows, arrow_schema(QUALITY_RESULTS)),
    )
    assert [row["expectation"] for row in read_unmet_expectations(growing.lake)] == ["c", "no_dead_letters"]
