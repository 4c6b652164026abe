"""One Spark session for all tests of the folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from connectors.spark_session import get_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that a job would have, with Delta and the source."""
    session = get_session("tests")
    yield session
    session.stop()
