"""The session of these tests: Spark's client with Sail as the server, an engine in Rust that needs no JVM.

With `TEST_TRANSFORMS_ON=spark`, as when the tests against real servers run, it is a session of Spark.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session of Spark Connect, after which the process is as before; or that of all tests on Spark.

    It ends with each module: other tests of the process must not find a session, which commands would use.
    """
    if os.environ.get("TEST_TRANSFORMS_ON") == "spark":
        yield request.getfixturevalue("spark")
        return
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
