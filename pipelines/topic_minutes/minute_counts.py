"""Counts rows of `messages` by minute, column by column, without an object per message.

A task collects the counts of its rows, and writes them to a few data files of `topic_minutes`.

Numbers of a group are kept as a KLL sketch, in the format of Apache DataSketches. A compiled loop writes sketches of up
to `SKETCH_K` values, byte for byte like the library: for a small group, the calls of the library would take longer than
all other work.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from datasketches import kll_doubles_sketch

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.quality.compiled_profiling import NO_QUEUE, NULL_BORN, NULL_STORE
from commitlake.pipelines.quality.profile import RowArrays
from commitlake.pipelines.quality.profile_merging import ranks_in_sort_order
from commitlake.pipelines.topic_minutes import compiled_counting
from commitlake.pipelines.topic_minutes.compiled_counting import write_small_sketches
from commitlake.schemas.layouts.rocketmq.properties import DELAY, REAL_TOPIC, TIMER_OUT
from commitlake.schemas.layouts.rocketmq.sysflag import TRANSACTION_MASK, TransactionType
from commitlake.schemas.layouts.rocketmq.topics import CHECK_TIMES, Kind
from commitlake.schemas.tables.topic_minutes import MAX_TAGS, MINUTE_SECONDS, SKETCH_K, TOPIC_MINUTES

SCHEMA = arrow_schema(TOPIC_MINUTES)
"""Schema of `topic_minutes`."""
COLUMNS = (
    "broker", "physical_offset", "size", "topic", "queue_id", "queue_offset", "tags", "kind", "born_timestamp",
    "store_timestamp", "sys_flag", "reconsume_times", "body_size", "properties", "format",
)  # fmt: skip
"""Columns of `messages` that are read."""
REPEATING = ("broker", "topic", "tags", "kind", "properties.key_value.key", "format")
"""Columns that are best read as dictionaries."""
_ROLL_TIMES = "TIMER_ROLL_TIMES"
_DELIVERED = frozenset({DELAY, REAL_TOPIC, TIMER_OUT})  # kinds of a copy in its own topic, and of one that still waits
_PARKED = frozenset({Kind.DELAY, Kind.TIMER, Kind.HALF, Kind.OP})
_FAILED = frozenset({Kind.RETRY, Kind.DLQ})
_NOTHING_WHERE_ZERO = {
    "busiest_second": "busiest_second_messages",
    "max_latency_ms": "latency_messages",
    "max_wait_ms": "wait_messages",
    "max_clock_skew_ms": "clock_skew_messages",
}
_US = 1_000_000
_MAX_WAITING_BYTES = 32 << 20
_NO_MINUTE = np.iinfo(np.int64).min
_REPEATING = ("broker", "topic", "tag", "kind", "run_id")
_STATISTICS = ("broker", "topic", "kind", "minute", "run_id")  # only these, to keep the commit of `messages` small
_FOOTER_STATISTICS = (
    "clock_skew_messages",
    "rechecked",
    "committed",
    "other_tags",
)  # a question does not read columns of zeros
_ENCODINGS = {
    field.name: "PLAIN" if pa.types.is_binary(field.type) else "DELTA_BINARY_PACKED"
    for field in SCHEMA
    if pa.types.is_binary(field.type) or pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type)
}
_WORD = 8
_HEADER_WORDS = 5  # before the values: see `compiled_counting.write_small_sketches`


def count_minutes(messages: pa.Table, run_id: str) -> pa.Table:
    """Count messages by broker, topic, queue, tag, kind and minute.

    Args:
        messages: `COLUMNS` of `messages`, times in microseconds, the `REPEATING` columns preferably as dictionaries.
            Rows may be in any order; sorted by topic, queue and queue offset, as in data files, is fastest.
        run_id: id of the run in the rows.

    Returns:
        A table of `TOPIC_MINUTES` with one row per key.

    Raises:
        ProfileError: if a column is missing.
    """
    rows = RowArrays(messages, COLUMNS)
    brokers, broker_names = rows.string_codes("broker")
    topics, topic_names = rows.string_codes("topic")
    kinds, kind_names = rows.string_codes("kind")
    tags, tag_names = rows.string_codes("tags")
    queues, stores = rows.queue_numbers(), rows.number_column("store_timestamp")
    nulls = _null_bits(rows)
    tags = _number_tags(topics, tags, tag_names)
    groups, first_rows = np.empty(rows.count, np.int64), np.empty(rows.count, np.int64)
    count = compiled_counting.assign_groups(
        brokers, topics, queues, kinds, tags, stores, nulls,
        np.full(len(tag_names) + 2, -1, np.int64), np.empty(len(tag_names) + 2, np.int64), groups, first_rows,
    )  # fmt: skip
    first_rows = first_rows[:count]
    minutes = stores // (MINUTE_SECONDS * _US)
    groups, first_rows = _join_same_groups(
        groups, first_rows, [each[first_rows] for each in (brokers, topics, queues, kinds, tags, minutes, nulls)]
    )
    values, sketches = _sum_message_groups(rows, groups, len(first_rows), stores, nulls)
    tag_codes = tags[first_rows]
    keys = {
        "broker": broker_names.take(_nullable_codes(brokers[first_rows])),
        "topic": topic_names.take(_nullable_codes(topics[first_rows])),
        "queue_id": pa.array(queues[first_rows], mask=queues[first_rows] == NO_QUEUE),
        "tag": tag_names.take(pa.array(tag_codes, mask=tag_codes >= len(tag_names))),
        "other_tags": pa.array(tag_codes == len(tag_names) + 1),
        "kind": kind_names.take(_nullable_codes(kinds[first_rows])),
        "minute": pa.array(minutes[first_rows] * MINUTE_SECONDS * _US, mask=_are_without_store_time(nulls[first_rows])),
        "run_id": pa.repeat(pa.scalar(run_id), len(first_rows)),
    }
    columns = {**keys, **values, **sketches}
    return pa.table([columns[field.name].cast(field.type) for field in SCHEMA], schema=SCHEMA)


def _null_bits(rows: RowArrays) -> Array:
    """Return, for each row, flags that tell whether its store time or its born time is null."""
    bits = rows.null_bits()
    stored, born = bits & NULL_STORE != 0, bits & NULL_BORN != 0
    found: Array = stored * np.uint8(compiled_counting.NULL_STORE) | born * np.uint8(compiled_counting.NULL_BORN)
    return found


def _message_role_bits(rows: RowArrays) -> Array:
    """Return, for each row, flags that tell whether it was rechecked, committed, delayed or retried."""
    kinds, names = rows.string_codes("kind")
    parked, failed = (
        np.array([name in chosen for name in names.to_pylist()] + [False]) for chosen in (_PARKED, _FAILED)
    )
    rechecked = rows.rows_with_property([CHECK_TIMES]) & parked[kinds]
    committed = rows.number_column("sys_flag") & TRANSACTION_MASK == TransactionType.COMMIT
    if committed.any():
        committed &= ~rows.rows_without_transaction_flags()
    committed &= ~parked[kinds]
    waited = failed[kinds] | committed | rechecked | (rows.number_column("reconsume_times") > 0)
    waited |= (rows.rows_with_property(_DELIVERED) & ~parked[kinds]) | rows.rows_with_property([_ROLL_TIMES])
    found: Array = (
        waited * np.uint8(compiled_counting.MARK_WAITED)
        | rechecked * np.uint8(compiled_counting.MARK_RECHECKED)
        | committed * np.uint8(compiled_counting.MARK_COMMITTED)
    )
    return found


def _are_without_store_time(null_bits: Array) -> Array:
    found: Array = null_bits & compiled_counting.NULL_STORE != 0
    return found


def _nullable_codes(codes: Array) -> pa.Array:
    return pa.array(codes, mask=codes < 0)


def _number_tags(topics: Array, tags: Array, tag_names: pa.Array) -> Array:
    """Return a number for each row's tag; rare tags of a topic share one number.

    Rows without a tag, and rare tags counted together, have numbers of their own.
    """
    none, other = len(tag_names), len(tag_names) + 1
    tags = np.where(tags < 0, none, tags).astype(np.int32)
    # No topic has more tags than all rows together, so nothing needs to be ranked.
    if none <= MAX_TAGS:
        return tags
    pairs, places, counts = np.unique(
        topics.astype(np.int64) * (other + 1) + tags, return_inverse=True, return_counts=True
    )
    pair_topics, pair_tags = pairs // (other + 1), pairs % (other + 1)
    ranks = np.empty(none + 1, np.int64)
    # By name where counts are equal, so that the same rows always name the same tags.
    ranks[np.argsort(np.array([*tag_names.to_pylist(), ""], object))] = np.arange(none + 1)
    counts[pair_tags == none] = np.iinfo(np.int64).max  # rows without a tag are never among the other tags
    order = np.lexsort((ranks[pair_tags], -counts, pair_topics))
    starts = np.flatnonzero(np.diff(pair_topics[order], prepend=pair_topics[order[0]] - 1))
    place_in_topic = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    has_none = np.repeat(np.logical_or.reduceat(pair_tags[order] == none, starts), np.diff(starts, append=len(order)))
    named = np.empty(len(order), bool)
    named[order] = place_in_topic < MAX_TAGS + has_none
    numbers: Array = np.where(named, pair_tags, other).astype(np.int32)[places]
    return numbers


def _join_same_groups(groups: Array, first_rows: Array, keys: list[Array]) -> tuple[Array, Array]:
    """Merge groups with equal keys, since rows of the same minute may be in several groups."""
    if not len(first_rows):
        return groups, first_rows
    # Of the nulls, only the absence of a store time is part of a group's key.
    keys[-1] = _are_without_store_time(keys[-1])
    order = np.lexsort(keys)
    differs = np.zeros(len(order), bool)
    differs[0] = True
    for key in keys:
        differs[1:] |= key[order][1:] != key[order][:-1]
    if differs.all():
        return groups, first_rows
    joined = np.empty(len(order), np.int64)
    joined[order] = np.cumsum(differs) - 1
    return joined[groups], first_rows[order[differs]]


def _sum_message_groups(
    rows: RowArrays, groups: Array, group_count: int, store_times: Array, null_bits: Array
) -> tuple[dict[str, pa.Array], dict[str, pa.Array]]:
    """Return the columns of counts and of sketches, with one value for each group."""
    starts = np.zeros(group_count + 1, np.int64)
    np.cumsum(np.bincount(groups, minlength=group_count), out=starts[1:])
    order = np.empty(rows.count, np.int64)
    compiled_counting.order_by_group(groups, starts[:-1].copy(), order)
    out = np.empty((len(compiled_counting.FIELDS), group_count), np.int64)
    sizes, latencies, waits = (np.empty(rows.count) for _ in range(3))
    latency_starts, wait_starts = np.empty(group_count + 1, np.int64), np.empty(group_count + 1, np.int64)
    compiled_counting.sum_groups(
        starts, order, rows.number_column("physical_offset"), rows.number_column("size"),
        rows.number_column("body_size"),
        rows.number_column("reconsume_times"), store_times, rows.number_column("born_timestamp"), null_bits,
        _message_role_bits(rows),
        np.empty(MINUTE_SECONDS, np.int64), out, sizes, latencies, latency_starts, waits, wait_starts,
    )  # fmt: skip
    found = dict(zip(compiled_counting.FIELDS, out, strict=True))
    values = {
        name: pa.array(numbers, mask=found[_NOTHING_WHERE_ZERO[name]] == 0 if name in _NOTHING_WHERE_ZERO else None)
        for name, numbers in found.items()
    }
    sketches = {
        "size_sketch": sketch_groups(sizes, starts),
        "latency_sketch": sketch_groups(latencies[: latency_starts[-1]], latency_starts),
        "wait_sketch": sketch_groups(waits[: wait_starts[-1]], wait_starts),
    }
    return values, sketches


class MinutesFiles:
    """Counts messages by minute, and writes the counts to files whose names begin with `name`.

    Args:
        lake: where the tables are.
        name: beginning of the file names.
        run_id: id of the run in the rows.
    """

    def __init__(self, lake: Lake, name: str, run_id: str) -> None:
        self._lake = lake
        self._name = name
        self._run_id = run_id
        self._waiting: list[pa.Table] = []
        self._bytes = 0
        self._written: list[DataFile] = []

    def add_messages(self, messages: pa.Table) -> None:
        """Count the messages in rows of `messages`, and write the counts to a file when there are enough."""
        minutes = count_minutes(messages, self._run_id)
        self._waiting.append(minutes)
        self._bytes += minutes.nbytes
        if self._bytes > _MAX_WAITING_BYTES:
            self._write_counts()

    def finish_files(self) -> list[DataFile]:
        """Write the remaining counts and return all files; they are in no table until they are committed."""
        if self._waiting:
            self._write_counts()
        return self._written

    def _write_counts(self) -> None:
        rows = pa.concat_tables(self._waiting)
        self._waiting, self._bytes = [], 0
        name = f"{self._name}-{len(self._written):03d}.zstd.parquet"
        self._written.append(write_minutes_file(rows, self._lake, name))


def write_minutes_file(rows: pa.Table, lake: Lake, name: str) -> DataFile:
    """Write rows of `topic_minutes` to a data file that is not committed yet.

    Args:
        rows: columns of `SCHEMA`.
        name: file name.
    """
    rows = rows.combine_chunks()
    minutes = rows.column("minute").chunk(0).cast(pa.int64()).fill_null(_NO_MINUTE)  # nulls first, as maintain sorts
    rows = rows.take(pa.array(np.lexsort((minutes.to_numpy(), ranks_in_sort_order(rows.column("topic").chunk(0))))))
    for column in _REPEATING:
        place = rows.schema.get_field_index(column)
        rows = rows.set_column(place, column, rows.column(column).dictionary_encode())
    return write_plain_file(
        rows,
        lake,
        "topic_minutes",
        name,
        _ENCODINGS,
        statistics=_STATISTICS,
        footer_statistics=_FOOTER_STATISTICS,
    )


def sketch_groups(values: Array, starts: Array) -> pa.Array:
    """Create a serialized KLL sketch of each group's values.

    Args:
        values: doubles of at least 0, group by group.
        starts: int64, where the values of each group begin, and the end of the last.

    Returns:
        Binary array; null for groups without values.
    """
    counts = np.diff(starts)
    words = np.where(counts == 1, 2, counts + _HEADER_WORDS)
    words[(counts == 0) | (counts > SKETCH_K)] = 0
    places = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(words, out=places[1:])
    small = np.empty(int(places[-1]), np.uint64)
    write_small_sketches(values.view(np.uint64), starts, SKETCH_K, places, small)
    data, offsets = _insert_large_sketches(small.view(np.uint8), places * _WORD, values, starts)
    buffers = [pa.array(counts > 0).buffers()[1], pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(counts), buffers)


def _insert_large_sketches(small_sketches: Array, offsets: Array, values: Array, starts: Array) -> tuple[Array, Array]:
    """Create the sketches of groups with many values, and insert them among those of groups with few."""
    pieces, added = [], np.zeros(len(offsets), np.int64)
    done = 0
    for group in np.flatnonzero(np.diff(starts) > SKETCH_K).tolist():
        sketch = kll_doubles_sketch(SKETCH_K)
        sketch.update(values[starts[group] : starts[group + 1]])
        written = np.frombuffer(sketch.serialize(), np.uint8)
        pieces += [small_sketches[done : offsets[group]], written]
        done = int(offsets[group])
        added[group + 1] = len(written)
    if not pieces:
        return small_sketches, offsets
    return np.concatenate([*pieces, small_sketches[done:]]), offsets + np.cumsum(added)


def merge_sketches(sketches: Iterable[bytes | None]) -> kll_doubles_sketch:
    """Merge serialized sketches into one; null values are skipped."""
    merged = kll_doubles_sketch(SKETCH_K)
    for data in sketches:
        if data is not None:
            merged.merge(kll_doubles_sketch.deserialize(data))
    return merged
