"""Keys that only one of `messages` and `message_keys` has, or that one has more often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.delta_log.versions import AddedFile
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.runtime.partition_files import partition_count
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.audit.window_profiles import SHOWN
from commitlake.pipelines.message_keys.check import KeyFiles, key_row_hashes, sum_key_hashes
from commitlake.pipelines.message_keys.key_files import SCHEMA
from commitlake.pipelines.quality.checksums import part_numbers

_ORDER = ("broker", "physical_offset", "key", "kind", "topic", "store_timestamp")
_COUNT = "count"
_COUNTED: pa.Schema = SCHEMA.append(pa.field(_COUNT, pa.int64()))
_MAX_SUMS = 256  # sums of each file that go to the driver


@dataclass(frozen=True)
class _KeyFileWithSign:
    """Data file of one of two compared tables, whose keys count as 1 if expected, and as -1 if found."""

    keys: KeyFiles
    sign: int
    file: AddedFile


@dataclass(frozen=True)
class _DifferingPartitions:
    """Partitions of the keys in which two compared tables have different sums; picklable.

    Attributes:
        parts: number of all parts.
        differing: numbers of the parts that differ.
        split: number of parts into which each of these is divided, so that it fits into memory.
    """

    parts: int
    differing: tuple[int, ...]
    split: int

    def divide_keys(self, task: _KeyFileWithSign) -> Iterator[tuple[pa.Table, Array]]:
        """Yield a file's keys in the differing partitions, with the file's sign and each key's partition number."""
        place = np.full(self.parts, -1)
        place[list(self.differing)] = np.arange(len(self.differing))
        for rows in task.keys.read_keys(task.file):
            hashes = key_row_hashes(rows)
            places = place[part_numbers(hashes, self.parts)]
            is_chosen = places >= 0
            chosen = rows.filter(pa.array(is_chosen)).cast(SCHEMA).combine_chunks()
            signs = pa.array(np.full(chosen.num_rows, task.sign, np.int64))
            within = part_numbers(hashes[is_chosen], self.parts * self.split) // self.parts
            yield chosen.append_column(_COUNT, signs), places[is_chosen] * self.split + within


def count_different_keys(expected_keys: KeyFiles, found_keys: KeyFiles, runner: Runner) -> tuple[int, Sequence[str]]:
    """Count the rows in which two tables of keys differ, and return sentences on the first ones.

    Args:
        found_keys: the other keys.

    Returns:
        The number of rows that differ, and sentences on the first ones.
    """
    needed = partition_count(expected_keys.row_count + found_keys.row_count)
    parts = min(needed, _MAX_SUMS)
    sums = [sum_key_hashes(keys, runner, parts) for keys in (expected_keys, found_keys)]
    differing = tuple(np.flatnonzero((sums[0] != sums[1]).any(axis=0)).tolist())
    if not differing:
        return 0, []
    chosen = _DifferingPartitions(parts, differing, -(-needed // parts))
    tasks = [
        _KeyFileWithSign(keys.copy_without_files, sign, file)
        for keys, sign in ((expected_keys, 1), (found_keys, -1))
        for file in keys.files
    ]
    count, first = 0, _COUNTED.empty_table()
    for rows, shown in runner.shuffle(chosen.divide_keys, tasks, _count_differing_keys, len(differing) * chosen.split):
        count += rows
        first = _first_differing_rows(pa.concat_tables([first, shown]))
    return count, [
        f"{'missing' if row[_COUNT] > 0 else 'unexpected'}: {row['key']!r} of {row['broker']}, {row['physical_offset']}"
        for row in rows_to_dicts(first)
    ]


def _count_differing_keys(keys: Sequence[pa.Table]) -> tuple[int, pa.Table]:
    """Return the number of distinct keys that one table has more often than the other, and the first such keys.

    A row has the number of times that it was expected, minus that of times that it was found.
    """
    grouped = pa.concat_tables(keys).group_by(SCHEMA.names, use_threads=False).aggregate([(_COUNT, "sum")])
    counted = grouped.select([*SCHEMA.names, f"{_COUNT}_sum"]).rename_columns(_COUNTED.names)
    differing = counted.filter(pc.not_equal(counted.column(_COUNT), 0))
    return differing.num_rows, _first_differing_rows(differing.cast(_COUNTED))


def _first_differing_rows(differing: pa.Table) -> pa.Table:
    order = [(name, "ascending", "at_start") for name in _ORDER]
    return differing.take(pc.sort_indices(differing, order)[:SHOWN])
