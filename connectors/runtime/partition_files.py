"""Division of rows into parts that fit into memory, stored in files on this machine.

A file has Arrow's IPC file format, with one record batch for each part, in order. Some tasks write such files; others
read one part from all of them. Where tasks share no disk, the rows of a part are packed, and sent to it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from commitlake.connectors.numpy_arrays import Array

_FEW, _SMALL_ROWS, _LARGE_ROWS = 64, 20_000, 200_000
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def partition_count(row_count: int) -> int:
    """Return how many parts a number of rows needs, so that each part fits into memory.

    >>> partition_count(1000), partition_count(1_000_000), partition_count(1_000_000_000)
    (1, 50, 5000)
    """
    return max(1, min(row_count // _SMALL_ROWS, _FEW), row_count // _LARGE_ROWS)


def divide_rows(rows: pa.Table, part_numbers: Array, part_count: int) -> Iterator[pa.RecordBatch | None]:
    """Yield the rows of each part, given each row's part number; None for a part without rows.

    Args:
        rows: each column in one chunk.
        part_numbers: part of each row.
        part_count: number of parts.
    """
    counts = np.bincount(part_numbers, minlength=part_count)
    ordered = rows.take(pa.array(np.argsort(part_numbers, kind="stable"))).combine_chunks()
    starts = np.cumsum(counts) - counts
    for start, length in zip(starts.tolist(), counts.tolist(), strict=True):
        yield ordered.slice(start, length).combine_chunks().to_batches()[0] if length else None


def write_partitions(rows: pa.Table, part_numbers: Array, part_count: int, folder: Path) -> Path:
    """Write rows, divided into parts, to a new file.

    Args:
        rows: each column in one chunk.
        part_numbers: part of each row.
        part_count: number of parts.
        folder: folder of the file.
    """
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".arrow", delete=False) as file:
        with pa.ipc.new_file(file, rows.schema, options=_OPTIONS) as writer:
            for part in divide_rows(rows, part_numbers, part_count):
                writer.write_batch(_empty_batch(rows) if part is None else part)
        return Path(file.name)


def _empty_batch(rows: pa.Table) -> pa.RecordBatch:
    """Return a batch without rows, but with Arrow's dictionaries, which must be the same in all batches of a file.

    Other columns are made anew: of a slice without rows, Arrow writes all rows of the column into the file.
    """
    columns = [
        column.chunk(0).slice(0, 0)
        if (pa.types.is_dictionary(column.type) or pa.types.is_nested(column.type)) and column.num_chunks
        else pa.nulls(0, column.type)
        for column in rows.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def read_partition(paths: Sequence[Path], part_number: int) -> list[pa.Table]:
    """Read the rows of one part from all files.

    Args:
        paths: from `write_partitions`.
        part_number: number of the part.
    """
    tables = []
    for path in paths:
        with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
            tables.append(pa.Table.from_batches([reader.get_batch(part_number)]))
    return tables


def pack_rows(rows: pa.RecordBatch) -> bytes:
    """Return rows as bytes in Arrow's IPC stream format."""
    with pa.BufferOutputStream() as sink:
        with pa.ipc.new_stream(sink, rows.schema, options=_OPTIONS) as writer:
            writer.write_batch(rows)
        packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpack_rows(data: pa.BinaryScalar) -> pa.Table:
    """Return the rows that `pack_rows` has converted to bytes."""
    return pa.ipc.open_stream(data.as_buffer()).read_all()
