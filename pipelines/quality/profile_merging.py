"""Merges profiles: windows that were split between tasks or runs are combined.

Counts and checksums are added, extremes compared. Figures on a queue's offsets are computed again from the runs, so
that parts may come in any order.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.quality import compiled_profiling
from commitlake.pipelines.quality.profile_columns import FIRST, LAST, QUEUE, SCHEMA, SUMS, WindowParts


def merge_profiles(profiles: Iterable[pa.Table | pa.RecordBatch]) -> pa.Table:
    """Merge the profiles of several tasks into one, with one row for each broker, topic, queue and time window.

    Args:
        profiles: tables or batches of `PROFILE`, in any order; other columns such as `run_id` are ignored.

    Returns:
        A table of `PROFILE`, one row per broker, topic, queue and window, in this order. Merging in two steps gives the
        same result, unless a window's queue has more than `MAX_RUNS` gaps.

    Raises:
        ProfileError: if a table is not a profile.
    """
    tables = [part if isinstance(part, pa.Table) else pa.Table.from_batches([part]) for part in profiles]
    if not tables:
        return SCHEMA.empty_table()
    return combine_window_parts(WindowParts.from_table(pa.concat_tables(tables))).to_table()


def combine_window_parts(parts: WindowParts) -> WindowParts:
    """Combine the parts of each time window into one, and sort the windows by broker, topic, queue and time."""
    order, groups = _group_keys(parts.keys)
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    values = {name: _reduce_groups(np.add, parts.values[name], order, starts) for name in SUMS}
    values |= {name: _reduce_groups(np.minimum, parts.values[name], order, starts) for name in FIRST}
    values |= {name: _reduce_groups(np.maximum, parts.values[name], order, starts) for name in LAST}
    carried = {name: _reduce_groups(np.add, parts.values[name], order, starts) for name in QUEUE}
    known = _reduce_groups(np.logical_and, parts.known, order, starts)
    group_of = np.empty(len(order), np.int64)
    group_of[order] = groups
    runs, counts = _join_runs_of_groups(parts, group_of, len(starts))
    found = _queue_offset_figures(runs, counts, values["queue_offsets"])
    values |= {name: np.where(known, found[name], carried[name]) for name in QUEUE}
    keys = [key.take(pa.array(order[starts])) for key in parts.keys]
    unknown = np.repeat(~known, counts)
    return WindowParts(keys, values, runs[:, ~unknown], np.where(known, counts, 0), known)


def _group_keys(keys: list[pa.Array]) -> tuple[Array, Array]:
    """Return the row order that sorts by the key columns, and for each row in this order its group's number."""
    ranks = [ranks_in_sort_order(key) for key in keys]
    order = np.lexsort(ranks[::-1])
    changes = np.zeros(len(order), bool)
    for rank in ranks:
        changes[1:] |= rank[order[1:]] != rank[order[:-1]]
    return order, np.cumsum(changes)


def ranks_in_sort_order(key: pa.Array) -> Array:
    """Return an integer for each value of a column, in the order of the values; nulls sort last."""
    if not pa.types.is_string(key.type):
        values: Array = key.cast(pa.int64()).fill_null(compiled_profiling.GREATEST).to_numpy()
        return values
    encoded = key.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    ranks = np.empty(len(names) + 1, np.int64)
    ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    ranks[-1] = len(names)
    found: Array = ranks[encoded.indices.fill_null(-1).to_numpy()]
    return found


def _reduce_groups(function: np.ufunc, values: Array, order: Array, group_starts: Array) -> Array:
    reduced: Array = function.reduceat(values[order], group_starts) if len(group_starts) else values
    return reduced


def _join_runs_of_groups(parts: WindowParts, group_of_part: Array, group_count: int) -> tuple[Array, Array]:
    """Return each group's runs of consecutive queue offsets in log order, and the number of runs by group."""
    of_run = np.repeat(group_of_part, parts.run_counts)
    order = np.lexsort((parts.runs[2], parts.runs[0], of_run))
    runs, counts = np.ascontiguousarray(parts.runs[:, order]), np.zeros(group_count, np.int64)
    kept = compiled_profiling.join_offset_runs(of_run[order], runs, counts)
    return runs[:, :kept], counts


def _queue_offset_figures(runs: Array, run_counts: Array, queue_offsets: Array) -> dict[str, Array]:
    """Return, for each group, the numbers of unknown, repeated and missing queue offsets, and of restarts."""
    lengths, missing, restarts, repeated = (np.zeros(len(run_counts), np.int64) for _ in range(4))
    compiled_profiling.sum_offset_run_figures(run_counts, runs, lengths, missing, restarts)
    # If offsets never step back, none is repeated.
    ends = np.cumsum(run_counts)
    for group in np.flatnonzero(restarts):
        mine = runs[:, ends[group] - run_counts[group] : ends[group]]
        repeated[group] = lengths[group] - _count_covered(mine[2], mine[3])
    figures = (queue_offsets - lengths, repeated, missing, restarts)
    return dict(zip(QUEUE, figures, strict=True))


def _count_covered(firsts: Array, lasts: Array) -> int:
    """Return how many integers are in at least one of the given ranges."""
    order = np.argsort(firsts)
    firsts, ends = firsts[order], np.maximum.accumulate(lasts[order] + 1)
    begins = np.maximum(firsts[1:], ends[:-1])
    return int(ends[0] - firsts[0] + np.maximum(ends[1:] - begins, 0).sum())
