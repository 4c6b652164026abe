"""Reads the rows of `messages` that an audit needs, and counts those of one data file."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.lake.delta_log.versions import AddedFile
from commitlake.connectors.lake.rows.table_rows import TableRows
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.audit.audited_ranges import AuditSpan, LogSpan
from commitlake.pipelines.audit.counts_by_window import count_messages_by_window, merge_windows

DICTIONARIES = (
    "broker", "topic", "tags", "kind", "born_host", "store_host", "body_codec", "format", "origin_topic",
    "producer_group", "body_ref.pack",
)  # fmt: skip
_TIME = "store_timestamp"
_MARGIN = datetime.timedelta(seconds=1)  # writers of Delta's statistics truncate times to milliseconds
_Bounds = Mapping[str, tuple[Array, Array]]


@dataclass(frozen=True)
class RowCriteria:
    """Criteria that select messages: a time range, and ranges of the brokers' logs.

    Attributes:
        span: time range.
        stretches: ranges of the brokers' logs, which do not overlap; None for all.
    """

    span: AuditSpan
    stretches: Sequence[LogSpan] | None = None

    def may_have_rows(self, file: AddedFile) -> bool:
        """Return whether a data file may have messages in the time range, by its statistics in the table's log."""
        first, last = self.span.first, self.span.last
        is_late = last is not None and file.first_time is not None and file.first_time >= last + _MARGIN
        is_early = first is not None and file.last_time is not None and file.last_time < first - _MARGIN
        return not is_late and not is_early

    def select_rows_of(self, messages: pa.Table) -> pa.Table:
        """Return the messages that meet the criteria.

        Args:
            messages: has `store_timestamp`; with ranges also `broker` and `physical_offset`.
        """
        masks = []
        if (self.span.first, self.span.last) != (None, None):
            masks.append(times_within_span(self.span, messages.column(_TIME)))
        if self.stretches is not None:
            masks.append(pa.chunked_array([pa.array(_in_ranges_mask(messages, _range_bounds(self.stretches)))]))
        for mask in masks:
            if not pc.all(mask.fill_null(False), min_count=0).as_py():
                keep = masks[0] if len(masks) == 1 else pc.and_(*masks)
                return messages.filter(keep).combine_chunks()
        return messages


def times_within_span(span: AuditSpan, times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return whether times are in a time range; null for null."""
    wanted = pc.is_valid(times)
    if span.first is not None:
        wanted = pc.and_(wanted, pc.greater_equal(times, pa.scalar(span.first, times.type)))
    if span.last is not None:
        wanted = pc.and_(wanted, pc.less(times, pa.scalar(span.last, times.type)))
    return wanted


def _range_bounds(log_ranges: Sequence[LogSpan]) -> _Bounds:
    """Return, for each broker, the sorted starts and the sorted ends of its log ranges."""
    by_broker: dict[str, list[tuple[int, int]]] = {}
    for broker, first, last in log_ranges:
        by_broker.setdefault(broker, []).append((first, last))
    return {
        broker: (np.array([first for first, _ in sorted(found)]), np.array([last for _, last in sorted(found)]))
        for broker, found in by_broker.items()
    }


def _in_ranges_mask(messages: pa.Table, bounds: _Bounds) -> Array:
    brokers = messages.column("broker").combine_chunks()
    encoded = brokers if pa.types.is_dictionary(brokers.type) else brokers.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy()
    offsets = messages.column("physical_offset").combine_chunks()
    values = offsets.fill_null(0).to_numpy()
    found = np.zeros(len(codes), bool)
    for code, broker in enumerate(encoded.dictionary.to_pylist()):
        if broker in bounds:
            firsts, ends = bounds[broker]
            place = np.searchsorted(firsts, values, side="right") - 1
            found |= (codes == code) & (place >= 0) & (values < ends[place])
    if offsets.null_count:
        found &= pc.is_valid(offsets).to_numpy(zero_copy_only=False)
    return found


@dataclass(frozen=True)
class MessageRows:
    """Reader of the rows of `messages` that meet given criteria; picklable.

    Attributes:
        table: the columns.
        wanted: criteria for the rows.
    """

    table: TableRows
    wanted: RowCriteria

    def read(self, file: AddedFile) -> Iterator[pa.Table]:
        """Yield the wanted rows of a data file."""
        for rows in self.table.read_file(file):
            chosen = self.wanted.select_rows_of(rows)
            if chosen.num_rows:
                yield chosen


def count_file_by_window(rows: MessageRows, file: AddedFile) -> pa.Table:
    """Count the messages of a data file by queue and time window, as a table of `AUDIT`."""
    return merge_windows([count_messages_by_window(part) for part in rows.read(file)])
