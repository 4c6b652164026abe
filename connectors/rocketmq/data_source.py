"""The Spark data source `rocketmq`: messages of live brokers, read and written over the remoting protocol.

    from commitlake import register
    register(spark)
    df = spark.read.format("rocketmq").option("namesrv", "mq:9876").option("topics", "orders").load()
    df.select("topic", "body", "tags").write.format("rocketmq").mode("append").option("namesrv", "mq:9876").save()
    stream = spark.readStream.format("rocketmq").option("namesrv", "mq:9876").option("topics", "orders").load()

The rows are those of `messages`, as the source `commitlog` reads them from the broker's files. Options of reads are in
`connectors.rocketmq.source.options`. Offsets of consumer groups are neither used nor changed. Data that only exists in
the broker's files cannot be read. Half messages and delayed messages are in the broker's own topics, if the broker lets
clients read these.

Writes take the columns in `connectors.rocketmq.sink.prepared_rows` and the options in
`connectors.rocketmq.sink.options`. Each row is sent at least once: see `connectors.rocketmq.sink.writer`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from commitlake.connectors.rocketmq.sink.options import SinkOptions
from commitlake.connectors.rocketmq.sink.writer import RocketmqStreamWriter, RocketmqWriter
from commitlake.connectors.rocketmq.source.batch import RocketmqReader, schema_of
from commitlake.connectors.rocketmq.source.options import SourceOptions
from commitlake.connectors.worker_errors import forward_worker_errors
from commitlake.schemas.errors import UsageError


class RocketmqDataSource(DataSource):
    """The data source `rocketmq`, which reads and writes topics of live brokers."""

    @classmethod
    def name(cls) -> str:
        """Return the source's name, which Spark's `format` takes."""
        return "rocketmq"

    @forward_worker_errors()
    def schema(self) -> StructType:
        """Return the columns that the options select."""
        return schema_of(SourceOptions.parse(self.options))

    @forward_worker_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader for the columns of a schema."""
        return RocketmqReader(SourceOptions.parse(self.options).for_batch(), schema)

    @forward_worker_errors()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Return a stream reader for the columns of a schema."""
        from commitlake.connectors.rocketmq.source.stream import RocketmqStreamReader  # noqa: PLC0415

        return RocketmqStreamReader(SourceOptions.parse(self.options).for_stream(), schema)

    @forward_worker_errors()
    def writer(self, schema: StructType, overwrite: bool) -> RocketmqWriter:
        """Return a batch writer for rows with the columns of a schema."""
        return RocketmqWriter(_parse_sink_options(self.options, overwrite=overwrite), schema)

    @forward_worker_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> RocketmqStreamWriter:  # noqa: N802 (Spark's name)
        """Return a writer of micro-batches with the columns of a schema."""
        given = {name: value for name, value in self.options.items() if name.lower() not in _OF_STREAMS}
        return RocketmqStreamWriter(_parse_sink_options(given, overwrite=overwrite), schema)


_OF_STREAMS = frozenset({"checkpointlocation", "queryname", "path"})


def _parse_sink_options(option_texts: Mapping[str, str], *, overwrite: bool) -> SinkOptions:
    options = SinkOptions.parse(option_texts)
    if overwrite:
        raise UsageError(
            "mode overwrite is not supported, because messages can only be added to a topic: use mode append"
        )
    return options
