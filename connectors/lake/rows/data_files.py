"""Data files of `messages`: sorted Parquet files with the statistics that Delta's log needs.

The tasks write these files themselves, because writing Parquet through the JVM costs several times as much per row.
Columns with repeated values use dictionaries; increasing columns, and texts with common prefixes, are delta-encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.statistics import file_statistics
from commitlake.connectors.storage.adapter_choice import open_lake_storage

_BUFFER_BYTES = 1 << 20


@contextmanager
def open_arrow_output(file: object) -> Iterator[pa.NativeFile]:
    """Wrap a Python file for Arrow's Parquet writer, with a buffer that joins its small writes; the file stays open.

    Arrow's writer of Parquet writes a thousand pieces per data file. Each would wait for Python's lock, which the other
    tasks of this process need, too.

    Args:
        file: a writable file of Python's; its `write` must write everything.
    """
    output = pa.BufferedOutputStream(pa.PythonFile(file, "w"), _BUFFER_BYTES)
    try:
        yield output
    except BaseException:
        with suppress(Exception):  # the file will be dropped; otherwise Arrow would close it later
            output.detach()
        raise
    output.detach()


NO_DATE = "__HIVE_DEFAULT_PARTITION__"
BATCH_VALUES = 8 << 10
"""Number of a column's values between two looks at the page's size; Arrow's 1,024 cost time."""
_ROW_GROUP_ROWS = 1 << 17
_ROW_GROUP_BYTES = 32 << 20  # size of the rows in memory; the writer needs several times as much for a row group
_PAGE_BYTES = 256 << 10  # unit that a reader of one topic can skip, by the page index
_DIFFERENCES = {
    "physical_offset": "DELTA_BINARY_PACKED",
    "queue_offset": "DELTA_BINARY_PACKED",
    "born_timestamp": "DELTA_BINARY_PACKED",
    "store_timestamp": "DELTA_BINARY_PACKED",
    "msg_id": "DELTA_BYTE_ARRAY",
    "unique_key": "DELTA_BYTE_ARRAY",
    "keys.list.element": "DELTA_LENGTH_BYTE_ARRAY",
    "properties.key_value.value": "PLAIN",  # delta-encoded lengths: smaller by a tenth, but much slower to write
    "body_crc": "PLAIN",
    "body_ref.offset": "DELTA_BINARY_PACKED",
}

CloseLater = Callable[[Callable[[], None]], object]
"""A function that takes a closing function and calls it later."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file that a commit can add to a table.

    Attributes:
        path: path relative to the table's folder.
        store_date: the partition, as text; None for rows without a time.
        size: size in bytes.
        rows: number of rows.
        statistics: JSON of Delta's statistics.
    """

    path: str
    store_date: str | None
    size: int
    rows: int
    statistics: str


def sort_rows(rows: pa.Table) -> pa.Table:
    """Sort rows of `messages` by topic, queue and queue offset.

    Args:
        rows: the rows, with these columns; the topic is a dictionary array in one chunk.
    """
    topics = rows.column("topic").chunk(0)
    names = np.array(topics.dictionary.to_pylist(), object)
    rank = np.empty(len(names), np.int64)
    # The codes of a dictionary are in the order of appearance, so they are replaced by the ranks of the names.
    rank[np.argsort(names)] = np.arange(len(names))
    queue_ids = rows.column("queue_id").to_numpy().astype(np.int64)
    group = rank[topics.indices.to_numpy()] << 32 | queue_ids & 0xFFFFFFFF
    # `lexsort` takes the most important key last.
    return rows.take(pa.array(np.lexsort((rows.column("queue_offset").to_numpy(), group))))


def write_data_file(
    rows: pa.Table,
    lake: Lake,
    store_date: str | None,
    file_name: str,
    *,
    close_later: CloseLater | None = None,
) -> DataFile:
    """Write rows of `messages` as a file of their partition; it belongs to the table only after a commit.

    Args:
        rows: the columns of `messages` without the partition.
        store_date: the partition.
        file_name: file name; a file of that name is replaced.
        close_later: called with the function that closes the file, which waits for the disk; the file gets its name
            then. By default, the file is closed before this function returns.

    Raises:
        S3Error: if an object store refuses it.
    """
    path = f"store_date={store_date or NO_DATE}/{file_name}"
    with ExitStack() as stack:
        output = stack.enter_context(open_table_file(lake, "messages", path))
        metadata = _write_parquet(rows, output)
        size = output.tell()
        if close_later is not None:
            # The file becomes visible when it is closed, which another thread may do while this one writes the next
            # file.
            close_later(stack.pop_all().close)
    return DataFile(path, store_date, size, rows.num_rows, file_statistics(metadata))


@contextmanager
def open_table_file(lake: Lake, table: str, path: str) -> Iterator[pa.NativeFile]:
    """Open a file in a table's folder for writing; it appears once the block has ended without an error.

    Args:
        table: name of the table.
        path: the file, relative to the table's folder; an existing file is replaced.

    Raises:
        S3Error: if an object store refuses it.
    """
    with open_lake_storage(lake.uri(table), lake.s3).open_write(path) as file, open_arrow_output(file) as output:
        yield output


def _write_parquet(rows: pa.Table, output: object) -> pq.FileMetaData:
    collected: list[pq.FileMetaData] = []
    leaves = _schema_leaf_paths(rows.schema)
    with pq.ParquetWriter(
        output,
        rows.schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in leaves if name not in _DIFFERENCES],
        column_encoding={name: _DIFFERENCES[name] for name in leaves if name in _DIFFERENCES},
        data_page_size=_PAGE_BYTES,
        write_batch_size=BATCH_VALUES,
        write_statistics=_flat_columns(rows.schema),
        write_page_index=True,
        write_page_checksum=True,
        store_schema=False,
        metadata_collector=collected,
    ) as writer:
        # By bytes as well as by rows, because the writer needs several times a row group's size in memory.
        fitting = rows.num_rows * _ROW_GROUP_BYTES // max(rows.nbytes, 1)
        writer.write_table(rows, row_group_size=max(1, min(fitting, _ROW_GROUP_ROWS)))
    return collected[0]


def _flat_columns(schema: pa.Schema) -> list[str]:
    """Return the top-level columns without nested values, for which statistics are written."""
    return [field.name for field in schema if not pa.types.is_nested(field.type)]


def _schema_leaf_paths(schema: pa.Schema) -> list[str]:
    """Return Parquet's paths of all leaf columns of a schema."""
    return [path for field in schema for path in _leaf_paths(field.name, field.type)]


def _leaf_paths(path: str, data_type: pa.DataType) -> list[str]:
    if pa.types.is_struct(data_type):
        return [leaf for field in data_type for leaf in _leaf_paths(f"{path}.{field.name}", field.type)]
    if pa.types.is_map(data_type):
        return [f"{path}.key_value.key", *_leaf_paths(f"{path}.key_value.value", data_type.item_type)]
    if pa.types.is_list(data_type):
        return _leaf_paths(f"{path}.list.element", data_type.value_type)
    return [path]
