"""HBase: a projection of `messages` for look-ups in milliseconds, through Thrift (happybase). Off unless asked for.

What lies there
    keys      row keys, and why            cells     messages as cells, and back
    tables    the table, how it is made    progress  how far it has followed the lake

Who writes and reads it
    follower  the projection, by version   work      its pieces, here or in tasks
    writer    batches into calls           lookups   by id, key, topic and time
    source    the glue to Spark            client    one connection, tried again; options: what a user can ask for
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_hbase(spark: SparkSession) -> None:
    """Make `format("hbase")` known to a session; see `connectors.hbase.source`."""
    from commitlake.connectors.hbase.source import HBaseDataSource  # noqa: PLC0415 (pyspark, only where wanted)

    spark.dataSource.register(HBaseDataSource)
