"""Stream reader of the source `commitlog`, as Spark's interface requires it.

    frame = spark.readStream.format("commitlog").option("maxBytesPerTrigger", 1 << 30).load("/data/rocketmq/store")
    frame.writeStream.format("delta").option("checkpointLocation", "…").start("/data/lake/raw")

Spark asks one Python process, which lives as long as the query, for the end and the partitions of each micro-batch
(`connectors.sources.stream_planner`); workers read them like those of a batch. The content of a micro-batch is fixed by
its two offsets in the checkpoint (`stream_offsets`): planned again after a crash, it has the same rows.

A stream reads records when they are complete, and waits at a torn one. All stores of a path are read together, even if
there are many: small ranges of several stores share a task. Trigger.AvailableNow reads up to the ends of the logs at
the start of the query, in as many micro-batches as `maxBytesPerTrigger` requires, and stops.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.options import Mode, ReadOptions, RowContent
from commitlake.connectors.reading.read_request import Filters
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.spark.limited_stream_reader import (
    LimitedStreamReader,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
)
from commitlake.connectors.spark.versions import to_arrow_schema
from commitlake.connectors.worker_errors import forward_worker_errors

if TYPE_CHECKING:
    from commitlake.connectors.sources.stream_planner import StreamPlanner

logger = logging.getLogger(__name__)

TASK_BYTES = 16 << 20
"""Smaller splits are read together, because a task costs Spark more than reading a few MiB."""

Offset = dict[str, Any]


@dataclass(frozen=True)
class SplitGroup(InputPartition):
    """Partition of a micro-batch: splits that one task reads in order."""

    splits: tuple[Split, ...]


@dataclass(frozen=True)
class RangesPartition(InputPartition):
    """Partition of a micro-batch with `content=ranges`: its rows in Arrow's stream format."""

    rows: bytes


class CommitLogStreamReader(LimitedStreamReader):
    """Stream reader that plans micro-batches in one process and reads them on workers."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Keep options that are already checked; nothing is read yet."""
        self._options = options
        self._arrow_schema: pa.Schema = to_arrow_schema(schema)
        self._known_planner: StreamPlanner | None = None

    @property
    def _planner(self) -> StreamPlanner:
        from commitlake.connectors.sources.stream_planner import StreamPlanner  # noqa: PLC0415

        if self._known_planner is None:
            self._known_planner = StreamPlanner(self._options)
        return self._known_planner

    def first_offset(self) -> Offset:
        """Return the offset at which a new stream starts."""
        from commitlake.connectors.sources.stream_offsets import initial_checkpoint  # noqa: PLC0415

        return initial_checkpoint(self._planner.first_positions())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        """Return the limit set by `maxBytesPerTrigger`."""
        limit = self._options.max_bytes_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    @forward_worker_errors()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """Make the stream end at the present ends of the logs."""
        self._planner.stop_at_current_ends()

    def next_offset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next micro-batch; `start` itself if there is nothing new."""
        from commitlake.connectors.sources.stream_offsets import from_checkpoint, next_checkpoint  # noqa: PLC0415

        end = self._planner.next_positions(
            from_checkpoint(start), limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        )
        return next_checkpoint(start, end)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 (Spark's name)
        """Return the ends of the logs as seen at the last micro-batch; Spark shows them in the query's progress."""
        from commitlake.connectors.sources.stream_offsets import to_checkpoint  # noqa: PLC0415

        return to_checkpoint(self._planner.latest_positions) if self._planner.latest_positions else None

    def partitions_between(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the partitions of the micro-batch between two offsets."""
        from commitlake.connectors.sources.stream_offsets import batch_positions  # noqa: PLC0415

        first, last = batch_positions(start, end)
        if self._options.content is RowContent.ROWS:
            return list(group_splits(self._planner.splits(first, last)))
        from commitlake.connectors.sources.stream_ranges import to_batch  # noqa: PLC0415

        ranges = self._planner.ranges(first, last)
        return [RangesPartition(_to_bytes(to_batch(ranges, self._arrow_schema)))] if ranges else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one partition."""
        if isinstance(partition, RangesPartition):
            with pa.ipc.open_stream(partition.rows) as reader:
                yield from reader
        elif isinstance(partition, SplitGroup):
            with forward_worker_errors():
                yield from self._read_splits(partition.splits)

    def _read_splits(self, splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        from commitlake.connectors.reading.batches import read_split  # noqa: PLC0415
        from commitlake.connectors.reading.read_request import Request  # noqa: PLC0415
        from commitlake.connectors.runtime.memory import freeze_loaded_objects  # noqa: PLC0415

        request = Request.of(self._options, Filters.of_stream(self._options), self._arrow_schema)
        for split in splits:
            if self._should_read(split):
                yield from read_split(split, request)
        freeze_loaded_objects()

    def _should_read(self, split: Split) -> bool:
        """Return whether to read a split; False if its segment was deleted since it was planned."""
        from commitlake.connectors.reading.files.segment_files import OpenSegment  # noqa: PLC0415

        if not split.missing:
            try:
                with OpenSegment(split.path):
                    return True
            except FileNotFoundError:
                if self._options.fail_on_data_loss:
                    raise StoreError(
                        f"store {split.broker!r}: the segment {split.path} was deleted before its physical offsets "
                        f"{split.start} to {split.end} were read. failOnDataLoss=false continues without them"
                    ) from None
                logger.warning("%s was deleted before %d to %d were read", split.path, split.start, split.end)
        return self._options.mode is Mode.PERMISSIVE


def group_splits(splits: Sequence[Split]) -> Iterator[SplitGroup]:
    """Group adjacent splits, so that small ones share a partition."""
    group: list[Split] = []
    for split in splits:
        if group and sum(one.size for one in group) + split.size > TASK_BYTES:
            yield SplitGroup(tuple(group))
            group = []
        group.append(split)
    if group:
        yield SplitGroup(tuple(group))


def _to_bytes(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())
