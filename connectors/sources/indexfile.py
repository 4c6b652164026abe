"""Spark data source `indexfile`: entries, slots or headers of a RocketMQ broker's IndexFiles as rows.

    from commitlake import register
    register(spark)
    entries = spark.read.format("indexfile").load("/data/rocketmq/store")
    headers = spark.read.format("indexfile").option("content", "headers").load("/data/rocketmq/store")

In a copy that `commitlake ship` made in an object store or HDFS, the newest IndexFile is missing: it is never copied,
because the broker changes all parts of it.

An IndexFile is a hash table on disk: a header, slots with the number of their chain's newest entry, and entries of 20
bytes in the order of their creation. It only has hashes of topic and key; with the options `topics` and `keys` the rows
are the entries with the hash of one of the keys, which may include other keys with the same hash.

Options are in `connectors.formats.index_entries.entry_options`, columns in `schemas.tables.index_entries`. The driver
reads the headers and divides the files into partitions (`index_parts`); a worker reads 16,384 entries at a time. The
counts in a header may be too small after a crash, so entries are read until the rest of the file is zeros. Impossible
entries, headers that contradict their files and files of a wrong size are bad ranges, which `mode` controls. Entries
are not compared with the log.

`register(spark, pushdown=True)` lets Spark push predicates on broker and physical_offset; see the warning in
`connectors.sources.commitlog`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from commitlake.connectors.formats.index_entries.entry_options import IndexContent, IndexFileOptions
from commitlake.connectors.sources.predicates import push_predicates
from commitlake.connectors.sources.schema_choice import check_columns, choose_columns
from commitlake.connectors.spark.versions import to_arrow_schema
from commitlake.connectors.worker_errors import forward_worker_errors
from commitlake.schemas.tables.index_entries import CORRUPT_ENTRY, INDEX_ENTRIES, INDEX_HEADERS, INDEX_SLOTS

if TYPE_CHECKING:
    from commitlake.connectors.formats.index_entries.index_file_parts import IndexPart

_TABLES = {
    IndexContent.ENTRIES: INDEX_ENTRIES,
    IndexContent.SLOTS: INDEX_SLOTS,
    IndexContent.HEADERS: INDEX_HEADERS,
}


class IndexFileDataSource(DataSource):
    """Data source `indexfile` for the IndexFiles of stores."""

    @classmethod
    def name(cls) -> str:
        """Return the source's name, which Spark's `format` takes."""
        return "indexfile"

    @forward_worker_errors()
    def schema(self) -> StructType:
        """Return the columns that the options select."""
        options = IndexFileOptions.parse(self.options)
        return choose_columns(_TABLES[options.content], options.columns, options.mode, CORRUPT_ENTRY.name)

    @forward_worker_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader for the columns of a schema."""
        return IndexFileReader(IndexFileOptions.parse(self.options), schema)


class PushdownIndexFileDataSource(IndexFileDataSource):
    """`IndexFileDataSource` with pushdown of Spark's predicates, which Spark applies again."""

    @forward_worker_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader for the columns of a schema, which accepts Spark's filters."""
        return PushdownIndexFileReader(IndexFileOptions.parse(self.options), schema)


@dataclass(frozen=True)
class IndexPartition(InputPartition):
    """Partition of a read: parts of IndexFiles, which one task reads."""

    parts: Sequence[IndexPart]


class IndexFileReader(DataSourceReader):
    """Batch reader that plans on the driver and reads on workers."""

    def __init__(self, options: IndexFileOptions, schema: StructType) -> None:
        """Check options and schema; nothing is read yet.

        Raises:
            UsageError: if they do not fit one another.
        """
        check_columns(schema, _TABLES[options.content], options.mode, CORRUPT_ENTRY.name)
        self._options = options
        self._filters = options.to_read_filters
        self._arrow_schema: pa.Schema = to_arrow_schema(schema)

    @forward_worker_errors()
    def partitions(self) -> list[IndexPartition]:
        """Return the IndexFiles, divided into partitions."""
        from commitlake.connectors.formats.index_entries.index_file_parts import plan_index_files  # noqa: PLC0415

        return [IndexPartition(tuple(parts)) for parts in plan_index_files(self._options, self._filters)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition; none for a read without partitions."""
        from commitlake.connectors.formats.index_entries.index_rows import read_index_parts  # noqa: PLC0415
        from commitlake.connectors.runtime.memory import freeze_loaded_objects  # noqa: PLC0415

        if isinstance(partition, IndexPartition):
            with forward_worker_errors():
                yield from read_index_parts(partition.parts, self._arrow_schema, self._filters, self._options)
            freeze_loaded_objects()


class PushdownIndexFileReader(IndexFileReader):
    """Batch reader that uses the filters which Spark pushes down to read less."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Use filters that exclude stores and entries early; return all of them, so that Spark applies them again."""
        self._filters = push_predicates(self._filters, filters)
        return filters
