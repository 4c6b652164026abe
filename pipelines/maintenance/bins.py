"""Which files of a table are merged: the small ones of a partition, neighbours in time, up to a target size.

A merged file spans a stretch of time and holds it sorted by topic and queue. So a look-up by time passes over files,
and one by topic and queue passes over row groups within each; sorting a whole day by topic, or by any space-filling
curve of both, would give up the first for the second. Look-ups by message id or key need neither: keys of one producer
are spread over all topics and times, and no order of rows brings them together without tearing these apart.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from commitlake.pipelines.maintenance.table_files import TableFile

_MOST_ROWS = 4 << 20  # whose sort keys are held in memory
_MOST_FILES = 512  # that are open at once
_NO_TIME = datetime.datetime.min.replace(tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Bin:
    """Files that become one."""

    files: tuple[TableFile, ...]

    @property
    def size(self) -> int:
        """Their bytes."""
        return sum(file.size for file in self.files)

    @property
    def rows(self) -> int:
        """Their rows."""
        return sum(file.rows or 0 for file in self.files)


def plan_bins(files: Sequence[TableFile], target_bytes: int) -> list[Bin]:
    """What to merge; planned again when that is done, there is nothing, or a bin of what was left over.

    Args:
        files: of the table.
        target_bytes: a file of at least half of it stays as it is.
    """
    groups: dict[tuple[str, ...], list[TableFile]] = defaultdict(list)
    for file in files:
        if file.size < target_bytes // 2 and not file.has_deletions and file.rows is not None:
            groups[_group(file)].append(file)
    return [found for name in sorted(groups) for found in _fill(groups[name], target_bytes)]


def _group(file: TableFile) -> tuple[str, ...]:
    """What stays apart: partitions; and without them, months, so that old rows can go as whole files."""
    if any(value is not None for value in file.partition.values()):
        return tuple(f"{name}={value}" for name, value in sorted(file.partition.items()))
    return (f"{file.date:%Y-%m}",)


def _fill(files: list[TableFile], target_bytes: int) -> list[Bin]:
    bins: list[list[TableFile]] = [[]]
    size = rows = 0
    for file in sorted(files, key=lambda file: (file.first_time or _NO_TIME, file.modified_ms, file.path)):
        size, rows = size + file.size, rows + (file.rows or 0)
        if bins[-1] and (size > target_bytes or rows > _MOST_ROWS or len(bins[-1]) == _MOST_FILES):
            bins.append([])
            size, rows = file.size, file.rows or 0
        bins[-1].append(file)
    return [Bin(tuple(found)) for found in bins if len(found) > 1]
