"""Chooses the files of a table to merge: small files of one partition, adjacent in time, up to a target size.

A merged file covers a range of time and is sorted by topic and queue. A look-up by time skips whole files; a look-up by
topic and queue skips row groups within each file. Sorting a whole day by topic, or by a space-filling curve, would
speed up the second at the cost of the first. Look-ups by message id or key gain nothing from either order: the keys of
one producer are spread over all topics and times.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from commitlake.pipelines.maintenance.table_files import TableFile

_MAX_ROWS = 4 << 20  # their sort keys are held in memory
_MAX_FILES = 512  # files that are open at the same time
_NO_TIME = datetime.datetime.min.replace(tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Bin:
    """Files to merge into one."""

    files: tuple[TableFile, ...]

    @property
    def size(self) -> int:
        """Total size of the files in bytes."""
        return sum(file.size for file in self.files)

    @property
    def rows(self) -> int:
        """Total number of rows."""
        return sum(file.rows or 0 for file in self.files)


def plan_bins(files: Sequence[TableFile], target_bytes: int) -> list[Bin]:
    """Choose the files to merge.

    After the merge, planning again gives no bins, or one with leftover files.

    Args:
        files: data files of the table.
        target_bytes: target size; files of at least half of it are not merged.
    """
    groups: dict[tuple[str, ...], list[TableFile]] = defaultdict(list)
    for file in files:
        if file.size < target_bytes // 2 and not file.has_deletions and file.rows is not None:
            groups[_group(file)].append(file)
    return [found for name in sorted(groups) for found in _fill(groups[name], target_bytes)]


def _group(file: TableFile) -> tuple[str, ...]:
    """Return the group within which a file may be merged: its partition; without partitions, its month.

    Files of different months stay apart, so that old rows can be dropped as whole files.
    """
    if any(value is not None for value in file.partition.values()):
        return tuple(f"{name}={value}" for name, value in sorted(file.partition.items()))
    return (f"{file.date:%Y-%m}",)


def _fill(files: list[TableFile], target_bytes: int) -> list[Bin]:
    bins: list[list[TableFile]] = [[]]
    size = rows = 0
    for file in sorted(files, key=lambda file: (file.first_time or _NO_TIME, file.modified_ms, file.path)):
        size, rows = size + file.size, rows + (file.rows or 0)
        if bins[-1] and (size > target_bytes or rows > _MAX_ROWS or len(bins[-1]) == _MAX_FILES):
            bins.append([])
            size, rows = file.size, file.rows or 0
        bins[-1].append(file)
    return [Bin(tuple(found)) for found in bins if len(found) > 1]
