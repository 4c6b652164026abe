"""The Spark data source `hbase`: messages in HBase as rows of `messages`.

    from commitlake import register
    register(spark)
    df = spark.read.format("hbase").option("host", "hbase-thrift").option("columns", "broker,topic,size").load()
    messages.write.format("hbase").mode("append").option("host", "hbase-thrift").save()
    messages.writeStream.format("hbase").option("checkpointLocation", …).option("host", "hbase-thrift").start()

Options are in `connectors.hbase.options`, columns in `schemas.tables.messages`, rows and cells in `keys` and `cells`.

Read: a partition is one salt, which one task reads over one connection, in pages of `batchRows`. Every row of it is
read, even if few columns are selected. There is no snapshot: a row that is written meanwhile may be in the result.

Write: the columns of the DataFrame are written. `broker` and `physical_offset` are required. A message without `topic`,
`store_timestamp`, `msg_id`, `unique_key` or `keys` cannot be found by that column. The table is created if it does not
exist. Writing a message again changes nothing, so a repeated task or micro-batch does no harm. Overwriting the table is
not supported. The source does not store how far a lake was followed; `connectors.hbase.table_update` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from commitlake.connectors.hbase.cells import check_columns
from commitlake.connectors.hbase.client import Client
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.hbase.scans import read_messages_of_salt
from commitlake.connectors.hbase.tables import open_existing_table, open_or_create_table
from commitlake.connectors.hbase.writer import write_messages
from commitlake.connectors.worker_errors import forward_worker_errors
from commitlake.schemas.errors import UsageError
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.tables.spark_schemas import spark_field, spark_schema


@dataclass
class SaltPartition(InputPartition):
    """A partition of a read: all messages whose keys begin with one salt."""

    salt: int


@dataclass
class HBaseWriteResult(WriterCommitMessage):
    """Commit message of one write task: the number of messages that it has written."""

    messages: int


class HBaseDataSource(DataSource):
    """The data source `hbase`, which reads and writes messages in an HBase table."""

    @classmethod
    def name(cls) -> str:
        """Return the source's name, which Spark's `format` takes."""
        return "hbase"

    @forward_worker_errors()
    def schema(self) -> StructType:
        """Return the columns that the options select."""
        columns = HBaseOptions.parse(self.options).columns
        return spark_schema(MESSAGES if columns is None else MESSAGES.select_columns(columns))

    @forward_worker_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader for the columns of a schema."""
        return HBaseReader(HBaseOptions.parse(self.options), schema)

    @forward_worker_errors()
    def writer(self, schema: StructType, overwrite: bool) -> HBaseWriter:
        """Return a batch writer for rows with the columns of a schema."""
        return HBaseWriter(_parse_write_options(self.options, overwrite=overwrite), schema)

    @forward_worker_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> HBaseStreamWriter:  # noqa: N802 (Spark's)
        """Return a stream writer for rows with the columns of a schema."""
        given = {name: value for name, value in self.options.items() if name.lower() not in _OF_STREAMS}
        return HBaseStreamWriter(_parse_write_options(given, overwrite=overwrite), schema)


_OF_STREAMS = frozenset({"checkpointlocation", "queryname", "path"})


def _parse_write_options(options_map: object, *, overwrite: bool) -> HBaseOptions:
    options = HBaseOptions.parse(dict(options_map))  # type: ignore[call-overload]
    if overwrite:
        raise UsageError(
            f"mode overwrite is not supported, only append. To replace all rows, drop the table {options.table} first"
        )
    return options


class HBaseReader(DataSourceReader):
    """Batch reader: plans on the driver, reads on workers."""

    def __init__(self, options: HBaseOptions, schema: StructType) -> None:
        """Check options and schema. Nothing is read yet.

        Raises:
            UsageError: if they are not valid.
        """
        for field in schema:
            if field.name not in MESSAGES.names or field.dataType.simpleString() != _spark_type(field.name):
                found = f"{field.name} {field.dataType.simpleString()}"
                raise UsageError(
                    f"the schema's column {found} is not a column of messages: expected some of "
                    f"{', '.join(MESSAGES.names)}, with the same types"
                )
        self._options = options
        self._columns = schema.names

    @forward_worker_errors()
    def partitions(self) -> list[SaltPartition]:
        """Return a partition for each salt of the table."""
        with Client(self._options) as client:
            return [SaltPartition(salt) for salt in range(open_existing_table(client).salts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one salt."""
        if isinstance(partition, SaltPartition):
            with forward_worker_errors(), Client(self._options.with_long_connect_timeout()) as client:
                yield from read_messages_of_salt(client, partition.salt, self._columns)


def _spark_type(column: str) -> str:
    return str(spark_field(MESSAGES[column]).dataType.simpleString())


class _BatchWriter:
    """Common part of the batch writer and the stream writer."""

    def __init__(self, options: HBaseOptions, schema: StructType) -> None:
        check_columns(schema.names)
        self._options = options
        with Client(options) as client:
            self._salts = open_or_create_table(client).salts

    @forward_worker_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> HBaseWriteResult:
        """Write the rows of one task."""
        with Client(self._options.with_long_connect_timeout()) as client:
            return HBaseWriteResult(write_messages(client, iterator, self._salts))


class HBaseWriter(_BatchWriter, DataSourceArrowWriter):
    """Batch writer: creates the table on the driver, writes on workers."""


class HBaseStreamWriter(_BatchWriter, DataSourceStreamArrowWriter):
    """Stream writer: writes each micro-batch."""
