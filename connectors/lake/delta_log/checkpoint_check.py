"""Checks of a Delta checkpoint that another program may have written, before a reader decodes all of it.

Parquet stores a value that is repeated once, so a file of a few MB can have rows that fill the memory: Delta's reader
needed 9 GB for one of 4.4 MB with thirty million empty rows. Checkpoints of this project are sealed, and may have any
size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

MAX_CHECKPOINT_VALUES = 100_000_000
"""Largest number of values in a checkpoint of another program, also empty ones. A data file has up to sixty; Delta's
reader needs 5 bytes for an empty one."""
MAX_CHECKPOINT_BYTES = 1 << 30
"""Largest decoded size of such a checkpoint."""
_CHECKED_BYTES = 1 << 28  # of decoded rows that a check has in memory
_SIDECAR = "sidecar"


def may_be_huge_checkpoint(file: pq.ParquetFile) -> bool:
    """Return whether a checkpoint, according to its footer, may be too large to read or refers to other files."""
    footer = file.metadata
    if any(
        _has_values(column) for column in _column_chunks(footer) if column.path_in_schema.startswith(f"{_SIDECAR}.")
    ):
        return True
    # A column can have one value of this size in each row.
    largest = max(_column_chunk_sizes(footer), default=0)
    return bool(_explain_exceeded_limit(footer)) or footer.num_rows * largest > MAX_CHECKPOINT_BYTES


def find_checkpoint_fault(data: bytes, *, is_written_by_us: bool = False) -> str:
    """Return the reason why bytes are not a checkpoint that a reader can decode; empty for a valid one.

    Args:
        data: the file.
        is_written_by_us: True if this process has written it; it may then have any size.
    """
    try:
        # With page checksums: changed bytes can decode to valid but wrong values.
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        if not is_written_by_us and (reached := _explain_exceeded_limit(file.metadata)):
            return reached
        decoded = 0
        for batch in _read_batches(file, file.schema_arrow.names):
            decoded += batch.nbytes
            if decoded > MAX_CHECKPOINT_BYTES and not is_written_by_us:
                return f"expected at most {MAX_CHECKPOINT_BYTES:,} bytes of decoded rows, found more"
            if _SIDECAR in batch.schema.names and batch.column(_SIDECAR).null_count < len(batch):
                return "expected all actions in this file, found names of others that have them"
    except (pa.ArrowException, OSError) as error:
        return f"expected a Parquet file, found {len(data):,} other bytes: {str(error).splitlines()[0]}"
    return ""


def added_paths(data: bytes) -> Iterator[str]:
    """Yield the paths of data files that a checkpoint adds; nothing if the bytes are not a valid checkpoint."""
    if find_checkpoint_fault(data):
        return
    for batch in _read_batches(pq.ParquetFile(pa.BufferReader(data)), ["add.path"]):
        actions = batch.column("add").to_pylist()
        yield from (action["path"] for action in actions if action is not None and action["path"] is not None)


def _read_batches(file: pq.ParquetFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    largest = max(_column_chunk_sizes(file.metadata), default=0)
    # If all of the largest column were in one batch, it would still fit.
    rows = max(1, min(1 << 16, _CHECKED_BYTES // max(1, largest)))
    yield from file.iter_batches(rows, columns=list(columns), use_threads=False)


def _explain_exceeded_limit(footer: pq.FileMetaData) -> str:
    values = sum(column.num_values for column in _column_chunks(footer))
    if values > MAX_CHECKPOINT_VALUES:
        return f"expected at most {MAX_CHECKPOINT_VALUES:,} values, found {values:,}: another program has written it"
    size = sum(_column_chunk_sizes(footer))
    if size > MAX_CHECKPOINT_BYTES:
        return f"expected at most {MAX_CHECKPOINT_BYTES:,} bytes, found {size:,}: another program has written it"
    return ""


def _column_chunk_sizes(footer: pq.FileMetaData) -> Iterator[int]:
    return (column.total_uncompressed_size for column in _column_chunks(footer))


def _has_values(column: pq.ColumnChunkMetaData) -> bool:
    statistics = column.statistics
    return statistics is None or not statistics.has_null_count or statistics.null_count < column.num_values


def _column_chunks(footer: pq.FileMetaData) -> Iterator[pq.ColumnChunkMetaData]:
    for group in range(footer.num_row_groups):
        metadata = footer.row_group(group)
        yield from (metadata.column(column) for column in range(metadata.num_columns))
