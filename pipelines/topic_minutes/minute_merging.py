"""Joins rows with the same key: archive runs and their tasks leave several rows for the same minute.

Counts are added, extremes compared and sketches merged, so that queries have the same results. A joined row belongs to
no single run; its `run_id` names the newest archive run up to which the table had counted all messages.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.topic_minutes.minute_counts import merge_sketches

KEY = ("broker", "topic", "queue_id", "tag", "other_tags", "kind", "minute")
"""Columns that are equal in rows to be joined."""
LEAST = ("first_physical_offset",)
GREATEST = ("last_physical_offset", "max_size", "max_latency_ms", "max_wait_ms", "max_clock_skew_ms")
SKETCHES = ("size_sketch", "latency_sketch", "wait_sketch")
_SECOND, _SECOND_MESSAGES = "busiest_second", "busiest_second_messages"
_RUN = "run_id"
_NOTHING = np.iinfo(np.int64).min


def join_sorted_batches(batches: Iterator[pa.Table], run_id: str) -> Iterator[pa.Table]:
    """Merge rows of `topic_minutes` with the same key into one, from batches sorted by topic and minute.

    Args:
        batches: rows of `topic_minutes`.
        run_id: id of the run for all rows.

    Yields:
        Tables in the same order.
    """
    held: pa.Table | None = None
    for batch in batches:
        rows = batch if held is None else pa.concat_tables([held, batch])
        end = _start_of_last_minute(rows)
        held = rows.slice(end)
        if end:
            yield join_rows_with_same_key(rows.slice(0, end), run_id)
    if held is not None and held.num_rows:
        yield join_rows_with_same_key(held, run_id)


def _start_of_last_minute(rows: pa.Table) -> int:
    """Return the index of the first row of the last topic and minute, of which the next batch may have more."""
    if not rows.num_rows:
        return 0
    topics, minutes = (_value_codes(rows.column(name)) for name in ("topic", "minute"))
    others = np.flatnonzero((topics != topics[-1]) | (minutes != minutes[-1]))
    return int(others[-1]) + 1 if len(others) else 0


def join_rows_with_same_key(rows: pa.Table, run_id: str) -> pa.Table:
    """Merge rows of `topic_minutes` with the same key into one.

    Args:
        rows: rows of `topic_minutes`.
        run_id: id of the run for all rows.

    Returns:
        One row for each key, in the order of their first rows.
    """
    order, starts = _group_rows(rows)
    firsts = order[starts]
    joined = rows.take(pa.array(firsts))
    if len(starts) < rows.num_rows:
        for name in rows.column_names:
            if name not in (*KEY, _RUN, _SECOND, _SECOND_MESSAGES):
                joined = _replace_column(joined, name, _join_column_by_group(rows.column(name), name, order, starts))
        seconds, counts = _busiest_seconds(rows, order, starts)
        joined = _replace_column(_replace_column(joined, _SECOND, seconds), _SECOND_MESSAGES, counts)
    return _replace_column(joined, _RUN, pa.repeat(pa.scalar(run_id), joined.num_rows))


def _replace_column(rows: pa.Table, name: str, column: pa.Array) -> pa.Table:
    field = rows.schema.field(name)
    return rows.set_column(rows.schema.get_field_index(name), field, column.cast(field.type))


def _value_codes(column: pa.ChunkedArray) -> Array:
    """Return an integer for each value of a column, the same for equal values; nulls share one integer."""
    array = column.combine_chunks()
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64()).fill_null(_NOTHING)
    else:
        array = array.dictionary_encode().indices.fill_null(-1)
    codes: Array = array.to_numpy()
    return codes


def _group_rows(rows: pa.Table) -> tuple[Array, Array]:
    """Return a row order that groups rows with equal keys, and the position at which each group starts.

    Keys come in the order of their first rows.
    """
    keys = [_value_codes(rows.column(name)) for name in KEY]
    order = np.lexsort(keys)  # of equal keys the first row comes first
    is_first = np.zeros(len(order), bool)
    is_first[:1] = True
    for key in keys:
        is_first[1:] |= key[order][1:] != key[order][:-1]
    groups = np.empty(len(order), np.int64)
    groups[order] = order[is_first][np.cumsum(is_first) - 1]  # the first row of each row's key
    order = np.argsort(groups, kind="stable")
    return order, np.flatnonzero(np.diff(groups[order], prepend=-1))


def _join_column_by_group(column: pa.ChunkedArray, name: str, order: Array, starts: Array) -> pa.Array:
    if name in SKETCHES:
        return _merge_group_sketches(column, order, starts)
    nulls = column.is_null().combine_chunks().to_numpy(zero_copy_only=False)[order]
    if name in LEAST:
        # The largest int64, so that a null is never the least.
        values = column.fill_null(-_NOTHING - 1).to_numpy()[order]
        found = np.minimum.reduceat(values, starts)
    elif name in GREATEST:
        values = column.fill_null(_NOTHING).to_numpy()[order]
        found = np.maximum.reduceat(values, starts)
    else:
        values = column.fill_null(0).to_numpy()[order]
        found = np.add.reduceat(values, starts)
    return pa.array(found, mask=np.logical_and.reduceat(nulls, starts))


def _merge_group_sketches(column: pa.ChunkedArray, order: Array, starts: Array) -> pa.Array:
    """Return one merged sketch for each group; null if none of its rows has a sketch."""
    sketches = column.take(pa.array(order)).to_pylist()
    ends = [*starts[1:].tolist(), len(order)]
    found = []
    for start, end in zip(starts.tolist(), ends, strict=True):
        parts = [sketch for sketch in sketches[start:end] if sketch is not None]
        found.append(merge_sketches(parts).serialize() if len(parts) > 1 else parts[0] if parts else None)
    return pa.array(found, pa.binary())


def _busiest_seconds(rows: pa.Table, order: Array, starts: Array) -> tuple[pa.Array, pa.Array]:
    """Return, for each group, its busiest second (the first if there are several) and its number of messages.

    Only the busiest second of each row is known. If several rows have the same busiest second, its messages are added.
    """
    seconds = _value_codes(rows.column(_SECOND))[order]
    counts = pc.fill_null(rows.column(_SECOND_MESSAGES), 0).to_numpy()[order]
    groups = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
    by_second = np.lexsort((seconds, groups))
    begins = np.flatnonzero(
        np.diff(groups[by_second], prepend=-1).astype(bool) | np.diff(seconds[by_second], prepend=0).astype(bool)
    )
    summed = np.add.reduceat(counts[by_second], begins)
    groups, seconds = groups[by_second][begins], seconds[by_second][begins]
    best = np.lexsort((seconds, -summed, groups))
    best = best[np.flatnonzero(np.diff(groups[best], prepend=-1))]
    times = pa.array(seconds[best], mask=(seconds[best] == _NOTHING) | (summed[best] == 0))
    return times.cast(pa.timestamp("us", "UTC")), pa.array(summed[best])
