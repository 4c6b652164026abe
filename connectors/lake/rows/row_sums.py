"""Sums of rows: one number per table for its content, independent of the order of rows and of their files.

The sum of a table is that of its rows' hashes, modulo 2^64. The hash of a row covers names and values of its columns. A
null adds nothing, so a column that a later version adds does not change the hashes of earlier rows.

Each data file has the sum of its rows in its footer and in the log's statistics. Each commit of this project records by
how much it changes the table's sum, and the seal of the log has the sum after it, see `delta_log.seals`. If another
program changes rows, the sum of the table is no longer that of the seal. If it only merges files, as OPTIMIZE does, it
still is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from commitlake.connectors.arrays_without_pandas import to_numpy_numbers, to_string_array
from commitlake.connectors.lake.delta_log.row_sum_changes import FOOTER_KEY, read_footer_sum, wrap_int64
from commitlake.connectors.lake.rows.hashing import SEED, hash_strings, update_row_hashes
from commitlake.connectors.numpy_arrays import Array

_BATCH_ROWS = 1 << 16


def read_file_row_sums(folder: pafs.FileSystem, paths: Iterable[str]) -> Iterator[int | None]:
    """Yield the row sum (sum of all rows' hashes) of each data file, read or computed; None if the file is unreadable.

    Args:
        paths: paths of the files as the table's log has them.
    """
    return (_read_file_row_sum(folder, unquote(path)) for path in paths)


def _read_file_row_sum(folder: pafs.FileSystem, path: str) -> int | None:
    with suppress(FileNotFoundError, OSError, pa.ArrowException), folder.open_input_file(path) as source:
        parquet = pq.ParquetFile(source)
        known = read_footer_sum(parquet.metadata)
        return sum_file_rows(parquet)[0] if known is None else known
    return None


def sum_file_rows(parquet: pq.ParquetFile) -> tuple[int, int]:
    """Read a data file, and return the sum of the hashes of its rows, and the number of rows."""
    total = count = 0
    for batch in parquet.iter_batches(_BATCH_ROWS):
        total += rows_checksum(pa.Table.from_batches([batch]))
        count += batch.num_rows
    return wrap_int64(total), count


class RowSumWriter(pq.ParquetWriter):  # type: ignore[misc]  # pyarrow has no types
    """A Parquet writer that puts the sum of the hashes of all rows into the file's footer."""

    def __init__(self, where: Any, schema: pa.Schema, **options: Any) -> None:
        self._row_sum = 0
        super().__init__(where, schema.remove_metadata(), **options)  # which may have the sum of another file

    def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
        """Write rows as one or more row groups."""
        self._row_sum += rows_checksum(table)
        super().write_table(table, row_group_size)

    def close(self) -> None:
        """Write the footer, and close the writer."""
        if self.is_open:
            self.add_key_value_metadata({FOOTER_KEY: str(wrap_int64(self._row_sum))})
        super().close()


def rows_checksum(rows: pa.Table) -> int:
    """Return the sum of the rows' hashes, which does not depend on the order of the rows."""
    total = 0
    for batch in rows.to_batches(_BATCH_ROWS):
        hashes = _sum_field_hashes(batch.schema.names, batch.columns, batch.num_rows)
        # Hashed once more as a whole. A plain sum of fields would not change if two rows exchanged a value.
        chained = np.full(batch.num_rows, SEED, np.int64)
        update_row_hashes(hashes, chained)
        total += int(chained.sum())  # wraps around, as it should
    return wrap_int64(total)


def _sum_field_hashes(names: Sequence[str], columns: Sequence[pa.Array], row_count: int) -> Array:
    """Return, for each row, the sum of the hashes of its fields; a field that is null adds 0."""
    total = np.zeros(row_count, np.int64)
    seeds = hash_strings(to_string_array(names))
    for seed, column in zip(seeds, columns, strict=True):
        if column.null_count == row_count:
            continue
        hashes = np.full(row_count, seed, np.int64)
        update_row_hashes(_value_numbers(column), hashes)
        if column.null_count:
            hashes[pc.is_null(column).to_numpy(zero_copy_only=False)] = 0
        total += hashes
    return total


def _value_numbers(column: pa.Array) -> Array:
    """Return a 64-bit integer for each value of a column, such as the hash of a text; arbitrary for a null."""
    column = _cast_to_plain_type(column)
    kind = column.type
    if pa.types.is_dictionary(kind):
        values = _value_numbers(column.dictionary) if len(column.dictionary) else np.zeros(1, np.int64)
        chosen: Array = values[to_numpy_numbers(column.indices)]
        return chosen
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return hash_strings(column)
    if pa.types.is_map(kind):
        elements = pa.StructArray.from_arrays(
            [_referenced_elements(column, column.keys), _referenced_elements(column, column.items)], ["k", "v"]
        )
        return _sum_element_hashes(column, elements)
    if pa.types.is_list(kind):
        return _sum_element_hashes(column, _referenced_elements(column, column.values))
    if pa.types.is_struct(kind):
        return _sum_field_hashes([field.name for field in kind], column.flatten(), len(column))
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz))
    elif pa.types.is_date(kind):
        column = column.cast(pa.int32())
    numbers = to_numpy_numbers(column)
    return numbers.astype(np.float64).view(np.int64) if numbers.dtype.kind == "f" else numbers.astype(np.int64)


def _cast_to_plain_type(column: pa.Array) -> pa.Array:
    """Convert large and view types of strings, binaries and lists to the plain types that this project writes."""
    kind = column.type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return column.cast(pa.binary())
    if pa.types.is_large_list(kind) or pa.types.is_list_view(kind) or pa.types.is_fixed_size_list(kind):
        return column.cast(pa.list_(kind.value_type))
    return column


def _referenced_elements(lists: pa.Array, elements: pa.Array) -> pa.Array:
    """Return only the elements to which an array of lists refers; a slice refers to a part of them."""
    offsets = lists.offsets.to_numpy()
    return elements.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def _sum_element_hashes(lists: pa.Array, elements: pa.Array) -> Array:
    """Return, for each list, a sum of hashes of its elements that depends on the order of the elements."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    offsets -= offsets[0]
    lengths = np.diff(offsets)
    # An element's hash begins with its place in the list, so that the order of elements counts.
    hashes = np.arange(len(elements), dtype=np.int64) - np.repeat(offsets[:-1], lengths)
    values = _value_numbers(elements)
    if elements.null_count:
        values = np.where(pc.is_null(elements).to_numpy(zero_copy_only=False), SEED, values)
    update_row_hashes(values, hashes)
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(hashes)])
    combined: Array = sums[offsets[1:]] - sums[offsets[:-1]] + lengths
    return combined
