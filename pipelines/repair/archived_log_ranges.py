"""Ranges of the brokers' logs that the rows of `messages` were read from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from commitlake.connectors.numpy_arrays import Array


@dataclass(frozen=True, slots=True)
class Extents:
    """Sorted, disjoint byte ranges of one store's log that archived records cover, and the number of these records.

    Attributes:
        starts: first bytes.
        ends: bytes after the last ones.
        rows: number of the records.
    """

    starts: Array
    ends: Array

    rows: int = 0

    @property
    def total_bytes(self) -> int:
        """Total length of the ranges in bytes."""
        return int((self.ends - self.starts).sum())

    @property
    def end(self) -> int:
        """Physical offset after the last range."""
        return int(self.ends[-1])

    @classmethod
    def from_ranges(cls, starts: Array, ends: Array, rows: int | None = None) -> Extents:
        """Build extents from ranges in any order, of which those that touch are joined."""
        rows = len(starts) if rows is None else rows
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], np.maximum.accumulate(ends[order])
        begins = np.flatnonzero(np.concatenate([[True], starts[1:] > ends[:-1]]))
        return cls(starts[begins], ends[np.append(begins[1:], len(starts)) - 1], rows)

    def join_with(self, other: Extents) -> Extents:
        """Return the union of these ranges and others."""
        starts, ends = (np.concatenate([getattr(self, name), getattr(other, name)]) for name in ("starts", "ends"))
        return Extents.from_ranges(starts, ends, self.rows + other.rows)

    def overlap_bytes(self, other: Extents) -> int:
        """Return the number of bytes that are both in these ranges and in others."""
        return self.total_bytes + other.total_bytes - self.join_with(other).total_bytes

    def find_holes(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of a byte range in which no record is archived."""
        inner = (self.ends > start) & (self.starts < end)
        firsts = np.concatenate([[start], self.ends[inner]])
        lasts = np.concatenate([self.starts[inner], [end]])
        return [(int(first), int(last)) for first, last in zip(firsts, lasts, strict=True) if first < last]


NO_EXTENTS = Extents(np.empty(0, np.int64), np.empty(0, np.int64))


def join_extents(parts: Iterable[Mapping[str, Extents]]) -> dict[str, Extents]:
    """Return, for each broker, the union of the byte ranges in `parts`."""
    found: dict[str, Extents] = {}
    for part in parts:
        for broker, extents in part.items():
            found[broker] = found[broker].join_with(extents) if broker in found else extents
    return found


def read_extents(parquet: pq.ParquetFile) -> dict[str, Extents]:
    """Return the byte ranges of the log that the records of a data file cover, by broker."""
    groups = range(parquet.num_row_groups)
    return join_extents(
        _extents_of_rows(parquet.read_row_group(group, ["broker", "physical_offset", "size"])) for group in groups
    )


def _extents_of_rows(rows: pa.Table) -> dict[str, Extents]:
    found = {}
    for broker in pc.unique(rows.column("broker")).to_pylist():
        of_broker = rows.filter(pc.equal(rows.column("broker"), broker))
        starts = of_broker.column("physical_offset").to_numpy().astype(np.int64)
        found[broker] = Extents.from_ranges(starts, starts + of_broker.column("size").to_numpy().astype(np.int64))
    return found
