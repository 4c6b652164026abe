"""Lag in a Spark session has the rows of the engine without Spark."""

from __future__ import annotations

import datetime
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import commitlake
from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.jobs.lag.command import main as lag
from commitlake.jobs.offsets.command import main as offsets
from commitlake.pipelines.analysis.spark_lag import find_log_starts, match_sql92
from commitlake.pipelines.snapshot.progress import OffsetKind, OffsetOwner, SnapshotSource, StoreSnapshot
from commitlake.pipelines.snapshot.table_append import append_snapshot
from commitlake.pipelines.transforms.lag import LagRules
from commitlake.pipelines.transforms.moments import SampleTimes
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.timers import TimerCheckpoint, serialize_timer_checkpoint
from commitlake.schemas.layouts.rocketmq.topics import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from commitlake.schemas.tables.lag import GROUP_LAG, QUEUE_LAG
from commitlake.schemas.tables.spark_schemas import spark_schema
from commitlake.schemas.times import from_ms
from tests.support.analysed_lakes import analysed_lake, rows_of
from tests.support.hypothesis_profiles import load
from tests.support.lag_places import WRITTEN_MS, places_of, put_bytes, put_offsets, stored
from tests.support.lagging_lakes import (
    EVERY_MS,
    TOPICS,
    lagging_lake,
)
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.offset_rows import offset_rows
from tests.support.table_damages import damage

load()

ORDERS = "it's \\ ${orders}"
BETWEEN = from_ms(MIDNIGHT_MS + 3 * EVERY_MS + 7_000)
MOMENTS = SampleTimes(60, 60, 2)
"""The moments 60 and 120, in microseconds: rows of these tests have times of some microseconds."""


def check(spark: SparkSession, method: str, seed: int, question: dict[str, Any]) -> list[dict[str, Any]]:
    """Check that both engines give the same answer, and return its rows."""
    root = lagging_lake(seed)
    found = getattr(commitlake.open(root, spark), method)(**question)
    declared = spark_schema(GROUP_LAG if question.get("by") == "group" else QUEUE_LAG)
    assert [(field.name, field.dataType, field.metadata) for field in found.schema] == [
        (field.name, field.dataType, field.metadata) for field in declared
    ]
    rows = rows_of(found)
    assert rows == rows_of(getattr(commitlake.open(root), method)(**question))
    return rows


def test_lag_is_the_same(foreign_session: SparkSession) -> None:
    rows = check(foreign_session, "lag", 5, {"at": BETWEEN})
    assert {row["filter"] for row in rows} >= {None, "*"}


@pytest.mark.long("the lag of each queue is compared, and that of queues is summed by group, each time")
def test_lag_by_group_is_the_same(foreign_session: SparkSession) -> None:
    assert check(foreign_session, "lag", 3, {"by": "group"}) != []  # without subscriptions


@pytest.mark.long("a history is compared each time, with a table of minutes")
def test_a_history_is_the_same(foreign_session: SparkSession) -> None:
    question = {"window": "20s", "since": BETWEEN, "until": BETWEEN + datetime.timedelta(seconds=75)}
    rows = check(foreign_session, "lag_history", 2, question)
    assert len({row["as_of"] for row in rows}) == 4


@pytest.mark.long("other tests open lakes by a catalog, and pin tables, each time")
def test_a_frame_keeps_the_versions_that_its_tables_had(spark: SparkSession, tmp_path: Path) -> None:
    root = shutil.copytree(lagging_lake(1), tmp_path / "lake")
    here = commitlake.open(str(root))
    spark.sql("CREATE SCHEMA lagging")
    try:
        for name in ("messages", "consumer_offsets", "subscriptions", "store_config"):
            spark.sql(f"CREATE TABLE lagging.{name} USING delta LOCATION '{root}/{name}'")
        before = commitlake.open("spark_catalog.lagging", spark).lag(by="group")
        expected = rows_of(here.lag(by="group"))
        position = OffsetOwner(OffsetKind.GROUP, "billing", "orders", 0)
        later = {OffsetKind.GROUP: from_ms(MIDNIGHT_MS + 3_600_000)}
        append_snapshot(
            Lake(str(root)), StoreSnapshot("broker-a", SnapshotSource.BROKER, later, {position: 0}, log_end=1)
        )
        assert rows_of(before) == expected != rows_of(here.lag(by="group"))
    finally:
        spark.sql("DROP SCHEMA lagging CASCADE")


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake with a store's snapshot: orders with tags, and messages that the broker holds back."""
    growing = GrowingLake(tmp_path_factory.mktemp("waiting"))
    growing.write(
        [
            *(stored(ORDERS, number, TAGS="paid" if number % 2 else "open") for number in range(10)),
            stored(SCHEDULE_TOPIC, 10),
            stored(TIMER_TOPIC, 11, TIMER_OUT_MS=str(WRITTEN_MS - 5_000), REAL_TOPIC=ORDERS, UNIQ_KEY="T1"),
            *(stored(HALF_TOPIC, 12, UNIQ_KEY=f"U{number}") for number in range(3)),
            stored(OP_TOPIC, 13, b"0"),
        ]
    )
    transactions = {f"{topic}@CID_RMQ_SYS_TRANS": {0: 0} for topic in (HALF_TOPIC, OP_TOPIC)}
    put_offsets(growing.store, "consumerOffset.json", {f"{ORDERS}@billing": {0: 4}, **transactions})
    put_offsets(growing.store, "delayOffset.json", {1: 0})
    checkpoint = TimerCheckpoint(WRITTEN_MS - 60_000, 0, 1)
    put_bytes(growing.store, "timercheck", serialize_timer_checkpoint(checkpoint))
    return places_of(growing)["lake"][1]


def check_command(capsys: pytest.CaptureFixture[str], root: str, *arguments: str) -> str:
    """Check that `lag` writes the same with `--spark` and without it, and return its standard output."""
    answers = []
    for engine in ((), ("--spark",)):
        capsys.readouterr()
        code = lag(["--lake", root, "--all", *arguments, *engine])
        answers.append((code, *capsys.readouterr()))
    assert answers[0] == answers[1]
    return str(answers[0][1])


def test_the_command_writes_the_same(
    foreign_session: SparkSession, waiting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tags = ("--filter", f"billing@{ORDERS}=paid")
    rows = [json.loads(line) for line in check_command(capsys, waiting, "--format", "jsonl", *tags).splitlines()]
    found = {row["kind"]: (row["topic"], row["messages_min"], row["messages_max"]) for row in rows}
    assert found == {
        "group": (ORDERS, 3, 3),
        "delay": (SCHEDULE_TOPIC, 1, 1),
        "timer": (TIMER_TOPIC, 1, 1),
        "half": (HALF_TOPIC, 2, 2),
    }


def test_the_command_writes_the_same_of_a_past_time(
    foreign_session: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    table = check_command(capsys, lagging_lake(2), "--at", BETWEEN.isoformat(), "--by", "queue")
    assert {"billing", "shipping", "audit"} <= set(table.split())


@pytest.mark.parametrize("how", ["cut", "deleted"])
def test_a_damaged_data_file_is_named(
    foreign_session: SparkSession, tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    root = shutil.copytree(lagging_lake(2), tmp_path / "lake")
    for file in (root / "messages").glob("*=*/**/*.parquet"):
        damage(file, how)
    errors = []
    for engine in ((), ("--spark",)):
        assert lag(["--lake", str(root), *engine]) == ExitCode.DAMAGE
        errors.append(capsys.readouterr().err)
    assert errors[0] == errors[1]
    assert ".parquet" in errors[0]


@pytest.mark.parametrize(
    ("option", "time"),
    [
        pytest.param("--at", BETWEEN, marks=pytest.mark.long("the other option, with the same queries, each time")),
        ("--consume-from", BETWEEN),
    ],
)
def test_offsets_are_the_same(
    foreign_session: SparkSession, option: str, time: datetime.datetime, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = []
    for engine in ((), ("--spark",)):
        capsys.readouterr()
        asked = ["--lake", lagging_lake(2), "--group", "billing", option, time.isoformat(), "--format", "jsonl"]
        assert offsets([*asked, *engine]) == ExitCode.OK
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        answers.append([{**row, "time_lag_s": None} for row in rows])  # it grows between the two
    assert {row["topic"] for row in answers[0]} >= set(TOPICS[:2])
    assert answers[0] == answers[1]


@pytest.mark.long("six lakes are asked each time, and their pages are compared")
@pytest.mark.parametrize("seed", range(6))
def test_the_command_writes_the_same_page(
    spark: SparkSession, seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = []
    for engine in ((), ("--spark",)):
        file = tmp_path / "lag.html"
        lag(["--lake", lagging_lake(seed), "--html", str(file), "--quiet", *engine])
        content, made_at, _ = file.read_text().partition("<footer><p>Made at ")
        assert made_at
        pages.append(content)
    assert pages[0] == pages[1]


def test_a_lake_without_snapshots_has_no_lag(spark: SparkSession, tmp_path: Path) -> None:
    lake = commitlake.open(analysed_lake(tmp_path).lake.root, spark)
    with pytest.raises(NoTableError, match="cannot open the table 'consumer_offsets'"):
        lake.lag()


def test_messages_that_are_deleted_at_all_moments_are_not_read_to_count_others(spark: SparkSession) -> None:
    offsets = offset_rows(spark, (50, 700, 10), (90, 800, 100), (120, 900, 200))
    starts = {
        moments: find_log_starts(offsets, moments).get("broker-a")
        for moments in (
            SampleTimes(40),
            SampleTimes(60),
            SampleTimes(95, 30, 2),
            SampleTimes(40, 60, 2),
            SampleTimes(500),
        )
    }
    assert list(starts.values()) == [None, 10, 100, 10, 200]
    unknown = offsets.union(offset_rows(spark, (100, 800, None)))
    assert [find_log_starts(unknown, moments) for moments in starts][1:4] == [{"broker-a": 10}, {}, {}]
    rules = LagRules(log_starts={"broker-a": 10}, max_age_us=0, max_impossible=0)
    messages = spark.createDataFrame(
        [("broker-a", 9), ("broker-a", 10), ("other", 0)], "broker string, physical_offset long"
    )
    kept = messages.where(rules.may_be_live()).collect()
    assert [tuple(row) for row in kept] == [("broker-a", 10), ("other", 0)]
    assert messages.where(LagRules(max_age_us=0, max_impossible=0).may_be_live()).count() == 3


def test_expressions_are_matched_by_the_properties_of_each_row(spark: SparkSession) -> None:
    rows = [("a > 1", {"a": "2"}), ("a > 1", {"a": "1"}), ("b IS NULL", {"a": "2"}), ("b IS NULL", None)]
    frame = spark.createDataFrame(rows, "sql92 string, properties map<string, string>")
    found = match_sql92(frame).drop("properties").collect()
    assert sorted(map(tuple, found)) == [
        ("a > 1", False), ("a > 1", True), ("b IS NULL", True), ("b IS NULL", True),
    ]  # fmt: skip
