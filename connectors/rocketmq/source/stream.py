"""The Spark stream reader: one process plans micro-batches, workers read them.

The stream's offset consists of the offsets by queue, see `stream_offsets`: a restarted query continues exactly at its
checkpoint. Trigger.AvailableNow reads up to the queues' ends at the start of the query, in as many micro-batches as
`maxOffsetsPerTrigger` requires, and stops.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from commitlake.connectors.rocketmq.source.batch import QueuePartition, read_ranges
from commitlake.connectors.rocketmq.source.options import SourceOptions
from commitlake.connectors.rocketmq.source.ranges import to_partitions
from commitlake.connectors.rocketmq.source.stream_offsets import (
    StreamPosition,
    from_checkpoint,
    ranges_between,
    to_checkpoint,
)
from commitlake.connectors.rocketmq.source.stream_plan import QueueStreamPlanner
from commitlake.connectors.sources.schema_choice import check_columns
from commitlake.connectors.spark.limited_stream_reader import (
    LimitedStreamReader,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
)
from commitlake.connectors.spark.versions import to_arrow_schema
from commitlake.connectors.worker_errors import forward_worker_errors
from commitlake.schemas.tables.messages import CORRUPT_RECORD, SOURCE

Offset = dict[str, Any]


class RocketmqStreamReader(LimitedStreamReader):
    """The reader of a stream."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        """Check the schema, without any request.

        Raises:
            UsageError: if the schema is not valid.
        """
        check_columns(schema, SOURCE, options.mode, CORRUPT_RECORD.name)
        self._options = options
        self._arrow_schema: pa.Schema = to_arrow_schema(schema)
        self._known_planner: QueueStreamPlanner | None = None

    @property
    def _planner(self) -> QueueStreamPlanner:
        if self._known_planner is None:  # created late, because it has sockets, and workers get a copy of this object
            self._known_planner = QueueStreamPlanner(self._options.open_puller(), self._options)
        return self._known_planner

    def first_offset(self) -> Offset:
        """Return the position at which a stream without a checkpoint begins."""
        return to_checkpoint(self._planner.first_position())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        """Return the limit that `maxOffsetsPerTrigger` sets."""
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    @forward_worker_errors()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """Make the stream stop at the current ends of the queues."""
        self._planner.stop_at_current_ends()

    def next_offset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next micro-batch; `start` itself if there are no new messages."""
        begin = from_checkpoint(start)
        end = self._planner.next_position(begin, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        return start if end is begin else to_checkpoint(end)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 (Spark's name)
        """Return the ends of the queues as seen at the last micro-batch; Spark shows them in the query's progress."""
        latest = self._planner.latest
        return to_checkpoint(StreamPosition(latest)) if latest else None

    def partitions_between(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Divide the range between two offsets into partitions."""
        ranges = ranges_between(from_checkpoint(start), from_checkpoint(end))
        return [QueuePartition(part) for part in to_partitions(ranges, self._options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one partition."""
        if isinstance(partition, QueuePartition):
            yield from read_ranges(self._options, self._arrow_schema, partition.ranges)

    def stop(self) -> None:
        """Close the planner's connections."""
        if self._known_planner is not None:
            self._known_planner.close()
            self._known_planner = None
