"""The Spark session of the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Of a query over a few rows, Spark spends a third on generating and compiling code, and some on planning it again after
# each stage. Jobs that tests start as processes have the defaults, and so have all tests before a release.
_FOR_FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that a job would have, with Delta and the source; a process has one, whoever asks for it."""
    from commitlake.jobs.arguments.runner import get_spark_session  # noqa: PLC0415 (pyspark, only where wanted)

    # The optimizing compiler would take more processor time than it saves in the minutes that such a JVM lives.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
    # Workers import nothing from the current folder, but tests give them functions of their own.
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        session = get_spark_session("tests")
    if os.environ.get("TEST_SPARK_DEFAULTS") is None:
        for name, value in _FOR_FEW_ROWS.items():
            session.conf.set(name, value)
    yield session
    session.stop()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the unit tests with a Spark session first, where one process takes them all; two would start two JVMs."""
    items.sort(key=lambda item: not _has_spark(item))


def _has_spark(item: pytest.Item) -> bool:
    """Return True if a unit test needs the session; integration tests have their own order."""
    return "spark" in getattr(item, "fixturenames", ()) and "integration" not in item.path.parts
