"""A lake in a Spark session has the same rows as without Spark, as DataFrames that are lazy and can be composed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import commitlake
from commitlake.connectors.catalog.names import CatalogError
from commitlake.connectors.lake.lake import NoTableError
from commitlake.connectors.lake.paths import LakeError
from commitlake.pipelines.analysis.lake import AnalysisLake
from commitlake.schemas.errors import UsageError
from commitlake.schemas.tables.archive_runs import GAPS
from commitlake.schemas.tables.dead_letters import DEAD_LETTERS
from commitlake.schemas.tables.lineage import LINEAGE
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.tables.spark_schemas import spark_schema
from tests.support.analysed_lakes import (
    BODIES,
    LAKES,
    QUESTIONS,
    analysed_lake,
    dead_letters_lake,
    random_lake,
    rows_of,
)
from tests.support.hypothesis_profiles import load
from tests.support.lakes import GrowingLake
from tests.support.logs import new_message

load()

SCHEMA = "analysed"


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """A lake that nobody changes."""
    return analysed_lake(tmp_path_factory.mktemp("analysed"))


@pytest.fixture
def here(growing: GrowingLake) -> AnalysisLake[pa.Table]:
    """The lake without Spark."""
    return commitlake.open(growing.lake.root)


@pytest.fixture
def lake(growing: GrowingLake, foreign_session: SparkSession) -> AnalysisLake[DataFrame]:
    """The lake in the session."""
    return commitlake.open(growing.lake.root, foreign_session)


def test_tables_have_the_same_rows_and_documented_columns(
    lake: AnalysisLake[DataFrame], here: AnalysisLake[pa.Table]
) -> None:
    found = lake.table("messages")
    assert found.schema == spark_schema(MESSAGES)  # with comments
    assert rows_of(found) == rows_of(here.table("messages"))
    assert rows_of(lake.table("topic_minutes")) == rows_of(here.table("topic_minutes"))


def test_messages_and_bodies_are_the_same(lake: AnalysisLake[DataFrame], here: AnalysisLake[pa.Table]) -> None:
    since, until = "2023-11-15T00:00:50.017", "2023-11-15T01:06:40.018+01:00"
    found = lake.messages(topic=["orders", "it's"], since=since, until=until, where="tags <> 'x' -- a comment")
    assert rows_of(found) == rows_of(here.messages(topic="orders", since=since, until=until)) != []
    columns = ["broker", "tags"]
    assert rows_of(lake.messages(columns=columns, body="json")) == rows_of(here.messages(columns=columns, body="json"))
    amount = F.get_json_object("body", "$.amount").cast("double")
    sums = lake.messages(key="order-0", body="json").groupBy("topic").agg(F.sum(amount).alias("amount"))
    assert rows_of(sums) == [{"topic": "orders", "amount": 12.5}]


def test_a_lake_is_opened_by_the_catalog_of_the_session(
    growing: GrowingLake, spark: SparkSession, here: AnalysisLake[pa.Table]
) -> None:
    spark.sql(f"CREATE SCHEMA {SCHEMA}")
    try:
        for name in ("messages", "topic_minutes"):
            spark.sql(f"CREATE TABLE {SCHEMA}.{name} USING delta LOCATION '{growing.lake.uri(name)}'")
        lake = commitlake.open(f"spark_catalog.{SCHEMA}", spark)
        assert repr(lake) == "commitlake.open('spark_catalog.analysed', spark)"
        found = lake.messages(tag="text", body="text").select("body")
        assert rows_of(found) == [{"body": BODIES["text"].decode()}]
        with pytest.raises(NoTableError, match=r"cannot open the table 'edges' .*TABLE_OR_VIEW_NOT_FOUND"):
            lake.table("edges")
        keys = ["order-1", "none"]
        assert rows_of(lake.lineage(keys=keys)) == rows_of(here.lineage(keys=keys)) != []
        with pytest.raises(CatalogError, match="no catalog is set"):
            lake.lineage(key="order-1")  # reads the files of the lake, without Spark
    finally:
        spark.sql(f"DROP SCHEMA {SCHEMA} CASCADE")


def test_what_is_missing_is_named(lake: AnalysisLake[DataFrame], spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NoTableError, match="cannot open the table 'replays'"):
        lake.table("replays")
    empty = lake.table("gaps", or_empty=True)
    assert (empty.schema, empty.count()) == (spark_schema(GAPS), 0)
    with pytest.raises(LakeError, match="Spark cannot open the lake"):
        commitlake.open(str(tmp_path), spark).messages()
    with pytest.raises(AnalysisException, match="tagz"):
        lake.messages(where="tagz = 'x'")


def test_a_table_that_cannot_be_read_is_not_taken_for_one_that_is_missing(
    growing: GrowingLake, spark: SparkSession, tmp_path: Path
) -> None:
    copy = growing.copy_to(tmp_path / "copy")
    for file in (Path(copy.lake.uri("topic_minutes")) / "_delta_log").glob("*.json"):
        file.write_text("{")
    lake = commitlake.open(copy.lake.root, spark)
    with pytest.raises(LakeError, match=r"Spark cannot open the table 'topic_minutes' of .*: org\.apache\.spark"):
        lake.tps()  # would else be counted from messages


def test_settings_of_the_session_do_not_change_texts(spark: SparkSession, tmp_path: Path) -> None:
    topics = ["it's \\ 订单", "${spark.app.name}", "a\\'b"]
    growing = GrowingLake(tmp_path)
    growing.write(
        message
        for topic in topics
        for message in (
            new_message(0, topic=topic),
            new_message(1, topic="%DLQ%x", properties=(("RETRY_TOPIC", topic),)),
        )
    )
    growing.archive()
    here, lake = commitlake.open(growing.lake.root), commitlake.open(growing.lake.root, spark)
    for value in ("true", "false"):
        spark.conf.set("spark.sql.parser.escapedStringLiterals", value)
        try:
            for method, more in (
                ("tps", {"window": "1 minute"}),
                ("tps", {"window": "1s"}),
                ("messages", {}),
                ("dead_letters", {}),
            ):
                found = rows_of(getattr(lake, method)(topic=topics, **more))
                assert found == rows_of(getattr(here, method)(topic=topics, **more))
                assert {row.get("origin_topic") or row["topic"] for row in found} == set(topics)
        finally:
            spark.conf.unset("spark.sql.parser.escapedStringLiterals")


@settings(max_examples=2)
@given(seed=st.integers(0, LAKES - 1), question=QUESTIONS)
@example(seed=0, question={"by": ["topic", "kind"], "window": "5 minutes", "since": "2023-11-15T00:01:00.001"})
def test_rates_are_the_same(foreign_session: SparkSession, seed: int, question: dict[str, Any]) -> None:
    check_rates(foreign_session, seed, question)


def check_rates(spark: SparkSession, seed: int, question: dict[str, Any]) -> None:
    """Check that both engines give the same rates."""
    root = random_lake(seed).lake.root
    assert rows_of(commitlake.open(root, spark).tps(**question)) == rows_of(commitlake.open(root).tps(**question))


def test_dead_letters_are_the_same(spark: SparkSession, tmp_path: Path) -> None:
    root = dead_letters_lake(tmp_path).lake.root
    lake, here = commitlake.open(root, spark), commitlake.open(root)
    found = lake.dead_letters(topic=["orders", "it's"])
    declared = [(field.name, field.dataType, field.metadata) for field in spark_schema(DEAD_LETTERS)]
    assert [(field.name, field.dataType, field.metadata) for field in found.schema] == declared
    assert [field.name for field in found.schema if not field.nullable] == ["replayed"]
    assert rows_of(found) == rows_of(here.dead_letters(topic=["orders", "it's"])) != []
    assert rows_of(lake.dead_letters(group="audit")) == rows_of(here.dead_letters(group="audit")) != []


def test_lineage_of_many_keys_is_the_same(foreign_session: SparkSession) -> None:
    root = random_lake(1).lake.root
    lake, here = commitlake.open(root, foreign_session), commitlake.open(root)
    keys = [f"order-{number}" for number in range(8)]
    expected = rows_of(here.lineage(keys=keys, limit=3))
    found = lake.lineage(keys=[*keys, keys[0]], limit=3)
    assert found.schema == spark_schema(LINEAGE)
    assert rows_of(found) == expected
    orders = foreign_session.range(16).selectExpr("concat('order-', id % 8) AS order_no", "id")
    unknown = foreign_session.sql("SELECT CAST(NULL AS string) AS order_no, 16L AS id")
    one = orders.union(unknown).select("order_no")
    assert rows_of(lake.lineage(keys=one, limit=3)) == expected
    joined = (
        lake.lineage(keys=one, limit=3).where("kind = 'retry'").join(lake.messages(), ["broker", "physical_offset"])
    )
    assert joined.count() == sum(row["kind"] == "retry" for row in expected) > 0
    for wrong, error in (
        (orders, "expected one column, or a column 'key', found order_no, id"),
        (orders.select("id"), "expected a column of texts, found the type bigint"),
        (here.table("messages"), "expected texts or a DataFrame of Spark, found Table"),
    ):
        with pytest.raises(UsageError, match=error):
            lake.lineage(keys=wrong)


def test_lineage_of_a_place_without_a_lake_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="is not a lake"):
        commitlake.open(str(tmp_path), spark).lineage(keys=["order-1"])
