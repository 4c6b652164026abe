"""Spark data source `consumequeue`: the entries of a broker's queues as rows.

    from commitlake import register
    register(spark)
    entries = spark.read.format("consumequeue").option("topics", "orders").load("/data/rocketmq/store")
    entries.groupBy("queue_id").agg(F.min("queue_offset"), F.max("queue_offset"))

It reads RocketMQ's ConsumeQueues and BatchConsumeQueues, BoltMQ's and `broker_lite`'s, and JMQ's queues, also in a copy
that `commitlake ship` made in an object store or HDFS, where only the shipped entries exist. Options are in
`connectors.formats.index_entries.entry_options`, columns in `schemas.tables.index_entries.QUEUE_ENTRIES`.

Planning happens in a Python process on the driver: it lists the folders of the wanted topics and queues, and divides
their files into partitions (`queue_parts`). For a copy it reads only the manifest; files shipped later are not seen.
A worker reads 16,384 entries at a time; from a copy, it reads files of up to 8 MiB with one request, and the manifest
once per read.

A queue ends before its first unwritten entry. Unwritten or invalid entries with others after them, and missing files,
are bad ranges, which `mode` controls. Filler entries at the start of a ConsumeQueue that was created late are not rows.
Entries are not compared with the log.

`register(spark, pushdown=True)` lets Spark push predicates on broker, topic, queue_id and physical_offset; see the
warning in `connectors.sources.commitlog`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from commitlake.connectors.formats.index_entries.entry_options import QueueOptions
from commitlake.connectors.sources.predicates import push_predicates
from commitlake.connectors.sources.schema_choice import check_columns, choose_columns
from commitlake.connectors.spark.versions import to_arrow_schema
from commitlake.connectors.worker_errors import forward_worker_errors
from commitlake.schemas.tables.index_entries import CORRUPT_ENTRY, QUEUE_ENTRIES

if TYPE_CHECKING:
    from commitlake.connectors.formats.index_entries.queue_file_parts import QueuePart


class ConsumeQueueDataSource(DataSource):
    """Data source `consumequeue` for the entries of stores' queues."""

    @classmethod
    def name(cls) -> str:
        """Return the source's name, which Spark's `format` takes."""
        return "consumequeue"

    @forward_worker_errors()
    def schema(self) -> StructType:
        """Return the columns that the options select."""
        options = QueueOptions.parse(self.options)
        return choose_columns(QUEUE_ENTRIES, options.columns, options.mode, CORRUPT_ENTRY.name)

    @forward_worker_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader for the columns of a schema."""
        return QueueReader(QueueOptions.parse(self.options), schema)


class PushdownConsumeQueueDataSource(ConsumeQueueDataSource):
    """`ConsumeQueueDataSource` with pushdown of Spark's predicates, which Spark applies again."""

    @forward_worker_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader for the columns of a schema, which accepts Spark's filters."""
        return PushdownQueueReader(QueueOptions.parse(self.options), schema)


@dataclass(frozen=True)
class QueuePartition(InputPartition):
    """Partition of a read: parts of queue files, which one task reads."""

    parts: Sequence[QueuePart]


class QueueReader(DataSourceReader):
    """Batch reader that plans on the driver and reads on workers."""

    def __init__(self, options: QueueOptions, schema: StructType) -> None:
        """Check options and schema; nothing is read yet.

        Raises:
            UsageError: if they do not fit one another.
        """
        check_columns(schema, QUEUE_ENTRIES, options.mode, CORRUPT_ENTRY.name)
        self._options = options
        self._filters = options.to_read_filters
        self._arrow_schema: pa.Schema = to_arrow_schema(schema)

    @forward_worker_errors()
    def partitions(self) -> list[QueuePartition]:
        """Return partitions with the queue files of the wanted topics and queues."""
        from commitlake.connectors.formats.index_entries.queue_file_parts import plan_queues  # noqa: PLC0415 (loads kernel)

        return [QueuePartition(tuple(parts)) for parts in plan_queues(self._options, self._filters)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the entries of one partition; none for a read without partitions."""
        from commitlake.connectors.formats.index_entries.queue_rows import read_queue_parts  # noqa: PLC0415
        from commitlake.connectors.runtime.memory import freeze_loaded_objects  # noqa: PLC0415

        if isinstance(partition, QueuePartition):
            filters, mode = self._filters, self._options.mode
            with forward_worker_errors():
                yield from read_queue_parts(partition.parts, self._arrow_schema, filters, mode)
            freeze_loaded_objects()


class PushdownQueueReader(QueueReader):
    """Batch reader that uses the filters which Spark pushes down to read less."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Use filters that exclude folders and entries early; return all of them, so that Spark applies them again."""
        self._filters = push_predicates(self._filters, filters)
        return filters
