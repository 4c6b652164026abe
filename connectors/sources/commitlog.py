"""Spark data sources `commitlog` and `journal`: the log of RocketMQ, or JMQ's journal, as rows of `messages`.

    from commitlake import register
    register(spark)
    df = spark.read.format("commitlog").load("/data/rocketmq/store")
    df.where("topic = 'orders' and store_timestamp >= '2026-11-20'").select("keys", "tags", "properties")

`journal` has the same options, modes, filters, splits and streams; a topic that is a small part of the journal is read
through its queue files. `connectors.formats.jmq.message_row` describes its columns.

`spark.readStream` reads the same rows as a stream, see `connectors.sources.stream`.

Options are the fields of `ReadOptions` in `connectors.reading.options`, columns are in
`schemas.tables.messages`. Planning (list files, find the end of the log, apply filters, cut splits; see
`connectors.reading.planning`) happens once for a DataFrame, in a Python process on the driver: every query on
it sees the same snapshot. Each split is read by one task on a worker.

Filters are passed to the reader as options (topics, queueIds, keys, startingTimestamp and so on). Spark can also push
its own predicates, but Spark 4.1.4 and 4.2.0 then reuse those of one query for a later query on the same DataFrame or
view, and for other branches of a union, join or subquery, and rows are silently missing. So that is off unless
`register(spark, pushdown=True)` enables it, which warns. It is safe if the result of each `load` is used by one query,
once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from commitlake.connectors.formats.registry import COMMITLOGS, JOURNALS
from commitlake.connectors.log_format.format import Formats
from commitlake.connectors.reading.options import BodyForm, Mode, ReadOptions, RowContent
from commitlake.connectors.reading.read_request import Filters
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.sources.predicates import push_predicates
from commitlake.connectors.sources.schema_choice import check_columns, choose_columns
from commitlake.connectors.sources.stream_ranges import RANGES
from commitlake.connectors.spark.versions import to_arrow_schema
from commitlake.connectors.worker_errors import forward_worker_errors
from commitlake.schemas.errors import UsageError
from commitlake.schemas.tables.messages import BODY, CORRUPT_RECORD, SOURCE
from commitlake.schemas.tables.spark_schemas import spark_schema

if TYPE_CHECKING:
    from commitlake.connectors.reading.read_request import Request


# Spark asks for the schema in a separate process, so the kernel, which takes a second to import, is only loaded to
# read.
_LARGE_BYTES = 1 << 30
_logger = logging.getLogger(__name__)
PUSHDOWN_SETTING = "spark.sql.python.filterPushdown.enabled"


class LogDataSource(DataSource):
    """Base class of data sources for logs, each for one format unless the option `layout` names another."""

    formats: ClassVar[Formats]

    def _parse_options(self) -> ReadOptions:
        return ReadOptions.parse(self.options, formats=self.formats)

    @forward_worker_errors()
    def schema(self) -> StructType:
        """Return the columns that the options select, in the table's order."""
        options = self._parse_options()
        if options.content is RowContent.RANGES:
            return spark_schema(RANGES)
        return _schema_of(options)

    @forward_worker_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader for the columns of a schema."""
        return CommitLogReader(self._parse_options().for_batch(), schema)

    @forward_worker_errors()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Return a stream reader for the columns of a schema."""
        from commitlake.connectors.sources.stream import CommitLogStreamReader  # noqa: PLC0415

        options = self._parse_options().for_stream()
        _check_schema(schema, options)
        return CommitLogStreamReader(options, schema)


class CommitLogDataSource(LogDataSource):
    """Data source `commitlog` for the CommitLogs of RocketMQ, BoltMQ and broker_lite."""

    formats = COMMITLOGS

    @classmethod
    def name(cls) -> str:
        """Return the source's name, which Spark's `format` takes."""
        return "commitlog"


class PredicatePushdown(LogDataSource):
    """Mixin for sources that use Spark's predicates to read less; Spark applies all predicates again."""

    @forward_worker_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader for the columns of a schema, which accepts Spark's filters."""
        return PushdownCommitLogReader(self._parse_options().for_batch(), schema)


class PushdownCommitLogDataSource(PredicatePushdown, CommitLogDataSource):
    """`CommitLogDataSource` with pushdown of Spark's predicates."""


def _schema_of(options: ReadOptions) -> StructType:
    has_body = options.columns is not None or options.body is not BodyForm.NONE
    table = SOURCE if has_body else SOURCE.drop_columns(BODY.name)
    return choose_columns(table, options.columns, options.mode, CORRUPT_RECORD.name)


def _check_schema(schema: StructType, options: ReadOptions) -> None:
    if options.content is not RowContent.RANGES:
        check_columns(schema, SOURCE, options.mode, CORRUPT_RECORD.name)
    elif schema.simpleString() != (expected := spark_schema(RANGES).simpleString()):
        raise UsageError(
            f"a schema for content=ranges must be {expected}, found {schema.simpleString()}: leave the schema out"
        )


@dataclass(frozen=True)
class SplitPartition(InputPartition):
    """Partition of a batch read: one split."""

    split: Split


class CommitLogReader(DataSourceReader):
    """Batch reader that plans on the driver and reads on workers."""

    _why_whole: ClassVar[str] = (
        "because Spark does not pass the conditions of a WHERE to the reader. Pass topics, keys, times or offsets as "
        "options, for example .option('topics', 'orders')"
    )

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Check options and schema; nothing is read yet.

        Raises:
            UsageError: if they do not fit one another.
        """
        _check_schema(schema, options)
        self._options = options
        self._filters = Filters.of_batch(options)
        self._arrow_schema: pa.Schema = to_arrow_schema(schema)

    @forward_worker_errors()
    def partitions(self) -> list[SplitPartition]:
        """Return a partition for each split of the snapshot that the filters do not exclude."""
        from commitlake.connectors.reading.planning import plan_read, refuse_incomplete_read  # noqa: PLC0415

        plan = plan_read(self._options, self._filters)
        for store in plan.stores:
            refuse_incomplete_read(store.store_range, self._options.mode)
        splits = plan.splits
        self._warn_of_whole_read(sum(split.end - split.start for split in splits))
        return [SplitPartition(split) for split in splits]

    def _warn_of_whole_read(self, size: int) -> None:
        """Log a warning for a long read without filters: a user may believe that the reader applies a WHERE.

        A read with rows of damage is meant to cover the whole log.
        """
        if size >= _LARGE_BYTES and self._filters == Filters() and self._options.mode is not Mode.PERMISSIVE:
            _logger.warning(
                "this query reads the whole log (%.1f GiB), %s; see docs/how-to/spark.md, Filters",
                size / (1 << 30),
                self._why_whole,
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one split; none for a read without splits."""
        from commitlake.connectors.reading.batches import read_split  # noqa: PLC0415
        from commitlake.connectors.runtime.memory import freeze_loaded_objects  # noqa: PLC0415

        if isinstance(partition, SplitPartition):
            with forward_worker_errors():
                yield from read_split(partition.split, self._request())
            freeze_loaded_objects()

    def _request(self) -> Request:
        from commitlake.connectors.reading.read_request import Request  # noqa: PLC0415

        return Request.of(self._options, self._filters, self._arrow_schema)


class PushdownCommitLogReader(CommitLogReader):
    """Batch reader that uses the filters which Spark pushes down to read less."""

    _why_whole = (
        "because it has no condition that the reader can use. It uses comparisons of broker, topic, queue_id, "
        "physical_offset and store_timestamp with constants, and the source's options"
    )

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Use filters that exclude records early; return all filters, so that Spark applies them again."""
        self._filters = push_predicates(self._filters, filters)
        return filters


class JournalDataSource(LogDataSource):
    """Data source for the journals of JMQ and broker_lite."""

    formats = JOURNALS

    @classmethod
    def name(cls) -> str:
        """Return the source's name, which Spark's `format` takes."""
        return "journal"


class PushdownJournalDataSource(PredicatePushdown, JournalDataSource):
    """`JournalDataSource` with pushdown of Spark's predicates."""
