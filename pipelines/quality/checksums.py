"""Hashes of columns of `messages`, for the profile's `COLUMN_CHECKSUMS`.

Each column gives a number for each row: the value itself, or its hash; `NULL_NUMBER` for a null. The row's hash is
Spark's `xxhash64` of these numbers.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import string_bytes_and_offsets
from commitlake.connectors.lake.rows.hashing import SEED, hash_lists, hash_strings, update_row_hashes
from commitlake.connectors.numpy_arrays import Array, read_only_view
from commitlake.schemas.tables.messages import STORE_DATE
from commitlake.schemas.tables.profile import CHECKSUM_COLUMNS, NULL_NUMBER

_DAY_US = 86_400_000_000
_NO_DAY = -1  # rows of this day have no partition, see `pipelines.archive.row_buffer`


def message_hashes(table: pa.Table) -> Array:
    """Return a hash of each message's numeric columns, which `profiles` sums in `checksum`; nulls are skipped.

    Args:
        table: has `CHECKSUM_COLUMNS`, each in one chunk.
    """
    hashes = np.full(table.num_rows, SEED, np.int64)
    for name in CHECKSUM_COLUMNS:
        column = _single_chunk(table, name)
        before = hashes.copy() if column.null_count else None
        (numbers,) = _hash_column(column)
        update_row_hashes(numbers // 1000 if pa.types.is_timestamp(column.type) else numbers, hashes)
        if before is not None:
            absent = pc.is_null(column).to_numpy(zero_copy_only=False)
            hashes[absent] = before[absent]
    return hashes


def part_numbers(hashes: Array, part_count: int) -> Array:
    """Return the number of the part to which each row belongs: its hash modulo `part_count`."""
    numbers: Array = (hashes.view(np.uint64) % np.uint64(part_count)).astype(np.int64)
    return numbers


def column_hashes(table: pa.Table, names: Iterable[str]) -> Array:
    """Return a hash of the given columns for each row.

    Args:
        table: has these columns, each in one chunk; strings may be dictionaries. Without `store_date`, the date of
            `store_timestamp` is used.
        names: names of the columns, in the order of hashing; `a.b` is a field of a struct.
    """
    hashes = np.full(table.num_rows, SEED, np.int64)
    for name in names:
        for numbers in _hash_named_column(table, name):
            update_row_hashes(numbers, hashes)
    return hashes


def _hash_named_column(table: pa.Table, name: str) -> list[Array]:
    if name == STORE_DATE.name and name not in table.column_names:
        return [_to_store_dates(_single_chunk(table, "store_timestamp"))]
    name, *fields = name.split(".")
    column = _single_chunk(table, name)
    return _hash_column(pc.struct_field(column, fields) if fields else column)


def _single_chunk(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _hash_column(column: pa.Array) -> list[Array]:
    """Return the hashes of a column's values as one array; for a map column two arrays, of keys and of values."""
    if pa.types.is_map(column.type):
        return [_hash_lists(column, column.keys), _hash_lists(column, column.items)]
    if pa.types.is_list(column.type):
        return [_hash_lists(column, column.values)]
    if pa.types.is_dictionary(column.type):
        hashes = np.append(hash_strings(column.dictionary), NULL_NUMBER)
        indices = column.indices.fill_null(len(hashes) - 1) if column.null_count else column.indices
        return [hashes[indices.to_numpy()]]
    if pa.types.is_string(column.type):
        return [_set_hashes_of_nulls(hash_strings(column), column)]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    elif pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    return [_to_integers(column)]


def _to_integers(column: pa.Array) -> Array:
    numbers = column.cast(pa.int64())
    values: Array = np.array((numbers.fill_null(NULL_NUMBER) if numbers.null_count else numbers).to_numpy())
    return values


def _to_store_dates(times: pa.Array) -> Array:
    days = _to_integers(times.cast(pa.timestamp("us", times.type.tz)))
    if times.null_count == 0:
        dates: Array = days // _DAY_US
    else:
        dates = np.where(days == NULL_NUMBER, _NO_DAY, days // _DAY_US)
    dates[dates == _NO_DAY] = NULL_NUMBER
    return dates


def _hash_lists(lists: pa.Array, elements: pa.Array) -> Array:
    """Return one hash for each list, combined from the hashes of its elements."""
    hashes = np.empty(len(lists), np.int64)
    if pa.types.is_dictionary(elements.type):
        texts, indices = elements.dictionary, elements.indices.cast(pa.int32()).to_numpy()
    else:
        texts, indices = elements, read_only_view(np.empty(0, np.int32))
    data, offsets = string_bytes_and_offsets(texts)
    hash_lists(lists.offsets.to_numpy(), data, offsets, indices, hashes)
    return _set_hashes_of_nulls(hashes, lists)


def _set_hashes_of_nulls(hashes: Array, column: pa.Array) -> Array:
    if column.null_count:
        hashes[pc.is_null(column).to_numpy(zero_copy_only=False)] = NULL_NUMBER
    return hashes
