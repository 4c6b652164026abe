"""Decoder of a split's columns by the kernel, and the buffers that the kernel fills.

A `Decoder` serves one split, or several of one store, one after the other. `walk_records` calls its
`locate_next_records`, which finds records
and decodes them in the same pass; `take_batch` then returns them as a `DecodedBatch`.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import numpy as np

from commitlake.connectors.log_format.kernel import WalkArguments
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.decoding.columns import (
    DecodedBatch,
    DistinctValues,
    DistinctValuesByColumn,
    host_text,
    utf8_text,
)
from commitlake.connectors.reading.kernel import buffers as b
from commitlake.connectors.reading.kernel import decode as kernel
from commitlake.connectors.reading.kernel import record_walk as h
from commitlake.connectors.reading.kernel.buffers import KernelFilters
from commitlake.connectors.reading.kernel.decode import END_OFFSET, END_STORE_TIME, MIN_OFFSET, MIN_STORE_TIME
from commitlake.connectors.reading.kernel.memory_access import PADDING
from commitlake.connectors.reading.read_request import Filters

_INT32 = np.iinfo(np.int32)
_INT64 = np.iinfo(np.int64)


def to_kernel_filters(filters: Filters) -> KernelFilters:
    """Return those filters that the compiled loops apply; the others are applied later, to the decoded columns."""
    bounds = np.array([_INT64.min, _INT64.max, _INT64.min, _INT64.max])
    for place, bound in (
        (MIN_OFFSET, filters.min_offset),
        (END_OFFSET, filters.end_offset),
        (MIN_STORE_TIME, filters.min_store_timestamp),
        (END_STORE_TIME, filters.end_store_timestamp),
    ):
        if bound is not None:
            # Options may state any number, and numpy raises an error for one that does not fit.
            bounds[place] = min(max(bound, _INT64.min), _INT64.max)
    # A displayed topic may stand for bytes that are not UTF-8, which only the decoded column shows.
    wanted_topics = None if filters.compares_topics_as_text else filters.topics
    topics = [name.encode() for name in sorted(wanted_topics or ())]
    # A number outside the range of a queue id matches no record.
    queue_ids = [number for number in sorted(filters.queue_ids or ()) if _INT32.min <= number <= _INT32.max]
    if (wanted_topics is not None and not topics) or (filters.queue_ids is not None and not queue_ids):
        bounds[END_OFFSET] = _INT64.min  # an empty set selects nothing
    chooses = bool(topics or queue_ids or (bounds != [_INT64.min, _INT64.max, _INT64.min, _INT64.max]).any())
    return KernelFilters(
        chooses=chooses,
        bounds=bounds,
        queue_ids=np.array(queue_ids, np.int32),
        # The padding is for loads of whole words past the last topic.
        topics=np.frombuffer(b"".join(topics).ljust(sum(map(len, topics)) + PADDING, b"\0"), np.uint8),
        topic_offsets=np.cumsum([0, *map(len, topics)], dtype=np.int64),
    )


_SEED = np.uint64(secrets.randbits(64))  # random, because a producer who knew the hashes could make them collide


def _field_position_table(field_positions: list[tuple[int, ...]]) -> Array:
    return np.array(field_positions, np.int64).reshape(
        len(field_positions), len(field_positions[0]) if field_positions else 2
    )


class Decoder:
    """Decoder of the records of one split; each format has its own.

    Args:
        columns: names of the columns that will be requested.
        broker: the store's name.
        filters: the filters for records.
        encoded: return repeated strings as dictionary arrays.
    """

    # Set by each format.
    _format_name: ClassVar[str]
    _layout: ClassVar[Any]
    _part_count: ClassVar[int]
    _fields32: ClassVar[Mapping[str, tuple[int, ...]]]
    _fields64: ClassVar[Mapping[str, tuple[int, ...]]]
    _bits: ClassVar[Mapping[str, int]]
    _max_entries: ClassVar[int] = b.MAX_PROPERTIES
    _batch: ClassVar[type[DecodedBatch]] = DecodedBatch

    def __init__(self, columns: Collection[str], broker: str, filters: Filters, *, encoded: bool = False) -> None:
        self._broker = broker
        self._encoded = encoded
        self._numbers32 = [name for name in self._fields32 if name in columns]
        self._numbers64 = [name for name in self._fields64 if name in columns]
        self._wanted = 0
        for name in columns:
            self._wanted |= self._bits.get(name, 0)
        self._plan = b.ColumnSelection(
            self._wanted,
            _SEED,
            _field_position_table([self._fields32[name] for name in self._numbers32]),
            _field_position_table([self._fields64[name] for name in self._numbers64]),
            self._message_id_suffix(),
        )
        self._choice = to_kernel_filters(filters)
        self._scratch = b.make_scratch(self._max_entries)
        self._distinct = self._make_distinct_values(_SEED)
        self._parts = np.empty((self._part_count, b.ROWS + 1), np.int64)

    def _make_distinct_values(self, seed: np.uint64) -> DistinctValuesByColumn:
        """Return a new, empty numbering of the distinct values for each column whose values repeat, such as topics."""
        return DistinctValuesByColumn(
            names=DistinctValues(seed, utf8_text, b.NAMES),
            topics=DistinctValues(seed, utf8_text),
            tags=DistinctValues(seed, utf8_text),
            producer_groups=DistinctValues(seed, utf8_text),
            born_hosts=DistinctValues(seed, host_text),
            store_hosts=DistinctValues(seed, host_text),
        )

    def _message_id_suffix(self) -> Array:
        """Return the text with which all message ids end, such as the broker's name in JMQ; empty for other formats."""
        return b.NO_SUFFIX

    def _make_outputs(self) -> tuple[object, ...]:
        """Return new buffers for the kernel to fill, because the previous ones now belong to a batch."""
        message_ids = bool(self._wanted & b.WANT_MESSAGE_ID)
        self._columns = b.make_columns(len(self._numbers32), len(self._numbers64), has_message_ids=message_ids)
        self._text = b.make_text_buffers(self._wanted)
        self._distinct = self._distinct.renew_if_crowded()
        return tuple(values.interner for values in self._distinct), self._scratch, self._columns, self._text

    def begin_split(self) -> None:
        """Prepare for the next split of the same store, after all batches of the previous one were used."""
        self._distinct = self._distinct.replace_if_large()

    def locate_next_records(self, arguments: WalkArguments, state: Array, faults: Array) -> Array:
        """Locate and decode further records of a window; return the positions of wanted records.

        See `segment_walk.Hop`.
        """
        kernel.locate_and_decode_records(
            self._layout, *arguments, state, self._parts, faults, self._choice, self._plan, *self._make_outputs()
        )
        parts: Array = self._parts[:, : state[h.RECORDS]]
        return parts

    def take_batch(self, window: Array, window_offset: int, record_parts: Array) -> DecodedBatch:
        """Return the records that the last call of `locate_next_records` decoded, as a batch."""
        return self._batch(
            window=window,
            origin=window_offset,
            parts=record_parts,
            broker=self._broker,
            format_name=self._format_name,
            columns=self._columns,
            text=self._text,
            numbers32=self._numbers32,
            numbers64=self._numbers64,
            encoded=self._encoded,
            **self._distinct._asdict(),
        )

    def decode_batch(self, window: Array, window_offset: int, record_parts: Array) -> DecodedBatch:
        """Decode the first of the given records, as many as fit in one batch."""
        chosen = np.ascontiguousarray(record_parts[:, : b.ROWS])
        count = kernel.decode_records(self._layout, window, chosen, self._plan, *self._make_outputs())
        return self.take_batch(window, window_offset, chosen[:, :count])
