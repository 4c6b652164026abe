"""Merges sorted files into one sorted file, in bounded memory.

The sort columns of all files are read first. They determine from which file each row of the result comes. Because every
file is sorted, the result can then be assembled from consecutive rows of each file. Only a small batch of each file is
in memory, and only the sort columns are read twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from commitlake.connectors.numpy_arrays import Array
from commitlake.schemas.errors import CommitLakeError

_CHUNK_ROWS = 1 << 14
_BATCH_BYTES = 64 << 20  # total of all files
_LARGEST_BATCH = 8192
_SMALLEST_BATCH = 64
_LEVELS = frozenset({"RLE", "BIT_PACKED"})
_DICTIONARIES = frozenset({"RLE_DICTIONARY", "PLAIN_DICTIONARY"})
_UNPACKED = 4  # a row in memory takes several times its size in the file, with dictionaries


class UnsortedFileError(CommitLakeError):
    """Error because a file's rows are not in the order of the sort columns, as another program wrote it.

    Attributes:
        number: index of the file among those to be merged.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    def __str__(self) -> str:
        return f"file {self.number} is not sorted"


@dataclass(frozen=True, slots=True)
class SortedFileMerge:
    """Open sorted Parquet files, and the order in which their rows are merged.

    Attributes:
        schema: columns of the result; a column that a file does not have is null.
        order: for each row of the result, the index of its file.
        sources: the open files.
    """

    schema: pa.Schema
    order: Array
    sources: Sequence[pq.ParquetFile]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for source in self.sources:
            source.close(force=True)

    @property
    def row_count(self) -> int:
        """Number of rows of the result."""
        return len(self.order)

    def dictionary_column_paths(self) -> list[str]:
        """Return the paths of the columns that the files store with a dictionary."""
        return [path for path, encoding in _column_encodings(self.sources).items() if encoding is None]

    def column_encodings(self) -> dict[str, str]:
        """Return the encodings of the columns that are stored without a dictionary, by column path."""
        return {path: encoding for path, encoding in _column_encodings(self.sources).items() if encoding is not None}

    def iterate_batches(self) -> Iterator[pa.Table]:
        """Yield the rows of the result in order, in small tables."""
        size = _choose_batch_row_count(self.sources)
        cursors = [_RowCursor(source, self.schema, size) for source in self.sources]
        chunk = max(_SMALLEST_BATCH, min(_CHUNK_ROWS, size * len(cursors)))
        for start in range(0, self.row_count, chunk):
            part = self.order[start : start + chunk]
            counts = np.bincount(part, minlength=len(cursors))
            pieces = pa.concat_tables(
                [cursor.take_rows(int(count)) for cursor, count in zip(cursors, counts, strict=True) if count]
            )
            # The pieces are concatenated by file; find the position in them of each row of the result.
            positions = np.empty(len(part), np.int64)
            positions[np.argsort(part, kind="stable")] = np.arange(len(part))
            yield pieces.take(pa.array(positions))


def open_merge(files: pafs.FileSystem, paths: Sequence[str], sort_columns: Sequence[str]) -> SortedFileMerge:
    """Open files and determine the order of the merged rows.

    Args:
        files: filesystem of the files.
        paths: paths of the files.
        sort_columns: columns by which each file is sorted; if empty, the rows of one file follow those of the next.

    Raises:
        UnsortedFileError: if a file is not sorted.
    """
    sources: list[pq.ParquetFile] = []
    try:
        sources.extend(
            # Pre-buffered, whole row groups of all files would be in memory.
            pq.ParquetFile(files.open_input_file(path), pre_buffer=False, page_checksum_verification=True)
            for path in paths
        )
        schema = pa.unify_schemas([source.schema_arrow for source in sources], promote_options="permissive")
        return SortedFileMerge(schema, _merge_order(sources, sort_columns), sources)
    except BaseException:
        for source in sources:
            source.close(force=True)
        raise


def _merge_order(sources: Sequence[pq.ParquetFile], sort_columns: Sequence[str]) -> Array:
    """Return, for each row of the merged result, the index of the file that it comes from."""
    numbers = np.repeat(np.arange(len(sources), dtype=np.int32), [source.metadata.num_rows for source in sources])
    if not sort_columns:
        return numbers
    keys = pa.concat_tables(
        [source.read(list(sort_columns), use_threads=False) for source in sources], promote_options="permissive"
    )
    # `lexsort` takes the most important column last.
    order = np.lexsort([_value_ranks(keys.column(name)) for name in reversed(sort_columns)])
    by_file = order[np.argsort(numbers[order], kind="stable")]
    wrong = np.flatnonzero(np.diff(by_file) < 0)
    if len(wrong):  # the rows of a sorted file keep their order in the result
        raise UnsortedFileError(int(numbers[by_file[wrong[0]]]))
    return numbers[order]


def _value_ranks(column: pa.ChunkedArray) -> Array:
    """Return an integer for each value of a column, in the order of the values; nulls sort first."""
    if pa.types.is_integer(column.type) and not column.null_count:
        return np.asarray(column.to_numpy(), np.int64)
    encoded = pc.dictionary_encode(column.combine_chunks())
    names = encoded.dictionary
    # One more, for null, to which -1 refers below.
    rank = np.empty(len(names) + 1, np.int64)
    rank[pc.array_sort_indices(names).to_numpy()] = np.arange(len(names))
    rank[-1] = -1
    ranks: Array = rank[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    return ranks


def _choose_batch_row_count(sources: Sequence[pq.ParquetFile]) -> int:
    rows = sum(source.metadata.num_rows for source in sources)
    held = sum(
        source.metadata.row_group(number).total_byte_size
        for source in sources
        for number in range(source.metadata.num_row_groups)
    )
    row_bytes: int = max(256, _UNPACKED * held // max(rows, 1))
    return max(_SMALLEST_BATCH, min(_LARGEST_BATCH, _BATCH_BYTES // (row_bytes * len(sources))))


def _column_encodings(sources: Sequence[pq.ParquetFile]) -> dict[str, str | None]:
    """Return each column's encoding in the largest file; None if it is encoded with a dictionary."""
    found: dict[str, str | None] = {}
    # The largest file last, so that its encodings win.
    for source in sorted(sources, key=lambda source: source.metadata.num_rows):
        for number in range(source.metadata.num_columns if source.metadata.num_row_groups else 0):
            column = source.metadata.row_group(0).column(number)
            chosen = [encoding for encoding in column.encodings if encoding not in _LEVELS]
            has_dictionary = not chosen or any(encoding in _DICTIONARIES for encoding in chosen)
            found[column.path_in_schema] = None if has_dictionary else chosen[0]
    return found


class _RowCursor:
    """Reads the rows of one file in order, any number at a time."""

    def __init__(self, source: pq.ParquetFile, schema: pa.Schema, batch_rows: int) -> None:
        self._batches = source.iter_batches(batch_rows, use_threads=False)
        self._schema = schema
        self._left = schema.empty_table()

    def take_rows(self, count: int) -> pa.Table:
        """Return the next `count` rows."""
        found = [self._left.slice(0, count)]
        missing = count - len(found[0])
        self._left = self._left.slice(count)
        while missing:
            batch = self._cast_to_schema(pa.Table.from_batches([next(self._batches)]))
            found.append(batch.slice(0, missing))
            self._left = batch.slice(missing)
            missing -= len(found[-1])
        return pa.concat_tables(found)

    def _cast_to_schema(self, table: pa.Table) -> pa.Table:
        if table.schema.equals(self._schema):
            return table
        columns = [
            table.column(field.name).cast(field.type)
            if field.name in table.column_names
            else pa.nulls(len(table), field.type)
            for field in self._schema
        ]
        return pa.table(columns, schema=self._schema)
