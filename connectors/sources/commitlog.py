"""The Spark data source `commitlog`: a broker's log as rows of `messages`.

    from commitlake import register
    register(spark)
    df = spark.read.format("commitlog").load("/data/rocketmq/store")
    df.where("topic = 'orders' and store_timestamp >= '2026-11-20'").select("keys", "tags", "properties")

`spark.readStream` reads the same as a stream, see `connectors.sources.stream`.

Options are in `connectors.formats.engine.options`, columns in `schemas.tables.messages`. Planning (listing, finding the
end of the log, leaving out what is not wanted, cutting splits; see `connectors.formats.engine.read_plan`) happens once
for a DataFrame, in a Python process on the driver: every query on it sees the same snapshot. Each split is read by one
    task
on a worker.

Filters reach the reader as options (topics, queueIds, keys, startingTimestamp and so on). Spark can push its
own predicates too, but 4.2.0 then keeps those of one query for the next query on the same DataFrame, and for other
branches of a union or join, and rows are missing without a word. So that is off unless `register(spark,
pushdown=True)` asks for it, which is safe where every DataFrame of this source is used by one query, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from commitlake.connectors.formats.engine.errors import OptionError
from commitlake.connectors.formats.engine.filters import narrow
from commitlake.connectors.formats.engine.options import BodyForm, Content, Options
from commitlake.connectors.formats.engine.splits import Split
from commitlake.connectors.formats.registry import FormatChoice
from commitlake.connectors.formats.rocketmq.format import FORMAT as ROCKETMQ
from commitlake.connectors.sources.predicates import push
from commitlake.connectors.sources.schema_choice import check_columns, choose_columns
from commitlake.connectors.sources.stream_ranges import RANGES
from commitlake.connectors.worker_errors import carry_errors
from commitlake.schemas.tables.messages import BODY, CORRUPT_RECORD, SOURCE

if TYPE_CHECKING:
    from commitlake.connectors.formats.engine.request import Request

# Spark asks for the schema in a process of its own: the kernel, a second's import, is only loaded where bytes are read.

PUSHDOWN_SETTING = "spark.sql.python.filterPushdown.enabled"


class LogDataSource(DataSource):
    """Reads the logs of stores of one format, unless the option `layout` says otherwise; see the module."""

    layout: ClassVar[FormatChoice]

    def _parse(self) -> Options:
        return Options.parse(self.options, self.layout)

    @carry_errors()
    def schema(self) -> StructType:
        """The columns that the options ask for, in the table's order."""
        options = self._parse()
        if options.content is Content.RANGES:
            return RANGES
        return _schema_of(options)

    @carry_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of these columns."""
        return CommitLogReader(self._parse().for_batch(), schema)

    @carry_errors()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """A reader of these columns, as a stream."""
        from commitlake.connectors.sources.stream import CommitLogStreamReader  # noqa: PLC0415

        options = self._parse().for_stream()
        _check_schema(schema, options)
        return CommitLogStreamReader(options, schema)


class CommitLogDataSource(LogDataSource):
    """Reads RocketMQ's CommitLog, BoltMQ's and broker_lite's; see the module and its options."""

    layout = FormatChoice(ROCKETMQ)

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "commitlog"


class Pushdown(LogDataSource):
    """With a source: the same, taking Spark's predicates; all are returned to Spark, which applies them again."""

    @carry_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of these columns that takes filters."""
        return PushdownCommitLogReader(self._parse().for_batch(), schema)


class PushdownCommitLogDataSource(Pushdown, CommitLogDataSource):
    """`CommitLogDataSource`, taking Spark's predicates."""


def _schema_of(options: Options) -> StructType:
    chosen = choose_columns(SOURCE, options.columns, options.mode, CORRUPT_RECORD.name)
    if options.columns is None and options.body is BodyForm.NONE:
        return StructType([field for field in chosen if field.name != BODY.name])
    return chosen


def _check_schema(schema: StructType, options: Options) -> None:
    if options.content is not Content.RANGES:
        check_columns(schema, SOURCE, options.mode, CORRUPT_RECORD.name)
    elif schema.simpleString() != RANGES.simpleString():
        raise OptionError(f"content ranges: expected {RANGES.simpleString()}, found {schema.simpleString()}")


@dataclass(frozen=True)
class SplitPartition(InputPartition):
    """One partition of a batch read."""

    split: Split


class CommitLogReader(DataSourceReader):
    """Plans on the driver, reads on workers."""

    def __init__(self, options: Options, schema: StructType) -> None:
        """Check options and schema; nothing is read yet.

        Raises:
            OptionError: where they do not fit.
        """
        _check_schema(schema, options)
        self._options = options
        self._filters = narrow(options)
        self._arrow_schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")

    @carry_errors()
    def partitions(self) -> list[SplitPartition]:
        """What is to be read of the snapshot, once everything that the filters rule out is left out."""
        from commitlake.connectors.formats.engine.read_plan import plan_read  # noqa: PLC0415

        return [SplitPartition(split) for split in plan_read(self._options, self._filters).splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one split; none for a read without splits."""
        from commitlake.connectors.formats.engine.batches import read_split  # noqa: PLC0415
        from commitlake.connectors.runtime.settled import settle  # noqa: PLC0415

        if isinstance(partition, SplitPartition):
            with carry_errors():
                yield from read_split(partition.split, self._request())
            settle()

    def _request(self) -> Request:
        from commitlake.connectors.formats.engine.request import Request  # noqa: PLC0415

        return Request.of(self._options, self._filters.filters, self._arrow_schema)


class PushdownCommitLogReader(CommitLogReader):
    """A reader to which Spark tells its filters first."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Take what drops records early; return all, for Spark to apply."""
        self._filters = push(self._filters, filters)
        return filters
