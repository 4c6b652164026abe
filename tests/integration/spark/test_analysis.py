"""A lake in a Spark session has the same rows as without Spark, as DataFrames that are lazy and can be composed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import commitlake
from commitlake.connectors.catalog.errors import CatalogError
from commitlake.connectors.lake.lake import NoTableError
from commitlake.connectors.lake.paths import LakeError
from commitlake.pipelines.analysis.lake import Lake
from commitlake.pipelines.transforms.columns import to_columns
from commitlake.schemas.tables.columns import INT64, TEXT, Column, Columns, MapOf
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.tables.spark import spark_schema
from tests.support.analysed_lakes import BODIES, analysed_lake, rows_of
from tests.support.lakes import GrowingLake

SCHEMA = "analysed"


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """A lake that nobody changes."""
    return analysed_lake(tmp_path_factory.mktemp("analysed"))


@pytest.fixture
def here(growing: GrowingLake) -> Lake[pa.Table]:
    """The lake without Spark."""
    return commitlake.open(growing.lake.root)


@pytest.fixture
def lake(growing: GrowingLake, foreign_session: SparkSession) -> Lake[DataFrame]:
    """The lake in the session."""
    return commitlake.open(growing.lake.root, foreign_session)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("true", id="ansi"),
        pytest.param("false", id="not-ansi", marks=pytest.mark.long("the same with ANSI mode each time")),
    ],
)
def foreign_session(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """An analyst's own session: with another time zone, with and without ANSI mode."""
    given = {"spark.sql.session.timeZone": "Asia/Kathmandu", "spark.sql.ansi.enabled": request.param}
    before = {name: str(spark.conf.get(name)) for name in given}
    for name, value in given.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


def test_tables_have_the_same_rows_and_documented_columns(lake: Lake[DataFrame], here: Lake[pa.Table]) -> None:
    found = lake.table("messages")
    assert found.schema == spark_schema(MESSAGES)  # with comments
    assert rows_of(found) == rows_of(here.table("messages"))
    assert rows_of(lake.table("topic_minutes")) == rows_of(here.table("topic_minutes"))


def test_messages_and_bodies_are_the_same(lake: Lake[DataFrame], here: Lake[pa.Table]) -> None:
    since, until = "2023-11-15T00:00:50.017", "2023-11-15T01:06:40.018+01:00"
    found = lake.messages(topic=["orders", "it's"], since=since, until=until, where="tags <> 'x' -- a comment")
    assert rows_of(found) == rows_of(here.messages(topic="orders", since=since, until=until)) != []
    columns = ["broker", "tags"]
    assert rows_of(lake.messages(columns=columns, body="json")) == rows_of(here.messages(columns=columns, body="json"))
    amount = F.get_json_object("body", "$.amount").cast("double")
    sums = lake.messages(key="order-0", body="json").groupBy("topic").agg(F.sum(amount).alias("amount"))
    assert rows_of(sums) == [{"topic": "orders", "amount": 12.5}]


def test_a_lake_is_opened_by_the_catalog_of_the_session(
    growing: GrowingLake, spark: SparkSession, here: Lake[pa.Table]
) -> None:
    spark.sql(f"CREATE SCHEMA {SCHEMA}")
    try:
        for name in ("messages", "topic_minutes"):
            spark.sql(f"CREATE TABLE {SCHEMA}.{name} USING delta LOCATION '{growing.lake.uri(name)}'")
        lake = commitlake.open(f"spark_catalog.{SCHEMA}", spark)
        assert repr(lake) == "commitlake.open('spark_catalog.analysed', spark)"
        found = lake.messages(tag="text", body="text").select("body")
        assert rows_of(found) == [{"body": BODIES["text"].decode()}]
        with pytest.raises(NoTableError, match=r"has no table 'edges' that Spark can open: .*TABLE_OR_VIEW_NOT_FOUND"):
            lake.table("edges")
        with pytest.raises(CatalogError, match="no catalog is set"):
            lake.lineage(key="order-1")  # reads the files of the lake, without Spark
    finally:
        spark.sql(f"DROP SCHEMA {SCHEMA} CASCADE")


def test_what_is_missing_is_named(lake: Lake[DataFrame], spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NoTableError, match="has no table 'replays' that Spark can open"):
        lake.table("replays")
    with pytest.raises(LakeError, match="is not a lake, or Spark cannot open it"):
        commitlake.open(str(tmp_path), spark).messages()
    with pytest.raises(AnalysisException, match="tagz"):
        lake.messages(where="tagz = 'x'")


def test_columns_are_those_declared(spark: SparkSession) -> None:
    columns = Columns([Column("id", INT64, "a number"), Column("a.b", TEXT), Column("map", MapOf(TEXT, TEXT))])
    given = spark.createDataFrame([(7, "x", "y")], "id int not null, `a.b` string, other string")
    expected = spark.createDataFrame([(7, "x", None)], "id long not null, `a.b` string, map map<string, string>")
    found = to_columns(given, columns)
    assert_df_equality(found, expected, ignore_metadata=True)
    assert found.schema["id"].metadata == {"comment": "a number"}
