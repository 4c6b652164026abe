"""An HBase with its Thrift server, shared by this folder's tests; each test has its own table."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from commitlake import register
from commitlake.connectors.hbase.options import HBaseOptions
from tests.servers.hbase import HBase

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def hbase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HBase]:
    """A running HBase. Whoever takes it down starts it again."""
    with HBase(tmp_path_factory.mktemp("hbase")) as server:
        yield server


@pytest.fixture
def options(hbase: HBase) -> HBaseOptions:
    """Options for a table that is not there yet; calls are small, so that a few thousand messages are many."""
    return HBaseOptions(
        host="127.0.0.1", port=hbase.thrift_port, table=f"messages_{next(_numbers)}", salts=4, batch_rows=200
    )


@pytest.fixture(scope="session")
def spark(spark: SparkSession) -> SparkSession:
    """The session that a job would have, with the source `hbase`."""
    register(spark)
    return spark
