"""Members as a table with cached columns, and the search for a member's predecessor."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays import Array
from commitlake.connectors.plain_arrays import numbers_of
from commitlake.pipelines.edges.matching import NONE, Column, key_codes, latest_before
from commitlake.pipelines.edges.members import Role


class Families:
    """The rows, called members, that belong to a set of messages.

    Args:
        table: a table of `MEMBERS`.
    """

    def __init__(self, table: pa.Table) -> None:
        self.table: pa.Table = table.combine_chunks()

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def has(self, name: str, *values: str) -> Array:
        """Return which members have one of the given texts in a column."""
        found: Array = pc.is_in(self.column(name), pa.array(list(map(str, values)))).to_numpy(zero_copy_only=False)
        return found

    def is_null(self, name: str) -> Array:
        """Return which members have null in a column."""
        found: Array = pc.is_null(self.column(name)).to_numpy(zero_copy_only=False)
        return found

    @cached_property
    def offsets(self) -> Array:
        """Physical offset of each member."""
        return self.numbers("physical_offset")

    @cached_property
    def times(self) -> Array:
        """Store time of each member, microseconds since 1970."""
        return self.numbers("store_timestamp")

    def numbers(self, name: str, null: int = 0) -> Array:
        """Return a column of integers, times or booleans as an array."""
        return numbers_of(self.table.column(name), null=null)

    def column(self, name: str, rows: Array | None = None) -> pa.Array:
        """Return a column, for the given members or for all."""
        whole = self.table.column(name)
        column = whole.chunk(0) if whole.num_chunks == 1 else whole.combine_chunks()
        return column if rows is None else column.take(pa.array(rows))

    def columns(self, names: Sequence[str], rows: Array) -> list[Column]:
        """Return several columns for the given members."""
        return [self.column(name, rows) for name in names]

    def with_role(self, *roles: Role) -> Array:
        """Return the numbers of the members that have one of the given roles."""
        return self.where(self.has("role", *roles))

    @staticmethod
    def where(chosen: Array) -> Array:
        """Return the numbers of the members for which a condition is true."""
        return np.flatnonzero(chosen)

    def before(
        self,
        later: Array,
        earlier: Array,
        same: Sequence[str | tuple[str, str]],
        *,
        by_time: bool = False,
        shifts: Collection[str] = (),
    ) -> Array:
        """Find for each member the last one before it with equal columns.

        Args:
            later: member numbers.
            earlier: member numbers to search.
            same: columns that must be equal; a pair if their names differ.
            by_time: True to order by store time, as for different brokers; otherwise by physical offset.
            shifts: integer columns in which the earlier member must be one less.

        Returns:
            Member numbers; `NONE` if there is none.
        """
        pairs = [(name, name) if isinstance(name, str) else name for name in same]
        left = [self._shifted(name, later, name in shifts) for name, _ in pairs]
        right = self.columns([name for _, name in pairs], earlier)
        left_codes, right_codes = key_codes(left, right)
        places = self.times if by_time else self.offsets
        found = latest_before(left_codes, places[later], right_codes, places[earlier])
        return np.where(found >= 0, earlier[found], NONE) if len(earlier) else found

    def _shifted(self, name: str, rows: Array, is_shifted: bool) -> Column:
        column = self.column(name, rows)
        return pa.array(numbers_of(column) - 1).cast(column.type) if is_shifted else column
