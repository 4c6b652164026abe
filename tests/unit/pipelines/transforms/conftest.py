"""The session of these tests: Spark's client with Sail as the server, an engine in Rust that needs no JVM.

tests/integration/spark/test_transforms.py runs the same tests on Spark.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    """A session of Spark Connect; the process is as before once it has ended."""
    from pysail.spark import SparkConnectServer

    server = SparkConnectServer()
    server.start(background=True)
    _, port = server.listening_address
    with pytest.MonkeyPatch.context() as environment:
        # Functions make columns for Spark Connect as long as this is set; without it, a session would leave it set.
        environment.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
        yield session
        session.stop()
    server.stop()
