"""Finds members by their keys: the row before another one with the same keys, and the number of such rows.

`LinkableRecords` has the members as a table with cached columns, and searches it for the predecessor of a member.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import to_numpy_numbers
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.edges.step_records import Role

Column: TypeAlias = pa.Array | pa.ChunkedArray
"""A column of a table."""
NONE = -1
"""Number of a row that does not exist."""


def encode_key_columns(left: Sequence[Column], right: Sequence[Column]) -> tuple[Array, Array]:
    """Replace the values of several key columns by integer codes that are the same in both tables.

    Args:
        left: columns of one table.
        right: columns of the same or another table, in the same order and of the same types.

    Returns:
        The number of each row on both sides; `NONE` if one of its columns is null.

    >>> left, right = encode_key_columns([pa.array(["a", "b", None])], [pa.array(["b", "c"])])
    >>> bool(left[1] == right[0]), int(left[2]), left[0] in right
    (True, -1, False)
    """
    count = len(left[0])
    found = np.zeros(count + len(right[0]), np.int64)
    for one, other in zip(left, right, strict=True):
        codes = _encode_values(one, other)
        # A null in any column has no partner.
        combined = np.where((found < 0) | (codes < 0), NONE, found * (codes.max(initial=0) + 1) + codes)
        # Arrow's dictionary encoding hashes; numpy would sort.
        dense = to_numpy_numbers(pc.dictionary_encode(pa.array(combined)).indices).astype(np.int64)
        found = np.where(combined < 0, NONE, dense)
    return found[:count], found[count:]


def _encode_values(left: Column, right: Column) -> Array:
    """Replace the values of two columns by integer codes, which are equal for equal values."""
    both = pa.chunked_array([*_list_chunks(left), *_list_chunks(right)], left.type).combine_chunks()
    codes: Array = to_numpy_numbers(pc.dictionary_encode(both).indices.cast(pa.int64()), null_value=NONE)
    return codes


def _list_chunks(column: Column) -> list[pa.Array]:
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]


def match_latest_before(left: Array, left_positions: Array, right: Array, right_positions: Array) -> Array:
    """Find, for each row on the left, the last row on the right with the same key that is before it.

    Args:
        left: key numbers from `encode_key_columns`, `NONE` for none.
        left_positions: int64, position of each row.
        right: key numbers of the other side.
        right_positions: positions of the other side.

    Returns:
        Row numbers on the right; `NONE` if there is none.

    >>> keys = np.array([7, 7, 7, 8])
    >>> match_latest_before(np.array([7, 8]), np.array([25, 5]), keys, np.array([10, 20, 30, 10]))
    array([ 1, -1])
    """
    order, composite, wanted = _rank_keys(left, left_positions, right, right_positions)
    at = np.searchsorted(composite, wanted, side="left") - 1
    return _drop_other_keys_matches(left, right, order, at)


def match_first_after(left: Array, left_positions: Array, right: Array, right_positions: Array) -> Array:
    """Find, for each row on the left, the first row on the right with the same key that is at or after it.

    Arguments and result are those of `match_latest_before`.
    """
    order, composite, wanted = _rank_keys(left, left_positions, right, right_positions)
    at = np.searchsorted(composite, wanted, side="left")
    at[at == len(order)] = NONE
    return _drop_other_keys_matches(left, right, order, at)


def count_same_key(left: Array, right: Array) -> Array:
    """Count, for each row on the left, the rows on the right with the same key."""
    ordered = np.sort(right[right >= 0])
    found: Array = np.searchsorted(ordered, left, side="right") - np.searchsorted(ordered, left, side="left")
    return np.where(left < 0, 0, found)


def count_before(left: Array, left_positions: Array, right: Array, right_positions: Array) -> Array:
    """Count, for each row on the left, the rows on the right with the same key that are before it."""
    order, composite, wanted = _rank_keys(left, left_positions, right, right_positions)
    ordered = right[order]
    found: Array = np.searchsorted(composite, wanted) - np.searchsorted(ordered, left)
    return np.where(left < 0, 0, found)


def match_same_key(left: Array, right: Array) -> tuple[Array, Array]:
    """Find, for each row on the left, a row on the right with the same key, and the number of such rows."""
    counts = count_same_key(left, right)
    zeros = np.zeros(len(left), np.int64)
    return match_first_after(left, zeros, right, np.zeros(len(right), np.int64)), counts


def rank_within_key(keys: Array, positions: Array) -> Array:
    """Return the rank of each row among the rows with the same key, by position and starting at 0."""
    order = np.lexsort((positions, keys))
    ordered = keys[order]
    starts = np.searchsorted(ordered, ordered, side="left")
    ranks = np.empty(len(keys), np.int64)
    ranks[order] = np.arange(len(keys)) - starts
    return ranks


def _rank_keys(left: Array, left_positions: Array, right: Array, right_positions: Array) -> tuple[Array, Array, Array]:
    known = np.flatnonzero(right >= 0)
    order = known[np.lexsort((right_positions[known], right[known]))]
    places = np.unique(right_positions[known])
    width = np.int64(len(places) + 1)
    # Key and rank of the position as one number, so that one search finds both without an overflow.
    composite = right[order] * width + np.searchsorted(places, right_positions[order])  # less than left's if before it
    wanted = np.where(left < 0, np.int64(NONE), left * width + np.searchsorted(places, left_positions))
    return order, composite, wanted


def _drop_other_keys_matches(left: Array, right: Array, order: Array, order_indexes: Array) -> Array:
    found = np.full(len(left), NONE, np.int64)
    is_there = (order_indexes >= 0) & (left >= 0)
    found[is_there] = order[order_indexes[is_there]]
    # The neighbour in the order may be of another key.
    hits = np.flatnonzero(found >= 0)
    found[hits[right[found[hits]] != left[hits]]] = NONE
    return found


class LinkableRecords:
    """Records between which edges are searched, each identified by its row number from 0 (member number).

    Args:
        table: a table of `MEMBERS`.
    """

    def __init__(self, table: pa.Table) -> None:
        self.table: pa.Table = table.combine_chunks()

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def has_value(self, name: str, *values: str) -> Array:
        """Return a mask of the records that have one of the given texts in a column."""
        found: Array = pc.is_in(self.column(name), pa.array(list(map(str, values)))).to_numpy(zero_copy_only=False)
        return found

    def is_null(self, name: str) -> Array:
        """Return a mask of the records that have null in a column."""
        found: Array = pc.is_null(self.column(name)).to_numpy(zero_copy_only=False)
        return found

    @cached_property
    def offsets(self) -> Array:
        """Physical offset of each record."""
        return self.numbers("physical_offset")

    @cached_property
    def times(self) -> Array:
        """Store time of each record, microseconds since 1970."""
        return self.numbers("store_timestamp")

    def numbers(self, name: str, null_value: int = 0) -> Array:
        """Return a column of integers, times or booleans as an array."""
        return to_numpy_numbers(self.table.column(name), null_value=null_value)

    def column(self, name: str, rows: Array | None = None) -> pa.Array:
        """Return a column's values for the records with the given row numbers, or for all records."""
        whole = self.table.column(name)
        column = whole.chunk(0) if whole.num_chunks == 1 else whole.combine_chunks()
        return column if rows is None else column.take(pa.array(rows))

    def columns(self, names: Sequence[str], rows: Array) -> list[Column]:
        """Return several columns' values for the records with the given row numbers, or for all records."""
        return [self.column(name, rows) for name in names]

    def indexes_with_role(self, *roles: Role) -> Array:
        """Return the row numbers of the records that have one of the given roles."""
        return self.indexes_where(self.has_value("role", *roles))

    @staticmethod
    def indexes_where(mask: Array) -> Array:
        """Return the row numbers of the records for which a mask is True."""
        return np.flatnonzero(mask)

    def match_before(
        self,
        later_members: Array,
        earlier_members: Array,
        equal_columns: Sequence[str | tuple[str, str]],
        *,
        orders_by_time: bool = False,
        shifted_columns: Collection[str] = (),
    ) -> Array:
        """Find, for each later record, the last of the earlier records that precedes it and has equal columns.

        Args:
            later_members: member numbers.
            earlier_members: member numbers to search.
            equal_columns: columns that must be equal; a pair if their names differ.
            orders_by_time: True to order by store time, as for different brokers; otherwise by physical offset.
            shifted_columns: integer columns in which the earlier member must be one less.

        Returns:
            Member numbers; `NONE` if there is none.
        """
        pairs = [(name, name) if isinstance(name, str) else name for name in equal_columns]
        left = [self._shifted_column(name, later_members, name in shifted_columns) for name, _ in pairs]
        right = self.columns([name for _, name in pairs], earlier_members)
        left_codes, right_codes = encode_key_columns(left, right)
        places = self.times if orders_by_time else self.offsets
        found = match_latest_before(left_codes, places[later_members], right_codes, places[earlier_members])
        return np.where(found >= 0, earlier_members[found], NONE) if len(earlier_members) else found

    def _shifted_column(self, name: str, rows: Array, is_shifted: bool) -> Column:
        column = self.column(name, rows)
        return pa.array(to_numpy_numbers(column) - 1).cast(column.type) if is_shifted else column
