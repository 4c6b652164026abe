"""Keys that only one of `messages` and `message_keys` has, or that one has more often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.lake.versions import AddedFile
from commitlake.connectors.plain_arrays import dict_rows
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.audit.local.partition_files import partition_count, read_partition, write_partitions
from commitlake.pipelines.audit.sides import SHOWN, key_difference
from commitlake.pipelines.message_keys.check import KeyFiles, key_row_hashes, sum_keys
from commitlake.pipelines.message_keys.files import SCHEMA
from commitlake.pipelines.quality.checksums import part_numbers

_ORDER = ("broker", "physical_offset", "key", "kind", "topic", "store_timestamp")
_COUNT = "count"


@dataclass(frozen=True)
class _Parts:
    """Partitions to compare, and the folder for their files."""

    keys: KeyFiles
    parts: int
    wanted: tuple[int, ...]
    folder: Path

    def write(self, file: AddedFile) -> list[Path]:
        """Write the keys of a file that are in these partitions, divided by partition."""
        paths = []
        place = np.full(self.parts, -1)
        place[list(self.wanted)] = np.arange(len(self.wanted))
        for rows in self.keys.read(file):
            numbers = place[part_numbers(key_row_hashes(rows), self.parts)]
            chosen = rows.filter(pa.array(numbers >= 0)).cast(SCHEMA).combine_chunks()
            if chosen.num_rows:
                paths.append(write_partitions(chosen, numbers[numbers >= 0], len(self.wanted), self.folder))
        return paths


def different_keys(expected: KeyFiles, found: KeyFiles, runner: Runner, folder: Path) -> tuple[int, Sequence[str]]:
    """Compare two tables of keys.

    Args:
        found: the other keys.
        folder: folder for files with the keys of differing partitions.

    Returns:
        The number of rows that differ, and sentences on the first ones.
    """
    parts = partition_count(expected.rows + found.rows)
    sums = [sum_keys(keys, runner, parts) for keys in (expected, found)]
    wanted = tuple(np.flatnonzero((sums[0] != sums[1]).any(axis=0)).tolist())
    if not wanted:
        return 0, []
    sides = [
        [
            path
            for _, paths in runner.run(_Parts(keys.reader, parts, wanted, folder).write, keys.files)
            for path in paths
        ]
        for keys in (expected, found)
    ]
    count, first = 0, SCHEMA.append(pa.field(_COUNT, pa.int64())).empty_table()
    for _, differing in runner.run(partial(_compare_part, sides[0], sides[1]), range(len(wanted))):
        count += differing.num_rows
        first = _first(pa.concat_tables([first, differing]))
    return count, [
        key_difference(
            "missing" if row[_COUNT] > 0 else "unexpected", row["key"], row["broker"], row["physical_offset"]
        )
        for row in dict_rows(first)
    ]


def _compare_part(expected: Sequence[Path], found: Sequence[Path], number: int) -> pa.Table:
    """Return the rows of one partition that differ, with their number in the first side minus that in the second."""
    signed = [
        rows.append_column(_COUNT, pa.array(np.full(rows.num_rows, sign, np.int64)))
        for paths, sign in ((expected, 1), (found, -1))
        for rows in read_partition(paths, number)
    ]
    grouped = pa.concat_tables(signed).group_by(SCHEMA.names, use_threads=False).aggregate([(_COUNT, "sum")])
    counted = grouped.select([*SCHEMA.names, f"{_COUNT}_sum"]).rename_columns([*SCHEMA.names, _COUNT])
    differing = counted.filter(pc.not_equal(counted.column(_COUNT), 0))
    return differing.cast(SCHEMA.append(pa.field(_COUNT, pa.int64())))


def _first(differing: pa.Table) -> pa.Table:
    order = [(name, "ascending", "at_start") for name in _ORDER]
    return differing.take(pc.sort_indices(differing, order)[:SHOWN])
