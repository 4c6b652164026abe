"""Message counts of one side of an audit by window, merged from many tasks in bounded memory and on disk."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.runtime.partition_files import read_partition, write_partitions
from commitlake.pipelines.audit.counts_by_window import (
    DIFFERENCE,
    EXPECTED_ROW,
    FOUND_ROW,
    SCHEMA,
    count_messages,
    differing_windows,
    merge_windows,
)
from commitlake.pipelines.quality.checksums import column_hashes, part_numbers
from commitlake.schemas.tables.profile import FIGURES, KEY_COLUMNS, OPTIONAL_CHECKSUMS

SHOWN = 5
"""Number of differences, errors and keys of each kind that are shown."""
MAX_ROWS = 1 << 18
"""Number of windows in memory, some 40 MB; more are written to disk. On Spark, several comparisons run at a time."""
_MAX_TABLES = 256  # each table of a few windows takes some 20 KB
_PARTITIONS = 64


class ProfileTotals(NamedTuple):
    """Number of time windows in a profile, and total number of messages in them."""

    windows: int
    messages: int


@dataclass(frozen=True)
class ProfileDifferences:
    """Time windows in which two profiles differ.

    Attributes:
        counts: number of windows by broker and kind of difference ("missing", "unexpected" or "different").
        rows: the first windows of each broker and kind, in the order of `KEY_COLUMNS`: the key, `difference`,
            `different_columns`, and `expected_…` and `found_…` for each compared column. Times are UTC.
    """

    counts: Mapping[tuple[str, str], int]
    rows: Sequence[Mapping[str, Any]]

    @property
    def window_count(self) -> int:
        """Number of time windows that differ."""
        return sum(self.counts.values())


def sort_by_key(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Sort rows by `KEY_COLUMNS`, rows without a value first."""
    return sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in KEY_COLUMNS if name in row])


class Profile:
    """Message counts by queue and time window on one side of a comparison, in memory and in temporary files.

    The files are deleted when the context ends.

    When all windows are added, several threads may read it.

    Args:
        scratch: folder for windows that do not fit into memory.
        max_rows: number of windows in memory.
    """

    def __init__(self, scratch: Path, max_rows: int = MAX_ROWS) -> None:
        self._folder = Path(tempfile.mkdtemp(dir=scratch))
        self._max_rows = max_rows
        self._held: list[pa.Table] = []
        self._rows = 0
        self._files: list[Path] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def add_windows(self, windows: pa.Table) -> None:
        """Add message counts, or corrections of counts, which are summed up by time window."""
        self._held.append(windows)
        self._rows += windows.num_rows
        if self._rows <= self._max_rows and len(self._held) <= _MAX_TABLES:
            return
        merged = merge_windows(self._held)
        # Half full after merging: windows hardly repeat, and merging them again and again would cost more than writing.
        if merged.num_rows > self._max_rows // 2:
            self._files.append(write_partitions(merged, _partition_numbers(merged), _PARTITIONS, self._folder))
            merged = SCHEMA.empty_table()
        self._held, self._rows = [merged], merged.num_rows

    @property
    def is_on_disk(self) -> bool:
        """True if some of the counts were written to temporary files."""
        return bool(self._files)

    def close(self) -> None:
        """Delete the temporary files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def iterate_windows(self, *, is_divided: bool) -> Iterator[pa.Table]:
        """Yield the counts of all time windows, one row for each, as one table or in partitions.

        Args:
            is_divided: True to yield partitions, which are the same for every profile; else one table.
        """
        held = merge_windows(self._held)
        self._held, self._rows = [held], held.num_rows
        if not is_divided:
            assert not self._files
            yield held
            return
        numbers = _partition_numbers(held)
        for number in range(_PARTITIONS):
            mine = held.filter(pa.array(numbers == number))
            yield merge_windows([mine, *read_partition(self._files, number)])

    def count_totals(self) -> ProfileTotals:
        """Count the time windows and their messages."""
        windows = messages = 0
        for part in self.iterate_windows(is_divided=self.is_on_disk):
            windows += part.num_rows
            messages += count_messages(part)
        return ProfileTotals(windows, messages)

    def compare_with(
        self, found_profile: Self, columns: Sequence[str] = FIGURES, limit: int = SHOWN
    ) -> ProfileDifferences:
        """Compare these expected message counts with those found elsewhere, and return the differences.

        Args:
            columns: columns to compare.
            limit: number of differences to return of each broker and kind.
        """
        counts: Counter[tuple[str, str]] = Counter()
        rows: list[Mapping[str, Any]] = []
        divided = self.is_on_disk or found_profile.is_on_disk
        for expected_part, found_part in zip(
            self.iterate_windows(is_divided=divided), found_profile.iterate_windows(is_divided=divided), strict=True
        ):
            differing = differing_windows(expected_part, found_part, columns)
            if differing.num_rows:
                counts.update(_count_differences_by_kind(differing))
                first = _first_windows_of_each_kind(differing, limit)
                rows = _limit_rows([*rows, *_to_difference_rows(first, expected_part, found_part, columns)], limit)
        return ProfileDifferences(counts, rows)


def _partition_numbers(windows: pa.Table) -> np.ndarray[Any, Any]:
    return part_numbers(column_hashes(windows, KEY_COLUMNS), _PARTITIONS)


def _count_differences_by_kind(differing: pa.Table) -> dict[tuple[str, str], int]:
    counted = differing.group_by(["broker", DIFFERENCE], use_threads=False).aggregate([([], "count_all")])
    return {(row["broker"], row[DIFFERENCE]): row["count_all"] for row in counted.to_pylist()}


def _first_windows_of_each_kind(differing: pa.Table, limit: int) -> pa.Table:
    """Return the first `limit` differing windows of each broker and kind of difference."""
    group = ["broker", DIFFERENCE]
    order = [(name, "ascending", "at_start") for name in [*group, *KEY_COLUMNS[1:]]]
    ordered = differing.take(pc.sort_indices(differing, order)).combine_chunks()
    changes = np.zeros(ordered.num_rows, bool)
    changes[0] = True
    for name in group:
        codes = ordered.column(name).combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy()
        changes[1:] |= codes[1:] != codes[:-1]
    bounds = [*np.flatnonzero(changes).tolist(), ordered.num_rows]
    chosen = [row for start, end in pairwise(bounds) for row in range(start, min(end, start + limit))]
    return ordered.take(pa.array(chosen, pa.int64()))


def _to_difference_rows(
    differing: pa.Table, expected: pa.Table, found: pa.Table, columns: Sequence[str]
) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each time window that differs, with the expected and the found values."""
    differing = differing.set_column(
        differing.schema.get_field_index("window_start"),
        "window_start",
        _drop_time_zone(differing.column("window_start")),
    )
    sides = [
        _to_plain_dicts(side.select(columns).take(differing.column(name)))
        for side, name in ((expected, EXPECTED_ROW), (found, FOUND_ROW))
    ]
    for row, left, right in zip(rows_to_dicts(differing), *sides, strict=True):
        yield {
            **{name: row[name] for name in KEY_COLUMNS},
            DIFFERENCE: row[DIFFERENCE],
            "different_columns": [name for name in columns if _is_different_figure(name, left[name], right[name])],
            **{f"expected_{name}": left[name] for name in columns},
            **{f"found_{name}": right[name] for name in columns},
        }


def _to_plain_dicts(rows: pa.Table) -> list[dict[str, Any]]:
    plain = pa.table([_drop_time_zone(column) for column in rows.columns], rows.column_names)
    return rows_to_dicts(plain)


def _drop_time_zone(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column


def _is_different_figure(name: str, expected: object, found: object) -> bool:
    # Not known on one side, as for rows of an earlier version, is no difference.
    if name in OPTIONAL_CHECKSUMS and (expected is None or found is None):
        return False
    return expected != found


def _limit_rows(rows: Iterable[Mapping[str, Any]], limit: int) -> list[Mapping[str, Any]]:
    """Return the first `limit` rows of each broker and kind of difference, sorted by key."""
    taken: Counter[tuple[str, str]] = Counter()
    kept = []
    for row in sort_by_key(list(rows)):
        group = row["broker"], row[DIFFERENCE]
        taken[group] += 1
        if taken[group] <= limit:
            kept.append(row)
    return kept
