"""Journeys in a Spark session have the rows of the engine without Spark, and transforms do what their tables show."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import commitlake
from commitlake.connectors.lake.lake import NoTableError
from commitlake.jobs.journeys.command import main
from commitlake.pipelines.journeys.journeys_query import JourneysQuestion
from commitlake.pipelines.journeys.spark_journeys import hops_of, journeys_of
from commitlake.schemas.tables.columns import Columns
from commitlake.schemas.tables.edges import EDGES
from commitlake.schemas.tables.journeys import HOPS, JOURNEYS
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.tables.spark_schemas import spark_schema
from tests.support.analysed_lakes import analysed_lake, rows_of
from tests.support.hypothesis_profiles import load
from tests.support.journeyed_lakes import SHAPES, JourneyedLake, Sent, by_key, time_of

load()

DAY = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)
QUESTION = JourneysQuestion(DAY, DAY + datetime.timedelta(days=1))
EVERYTHING: dict[str, Any] = {"since": time_of(0), "until": time_of(1000)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> JourneyedLake:
    """A lake with messages of all shapes, two for each key."""
    plan = [
        Sent(f"o{number // 2}", ("orders", "payments")[number % 2], shape, 11 * number)
        for number, shape in enumerate(SHAPES)
    ]
    return JourneyedLake(tmp_path_factory.mktemp("journeyed"), plan, 2)


def test_journeys_are_the_same(foreign_session: SparkSession, made: JourneyedLake) -> None:
    lake, here = commitlake.open(made.root, foreign_session), commitlake.open(made.root)
    found = lake.journeys(**EVERYTHING)
    assert by_key(found) == by_key(here.journeys(**EVERYTHING)) == made.journeys(0, 1000, 86_400)
    declared = spark_schema(JOURNEYS)
    assert [(field.name, field.dataType, field.metadata) for field in found.schema] == [
        (field.name, field.dataType, field.metadata) for field in declared
    ]


def test_hops_are_the_same(foreign_session: SparkSession, made: JourneyedLake) -> None:
    lake, here = commitlake.open(made.root, foreign_session), commitlake.open(made.root)
    for window in ("1 hour", "1 minute", None):
        found = lake.topic_flow(**EVERYTHING, window=window)
        assert rows_of(found) == rows_of(here.topic_flow(**EVERYTHING, window=window)) != []
        declared = spark_schema(HOPS)
        assert [(field.name, field.dataType, field.metadata) for field in found.schema] == [
            (field.name, field.dataType, field.metadata) for field in declared
        ]


def test_a_selection_is_the_same(foreign_session: SparkSession, made: JourneyedLake) -> None:
    lake, here = commitlake.open(made.root, foreign_session), commitlake.open(made.root)
    question: dict[str, Any] = {
        **EVERYTHING,
        "topic": ["orders", "it's"],
        "key": ["o0", "o1", "o2"],
        "where": "queue_id >= 0",
    }
    found = by_key(lake.journeys(**question, max_steps=1))
    assert found == by_key(here.journeys(**question, max_steps=1))
    assert {tuple(row["path"]) for row in found.values()} == {("orders",)}


MISFITS = ("--through", "orders", "--missing", "payments", "--stuck-after", "payments:1m", "--unexpected")


@pytest.mark.some_cases(1)
@pytest.mark.parametrize(
    "asked",
    [
        (),
        MISFITS,
        (*MISFITS, "--limit", "0"),
        pytest.param(("--show", "hops"), marks=pytest.mark.long("hops are compared, and paths are printed, each time")),
        pytest.param((*MISFITS[:2], "--limit", "2"), marks=pytest.mark.long("more conditions are compared each time")),
    ],
    ids=" ".join,
)
def test_the_command_prints_the_same_rows_on_spark(
    spark: SparkSession, made: JourneyedLake, capsys: pytest.CaptureFixture[str], asked: tuple[str, ...]
) -> None:
    time = ["--from", time_of(0).isoformat(), "--to", time_of(300).isoformat()]
    printed = []
    for engine in ([], ["--spark"]):
        assert main(["--lake", made.root, *time, *asked, *engine, "--format", "json"]) == 0
        printed.append(capsys.readouterr())
    assert printed[0] == printed[1]
    assert '"rows": [' in printed[0].out


@pytest.mark.long("changes only with how a lake is pinned, which is tested each time without Spark")
def test_journeys_are_of_the_versions_that_tables_had(spark: SparkSession, tmp_path: Path) -> None:
    made = JourneyedLake(tmp_path, [Sent("o1", "orders", "plain", 0), Sent("o2", "orders", "plain", 10)])
    lake = commitlake.open(made.root, spark)
    journeys, hops = lake.journeys(**EVERYTHING), lake.topic_flow(**EVERYTHING)
    again = DeltaTable(f"{made.root}/messages").to_pyarrow_table()
    topics = pa.repeat("payments", again.num_rows)
    again = again.set_column(again.column_names.index("origin_topic"), "origin_topic", topics)
    write_deltalake(f"{made.root}/messages", again, mode="append")
    assert {tuple(row["path"]) for row in by_key(journeys).values()} == {("orders",)}
    assert hops.count() == 0
    assert {tuple(row["path"]) for row in by_key(lake.journeys(**EVERYTHING)).values()} != {("orders",)}


def test_a_lake_without_edges_has_no_journeys(spark: SparkSession, tmp_path: Path) -> None:
    lake = commitlake.open(analysed_lake(tmp_path).lake.root, spark)
    with pytest.raises(NoTableError, match="has no table 'edges', which journeys need; 'commitlake archive"):
        lake.journeys(since="2023-11-15", until="2023-11-16")


def rows(spark: SparkSession, columns: Columns, *given_rows: dict[str, Any]) -> DataFrame:
    """Return rows of a table, of which some columns are given."""
    schema = spark_schema(columns)
    return spark.createDataFrame([tuple(row.get(name) for name in columns.names) for row in given_rows], schema)


def sent(seconds: float, key: str, topic: str, kind: str = "normal", **more: Any) -> dict[str, Any]:
    """Return a row of `messages`, which is stored some seconds after 14:00."""
    at = DAY + datetime.timedelta(hours=14, seconds=seconds)
    place = {"broker": "b", "physical_offset": int(seconds * 1000)}
    return {**place, "topic": topic, "kind": kind, "keys": [key], "store_timestamp": at, **more}


def at(seconds: float) -> datetime.datetime:
    """Return a time after 14:00."""
    return DAY + datetime.timedelta(hours=14, seconds=seconds)


def link(kind: str, first: float, then: float) -> dict[str, Any]:
    """Return a row of `edges` from one record to another."""
    return {
        "side": "both", "kind": kind, "from_broker": "b", "from_physical_offset": int(first * 1000),
        "from_timestamp": at(first), "to_broker": "b", "to_physical_offset": int(then * 1000), "to_timestamp": at(then),
    }  # fmt: skip


def test_journeys_of_a_table(spark: SparkSession) -> None:
    messages = rows(
        spark,
        MESSAGES,
        sent(0, "o7", "orders", unique_key="U1"),
        sent(60, "o7", "RMQ_SYS_TRANS_HALF_TOPIC", "half", unique_key="U2", origin_topic="payments"),
        sent(120, "o7", "payments", unique_key="U2"),
        sent(300, "o7", "shipping", unique_key="U3"),
        sent(360, "o7", "%RETRY%b", "retry", unique_key="U3", origin_topic="shipping"),
    )
    edges = rows(spark, EDGES, link("committed", 60, 120), link("retried", 300, 360))
    found = journeys_of(messages, edges, QUESTION)
    columns = ["key", "path", "messages", "records", "retries", "outcome", "began_before"]
    expected = [("o7", ["orders", "payments", "shipping"], 3, 5, 1, "delivered", False)]
    declared = spark.createDataFrame(expected, spark_schema(JOURNEYS.select_columns(columns)))
    assert_df_equality(found.select(*columns), declared)
    steps = found.select(F.inline("steps"))
    assert [tuple(row) for row in steps.select("topic", "hop_ms", "state").collect()] == [
        ("orders", None, "delivered"),
        ("payments", 60_000, "delivered"),
        ("shipping", 240_000, "delivered"),
    ]


def test_hops_of_a_table(spark: SparkSession) -> None:
    messages = rows(
        spark,
        MESSAGES,
        sent(0, "o7", "orders"),
        sent(90, "o7", "payments"),
        sent(10, "o8", "orders"),
        sent(11.234, "o8", "payments"),
    )
    found = hops_of(messages, rows(spark, EDGES), QUESTION, 3_600_000_000)
    expected = [(at(0), "orders", "payments", 2, 1300, 90_000, 90_000, {1300: 1, 90_000: 1})]
    assert_df_equality(found, spark.createDataFrame(expected, spark_schema(HOPS)))
