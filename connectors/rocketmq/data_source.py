"""The Spark data source `rocketmq`: messages of live brokers, read over the remoting protocol.

    from commitlake import register
    register(spark)
    df = spark.read.format("rocketmq").option("namesrv", "mq:9876").option("topics", "orders").load()
    stream = spark.readStream.format("rocketmq").option("namesrv", "mq:9876").option("topics", "orders").load()

Rows are those of `messages`, as the source `commitlog` gives them of the broker's files. Options of reads are in
`connectors.rocketmq.source.options`. Offsets of consumer groups are neither used nor changed. What only a broker's
files have cannot be read: half messages and delayed ones are seen under the broker's own topics, as far as it lets
clients read these.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from commitlake.connectors.rocketmq.source.batch import RocketmqReader, schema_of
from commitlake.connectors.rocketmq.source.options import SourceOptions
from commitlake.connectors.worker_errors import carry_errors


class RocketmqDataSource(DataSource):
    """Reads topics of live brokers; see the module."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "rocketmq"

    @carry_errors()
    def schema(self) -> StructType:
        """Return the columns that the options ask for."""
        return schema_of(SourceOptions.parse(self.options))

    @carry_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of these columns."""
        return RocketmqReader(SourceOptions.parse(self.options).for_batch(), schema)

    @carry_errors()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Return a reader of these columns, as a stream."""
        from commitlake.connectors.rocketmq.source.stream import RocketmqStreamReader  # noqa: PLC0415

        return RocketmqStreamReader(SourceOptions.parse(self.options).for_stream(), schema)
