"""The Spark session of the tests, and of the examples in docstrings of `pipelines.transforms`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that a job would have, with Delta and the source; a process has one, whoever asks for it."""
    from commitlake.jobs.cli.runner import open_session  # noqa: PLC0415 (pyspark, only where wanted)

    # The optimizing compiler would take more processor time than it saves in the minutes that such a JVM lives.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
    session = open_session("tests")
    if os.environ.get("TEST_SPARK_CODEGEN") is None:
        # Of a query over a few rows, Spark spends a third on generating and compiling code. Jobs that tests start as
        # processes have the default, and so have all tests before a release.
        session.conf.set("spark.sql.codegen.wholeStage", "false")
        session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _spark_in_examples(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    """Give the examples of transforms their session; other tests do not start one."""
    if isinstance(request.node, pytest.DoctestItem) and "transforms" in request.node.path.parts:
        doctest_namespace["spark"] = request.getfixturevalue("spark")
