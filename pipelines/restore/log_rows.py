"""Queries to the table `messages`: the range of a log, its records, the ends of its queues, and its segment size.

A record never crosses the end of a segment, and each segment ends with a BLANK of at least 8 bytes. The log therefore
has a hole before the start of each segment, and that start is a multiple of the segment size. Records that are missing
in the lake leave holes as well, but not before every multiple of some size.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from commitlake.connectors.formats.registry import all_formats, format_of_id, get_format
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import microseconds_literal, selection_conditions, text_literal
from commitlake.connectors.log_format.format import Format
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.restore.arrow_conversion import to_int64_array
from commitlake.pipelines.restore.record_arrays import COLUMNS
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.rocketmq.commitlog import END_RESERVE
from commitlake.schemas.layouts.rocketmq.properties import TIMER_OUT
from commitlake.schemas.layouts.rocketmq.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from commitlake.schemas.layouts.segment_names import DEFAULT_SEGMENT_SIZE
from commitlake.schemas.selection import Selection
from commitlake.schemas.times import epoch_ms

_NAME = "messages"
_LAST_OFFSET = (1 << 63) - 1
_SEARCHED_BYTES = DEFAULT_SEGMENT_SIZE + (64 << 20)
_SMALLEST = 4096
_MAX_HOLES = 1000


@dataclass(frozen=True, slots=True)
class RestoreSelection:
    """The part of a broker's log to restore.

    Attributes:
        broker: the store's name.
        start_offset: the log begins at the first record at or after this offset; None for the beginning.
        end_offset: records at or after this offset are left out; None for the end.
        start: the log begins with the first record stored at or after this time.
        end: the log ends with the last record stored before this time.
    """

    broker: str
    start_offset: int | None = None
    end_offset: int | None = None
    start: datetime.datetime | None = None
    end: datetime.datetime | None = None


@dataclass(frozen=True, slots=True)
class LogRange:
    """Physical offsets of the part of a log to restore, with the number and size of its records.

    Attributes:
        start: physical offset of the first record.
        end: offset after the last record.
        records: number of rows.
        bytes: size of their records.
        last_time: store time of the last record, ms.
    """

    start: int
    end: int
    records: int
    bytes: int
    last_time: int


def find_log_range(table: DeltaTable, selection: RestoreSelection) -> LogRange:
    """Find the physical offsets of the part of a log to restore, and the number and size of its records.

    The clock of a broker may be set back or forward. The range therefore includes every record between the first and
    the last one of the given time.

    Raises:
        UsageError: if there is no record, the records are from a JMQ store, or the offsets are not those of a log.
    """
    within = selection_conditions(Selection(brokers=[selection.broker], start=selection.start, end=selection.end))
    if selection.start_offset is not None:
        within.append(f"physical_offset >= {selection.start_offset}")
    if selection.end_offset is not None:
        within.append(f"physical_offset < {selection.end_offset}")
    first, last = _query_row(table, "min(physical_offset), max(physical_offset)", within)
    if first is None:
        raise UsageError(f"the lake has no message of the broker {selection.broker!r} in the chosen range")
    between = [
        f"broker = {text_literal(selection.broker)}",
        f"physical_offset >= {first}",
        f"physical_offset <= {last}",
    ]
    count, size = _query_row(table, "count(*), sum(size)", between)
    # Any other record may have a later time because of damage, which no checksum shows: all delays would then seem
    # done.
    of_last = [f"broker = {text_literal(selection.broker)}", f"physical_offset = {last}"]
    last_size, time = _query_row(table, "max(size), max(store_timestamp)", of_last)
    log_format = _find_log_format(table, of_last)
    if log_format is not None and not log_format.can_be_restored:
        raise UsageError(
            f"the records of {selection.broker!r} are from a {log_format.title} store, and cannot be restored: "
            "expected RocketMQ's or BoltMQ's, because the restored log has RocketMQ's format. Read them from the lake "
            "with 'commitlake query' or Spark"
        )
    if first < 0 or last_size is None or not 0 < last_size <= _LAST_OFFSET - last:
        raise UsageError(
            f"the lake has records at the physical offsets {first} to {last}, the last one of {last_size} bytes: "
            f"expected physical offsets from 0 to {_LAST_OFFSET} and a size above 0. The table messages is damaged"
        )
    return LogRange(first, last + last_size, count, size or 0, _milliseconds(time))


def _find_log_format(table: DeltaTable, last_record_conditions: Sequence[str]) -> Format | None:
    """Return the format of the log that a row of `messages` is from; None if the row does not show it."""
    if "format" in {field.name for field in table.schema().fields}:
        (name,) = _query_row(table, "max(format)", last_record_conditions)
        if name is not None:
            try:
                return get_format(name)
            except KeyError:
                raise UsageError(
                    f"the lake's messages are from a log of the format {name!a}, which this version does not know: "
                    f"expected {' or '.join(known.name for known in all_formats())}"
                ) from None
    (own_id,) = _query_row(table, "max(msg_id)", last_record_conditions)  # a row of an earlier version
    return None if own_id is None else format_of_id(own_id)


def read_brokers(table: DeltaTable) -> list[str]:
    """Return the brokers with records in the lake."""
    answer = run_sql(table, _NAME, f"SELECT DISTINCT broker FROM {_NAME}").read_all()
    return sorted(name for name in answer.column(0).to_pylist() if name is not None)


def rows_of_segment(table: DeltaTable, broker: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Return the rows of `messages` whose records begin in a range of the log, in no particular order."""
    columns = ", ".join(COLUMNS)
    wanted = f"broker = {text_literal(broker)} AND physical_offset >= {start} AND physical_offset < {end}"
    yield from run_sql(table, _NAME, f"SELECT {columns} FROM {_NAME} WHERE {wanted}")


def read_record_extents(table: DeltaTable, broker: str, start: int, end: int) -> tuple[Array, Array]:
    """Return physical offsets and sizes of the records that begin in a range of the log, in no particular order."""
    wanted = f"broker = {text_literal(broker)} AND physical_offset >= {start} AND physical_offset < {end}"
    answer = run_sql(table, _NAME, f"SELECT physical_offset, size FROM {_NAME} WHERE {wanted}").read_all()
    offsets, sizes = (to_int64_array(column.combine_chunks()) for column in answer.columns)
    return offsets, sizes


def read_queue_ends(table: DeltaTable, broker: str, log_range: LogRange) -> dict[tuple[str, int], int]:
    """Return the end offset of each queue that has a record in the log range."""
    columns = "topic, queue_id, max(queue_offset) + 1"
    return {
        (topic, queue): end
        for topic, queue, end in _query_groups(table, columns, "topic, queue_id", broker, log_range, ())
    }


def first_undelivered_offsets(
    table: DeltaTable, broker: str, log_range: LogRange, delays_ms: Sequence[int], until_ms: int
) -> dict[int, int]:
    """Return, for each delay level in the range, the queue offset of the first message not due at a time."""
    topic = f"topic = {text_literal(SCHEDULE_TOPIC)}"
    due = " OR ".join(
        f"(queue_id = {level} AND store_timestamp >= {microseconds_literal(1000 * (until_ms - delay))})"
        for level, delay in enumerate(delays_ms)
    )
    found: dict[int, int] = dict(
        _query_groups(table, "queue_id, max(queue_offset) + 1", "queue_id", broker, log_range, [topic])
    )
    # Where messages are not due yet, the first of them replaces the queue's end.
    found |= dict(
        _query_groups(table, "queue_id, min(queue_offset)", "queue_id", broker, log_range, [topic, f"({due})"])
    )
    return {queue + 1: number for queue, number in found.items() if queue < len(delays_ms)}


def first_waiting_timer_offset(table: DeltaTable, broker: str, log_range: LogRange, until_ms: int) -> int | None:
    """Return the queue offset of the timer topic's first message that was not due at a given time.

    Returns:
        The offset after the last one if all were due; None if the range has no such message.
    """
    topic = f"topic = {text_literal(TIMER_TOPIC)}"
    due = f"coalesce(try_cast(properties['{TIMER_OUT}'] AS BIGINT), 0) >= {until_ms}"
    ends = _query_groups(table, "queue_id, max(queue_offset) + 1", "queue_id", broker, log_range, [topic])
    waiting = _query_groups(table, "queue_id, min(queue_offset)", "queue_id", broker, log_range, [topic, due])
    return next((int(number) for queue, number in (*waiting, *ends) if queue == 0), None)


def _query_groups(
    table: DeltaTable, columns: str, group_column: str, broker: str, log_range: LogRange, more_conditions: Sequence[str]
) -> list[tuple[Any, ...]]:
    where = [
        f"broker = {text_literal(broker)}",
        f"physical_offset >= {log_range.start}",
        f"physical_offset < {log_range.end}",
        *more_conditions,
    ]
    sql = f"SELECT {columns} FROM {_NAME} WHERE {' AND '.join(where)} GROUP BY {group_column}"
    answer = run_sql(table, _NAME, sql).read_all()
    return list(zip(*(column.to_pylist() for column in answer.columns), strict=True))


def _query_row(table: DeltaTable, columns: str, where: Sequence[str]) -> list[Any]:
    sql = f"SELECT {columns} FROM {_NAME} WHERE {' AND '.join(where)}"
    answer = run_sql(table, _NAME, sql).read_all()
    return [column[0].as_py() for column in answer.columns]


def _milliseconds(time: datetime.datetime | None) -> int:
    return 0 if time is None else epoch_ms(time)


def find_segment_size(table: DeltaTable, broker: str, log_range: LogRange) -> int:
    """Return the segment size of a log: the brokers' default, unless it does not fit the positions of records.

    Raises:
        UsageError: if it cannot be detected.
    """
    starts, sizes = read_record_extents(
        table, broker, log_range.start, min(log_range.end, log_range.start + _SEARCHED_BYTES)
    )
    order = np.argsort(starts)
    return derive_segment_size(starts[order], starts[order] + sizes[order])


def derive_segment_size(starts: Array, ends: Array) -> int:
    """Return the size of a log's segments, derived from the gaps between its first records.

    Args:
        starts: physical offsets, in order.
        ends: offset after each record.

    Raises:
        UsageError: if it cannot be detected.
    """
    after_holes = starts[1:][starts[1:] > ends[:-1]][:_MAX_HOLES].tolist()
    marks = [int(starts[0]), *after_holes]  # a log that was archived from its beginning begins with a segment, too
    # Begins of segments are multiples of the size. Pairs are compared, because one hole of missing records would spoil
    # the divisor of all.
    found = {math.gcd(*pair) for distance in (1, 2) for pair in zip(marks, marks[distance:], strict=False)}
    for size in sorted(found):  # sizes that fit also fit as their multiples: the smallest one comes first
        borders = _segment_borders(starts, size)
        # One border may be a coincidence: then only a multiple of 4096 is accepted.
        if size >= _SMALLEST and len(borders) > (size % _SMALLEST > 0) and _have_room_for_blank(starts, ends, borders):
            return size
    if not _have_room_for_blank(starts, ends, _segment_borders(starts, DEFAULT_SEGMENT_SIZE)):
        raise UsageError(
            f"the size of the broker's segments cannot be detected: it is not the default of {DEFAULT_SEGMENT_SIZE:,} "
            "bytes, because records extend past the ends of such segments. Give the size in the broker's setting "
            "mappedFileSizeCommitLog"
        )
    return DEFAULT_SEGMENT_SIZE


def _segment_borders(starts: Array, size: int) -> Array:
    """Return the offsets of the segment borders (multiples of `size`) between the first and the last record."""
    if not size:
        return np.zeros(0, np.int64)
    return np.arange(starts[0] - starts[0] % size + size, starts[-1] + 1, size)


def _have_room_for_blank(starts: Array, ends: Array, borders: Array) -> bool:
    """Return whether each segment border has room for a BLANK between it and the record before it."""
    before = np.searchsorted(starts, borders) - 1
    return bool((ends[before] + END_RESERVE <= borders).all())
