"""Rows on this machine's disk, in partitions that fit into memory.

A file has Arrow's IPC file format, with one record batch for each partition, in order. Some tasks write such files;
others read one partition from all of them. This replaces Spark's shuffle.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from commitlake.connectors.arrays import Array
from commitlake.pipelines.quality.checksums import column_hashes, part_numbers

_FEW, _SMALL_ROWS, _LARGE_ROWS = 64, 20_000, 200_000
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def partition_count(rows: int) -> int:
    """Return the number of partitions for a number of rows, so that each fits into memory.

    >>> partition_count(1000), partition_count(1_000_000), partition_count(1_000_000_000)
    (1, 50, 5000)
    """
    return max(1, min(rows // _SMALL_ROWS, _FEW), rows // _LARGE_ROWS)


def partition_numbers(rows: pa.Table, columns: Iterable[str], count: int) -> Array:
    """Return the partition of each row. Equal values have the same partition in every process.

    Args:
        rows: has the columns, each in one chunk.
        columns: columns that determine the partition.
        count: number of partitions.
    """
    return part_numbers(column_hashes(rows, columns), count)


def write_partitions(rows: pa.Table, numbers: Array, count: int, folder: Path) -> Path:
    """Write rows to a new file.

    Args:
        rows: each column in one chunk.
        numbers: partition of each row.
        count: number of partitions.
        folder: folder of the file.
    """
    counts = np.bincount(numbers, minlength=count)
    ordered = rows.take(pa.array(np.argsort(numbers, kind="stable"))).combine_chunks()
    starts = np.cumsum(counts) - counts
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".arrow", delete=False) as file:
        with pa.ipc.new_file(file, ordered.schema, options=_OPTIONS) as writer:
            for start, length in zip(starts.tolist(), counts.tolist(), strict=True):
                part = ordered.slice(start, length).combine_chunks().to_batches()
                writer.write_batch(part[0] if part else _empty_batch(ordered))
        return Path(file.name)


def _empty_batch(rows: pa.Table) -> pa.RecordBatch:
    columns = [
        column.chunk(0).slice(0, 0) if column.num_chunks else pa.array([], column.type) for column in rows.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def read_partition(paths: Sequence[Path], number: int) -> list[pa.Table]:
    """Read one partition from each file.

    Args:
        paths: from `write_partitions`.
        number: index of the partition.
    """
    tables = []
    for path in paths:
        with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
            tables.append(pa.Table.from_batches([reader.get_batch(number)]))
    return tables
