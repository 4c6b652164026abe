"""The queries of the dashboards' page have the same rows in Spark as in DataFusion."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from tests.support.dashboard_queries import (
    PAGE,
    QUERIES,
    at_time,
    own_tables_code,
    shop_lake,
    table_of_query,
    table_uri,
)


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lake, datetime.datetime]]:
    """A lake of the example shop, whose tables are views of the session, and the end of its last day."""
    lake, now = shop_lake(tmp_path_factory.mktemp("dashboard"))
    code = own_tables_code(lake, now)
    for _ in range(2):  # a second time it replaces the same rows
        exec(compile(code, str(PAGE), "exec"), {"spark": spark})
    tables = {table_of_query(sql) for sql in QUERIES}
    for table in tables:
        spark.read.format("delta").load(table_uri(lake, table)).createOrReplaceTempView(table)
    yield lake, now
    for table in tables:
        spark.catalog.dropTempView(table)


def test_a_second_run_replaces_the_rows(spark: SparkSession, shop: tuple[Lake, datetime.datetime]) -> None:
    keys = spark.table("daily_journeys").select("key").toArrow()["key"].to_pylist()
    assert keys == sorted(set(keys), key=keys.index) != []


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with times without a zone, and numbers as floats."""
    return {
        name: value.replace(tzinfo=None)
        if isinstance(value, datetime.datetime)
        else value
        if value is None or isinstance(value, str)
        else pytest.approx(float(value))
        for name, value in row.items()
    }


@pytest.mark.parametrize("sql", QUERIES)
def test_a_query_has_the_same_rows(spark: SparkSession, shop: tuple[Lake, datetime.datetime], sql: str) -> None:
    lake, now = shop
    sql, table = at_time(sql, now), table_of_query(sql)
    found = [plain(row) for row in spark.sql(sql).toArrow().to_pylist()]
    rows = run_sql(DeltaTable(table_uri(lake, table)), table, sql).read_all()
    assert found == [plain(row) for row in rows.to_pylist()] != []
