"""The session in which methods of `commitlake.open` are compared with their answers without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("true", id="ansi"),
        pytest.param("false", id="not-ansi", marks=pytest.mark.long("the same with ANSI mode each time")),
    ],
)
def foreign_session(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """An analyst's own session: with another time zone, with and without ANSI mode, and with few, small partitions."""
    given = {
        "spark.sql.session.timeZone": "Asia/Kathmandu",
        "spark.sql.ansi.enabled": request.param,
        "spark.sql.shuffle.partitions": "2",
    }
    before = {name: str(spark.conf.get(name)) for name in given}
    for name, value in given.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)
