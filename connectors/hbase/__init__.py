"""HBase: a projection of `messages` for look-ups in milliseconds, through Thrift (happybase). Off by default.

Data
    keys    row keys, and why           cells     messages as cells, and back
    tables  the table and its creation  progress  the version of the lake that the table has reached

Readers and writers
    table_update  the projection, by version  row_writing_tasks  its pieces, here or in tasks
    writer        batches into calls          lookups            by id, key, topic and time
    source        the Spark data source, or missing_client where happybase is not installed
    client        one connection, with retries; options: what a user can set
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_hbase(spark: SparkSession) -> None:
    """Register the data source `hbase` with a session, for `format("hbase")`."""
    if find_spec("happybase") is None:
        from commitlake.connectors.hbase.missing_client import MissingHBaseDataSource  # noqa: PLC0415 (pyspark)

        spark.dataSource.register(MissingHBaseDataSource)
        return
    from commitlake.connectors.hbase.source import HBaseDataSource  # noqa: PLC0415 (pyspark, only where wanted)

    spark.dataSource.register(HBaseDataSource)
