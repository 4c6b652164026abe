"""The Spark batch reader: plans on the driver, reads in workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from commitlake.connectors.reading.options import BodyForm
from commitlake.connectors.rocketmq.queue_reading import QueueRange
from commitlake.connectors.rocketmq.source.options import SourceOptions
from commitlake.connectors.rocketmq.source.ranges import plan_batch
from commitlake.connectors.sources.schema_choice import check_columns, choose_columns
from commitlake.connectors.spark.versions import to_arrow_schema
from commitlake.connectors.worker_errors import forward_worker_errors
from commitlake.schemas.tables.messages import BODY, CORRUPT_RECORD, SOURCE


@dataclass(frozen=True)
class QueuePartition(InputPartition):
    """A partition: ranges of queues that one task reads one after another."""

    ranges: tuple[QueueRange, ...]


def schema_of(options: SourceOptions) -> StructType:
    """Return the columns that the options select, in the table's order."""
    has_body = options.columns is not None or options.body is not BodyForm.NONE
    table = SOURCE if has_body else SOURCE.drop_columns(BODY.name)
    return choose_columns(table, options.columns, options.mode, CORRUPT_RECORD.name)


def read_ranges(options: SourceOptions, schema: pa.Schema, ranges: Sequence[QueueRange]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of one partition, in a worker."""
    # Importing the compiled reader takes a second, so only workers do it.
    from commitlake.connectors.rocketmq.source.range_reader import RangeReader  # noqa: PLC0415
    from commitlake.connectors.runtime.memory import freeze_loaded_objects  # noqa: PLC0415

    with forward_worker_errors(), options.open_puller() as puller:
        yield from RangeReader(puller, options, schema).read(ranges)
    freeze_loaded_objects()


class RocketmqReader(DataSourceReader):
    """The reader of a batch: plans on the driver, reads in workers."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        """Check the schema, without any request.

        Raises:
            UsageError: if the schema is not valid.
        """
        check_columns(schema, SOURCE, options.mode, CORRUPT_RECORD.name)
        self._options = options
        self._arrow_schema: pa.Schema = to_arrow_schema(schema)

    @forward_worker_errors()
    def partitions(self) -> Sequence[QueuePartition]:
        """Ask the brokers for their queues, and divide them into partitions."""
        with self._options.open_puller() as puller:
            return [QueuePartition(ranges) for ranges in plan_batch(puller, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one partition."""
        if isinstance(partition, QueuePartition):
            yield from read_ranges(self._options, self._arrow_schema, partition.ranges)
