"""Columns of the records that the kernel found in a window.

A column is built when it is asked for, from the record positions in `parts`; what several columns share (topics,
properties) is found once a batch. Names and meanings are those of `schemas.tables.messages`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import pyarrow as pa

from connectors.commitlog import arrow
from connectors.commitlog.arrow import Array
from connectors.commitlog.kernel import columns as kernel
from connectors.commitlog.kernel import hop, text
from schemas.layouts.commitlog import HEAD, STORED, TAIL
from schemas.layouts.hosts import V4_SIZE, V6_SIZE, parse_host
from schemas.layouts.layout import Layout
from schemas.layouts.properties import parse_priority
from schemas.layouts.sysflag import BORN_HOST_V6, COMPRESSED, COMPRESSION_MASK, STORE_HOST_V6, body_codec
from schemas.layouts.topics import kind_of

_MICROSECONDS = 1000  # in a millisecond
_TIMESTAMP = pa.timestamp("us", tz="UTC")

PROPERTY_COLUMNS = frozenset({"unique_key", "keys", "tags", "priority", "properties"})


class Interned:
    """A column of repeated values: a number for each row, and the rows where each value appears first."""

    def __init__(self, window: Array, positions: Array, lengths: Array) -> None:
        rows = len(positions)
        table = np.full(max(16, 1 << (2 * rows - 1).bit_length()), -1, np.int32)
        self.codes = np.empty(rows, np.int32)
        firsts = np.empty(rows, np.int32)
        distinct = kernel.intern_spans(window, positions, lengths, table, self.codes, firsts)
        starts = positions[firsts[:distinct]]
        ends = starts + lengths[firsts[:distinct]]
        self.values = [window[start:end].tobytes() for start, end in zip(starts, ends, strict=True)]


class DecodedWindow:
    """The records of one window as columns.

    Args:
        window: the log's bytes.
        parts: int64[PART_COUNT, rows], where the parts of the records lie; see `kernel.hop`.
        broker: the store's name.
        keep_entries: whether the column `properties` is going to be asked for.
    """

    def __init__(self, window: Array, parts: Array, broker: str, *, keep_entries: bool = True) -> None:
        self._window = window
        self._parts = parts
        self._broker = broker
        self._keep_entries = keep_entries
        self.rows = parts.shape[1]

    def column(self, name: str) -> pa.Array:
        """A column by its name in the table.

        Raises:
            KeyError: if there is no such column.
        """
        return _BUILDERS[name](self)

    def select(self, wanted: Array) -> DecodedWindow:
        """The same window with some of its records, by a boolean for each row."""
        parts = np.ascontiguousarray(self._parts[:, wanted])
        return DecodedWindow(self._window, parts, self._broker, keep_entries=self._keep_entries)

    def physical_offset_of(self, row: int) -> int:
        """A record's own offset."""
        return int(self.int64("physical_offset")[row])

    def size_of(self, row: int) -> int:
        """A record's size in bytes."""
        return int(self.int32("total_size")[row])

    def raw_properties(self, row: int) -> bytes:
        """A record's properties as stored."""
        start = self._parts[hop.PROPERTIES, row]
        return bytes(self._window[start : start + self._parts[hop.PROPERTIES_LENGTH, row]])

    def rows_not_utf8(self) -> Array:
        """The rows whose properties are not UTF-8."""
        rows = np.empty(self.rows, np.int64)
        positions, lengths = self._parts[hop.PROPERTIES], self._parts[hop.PROPERTIES_LENGTH]
        return rows[: text.find_not_utf8(self._window, positions, lengths, rows)]

    def with_properties(self, replaced: dict[int, bytes]) -> DecodedWindow:
        """The same records with other properties, by row; they lie behind a copy of the window."""
        pieces, end, parts = [self._window], len(self._window), self._parts.copy()
        for row, data in replaced.items():
            pieces.append(np.frombuffer(data, np.uint8))
            parts[hop.PROPERTIES, row], parts[hop.PROPERTIES_LENGTH, row] = end, len(data)
            end += len(data)
        return DecodedWindow(np.concatenate(pieces), parts, self._broker, keep_entries=self._keep_entries)

    def int32(self, field: str) -> Array:
        """A field of the record's head, or of its tail, as numbers."""
        layout, start = (HEAD, self._starts) if _has(HEAD, field) else (TAIL, self._tails)
        values = np.empty(self.rows, np.int32)
        kernel.gather_i32(self._window, start, layout.offset_of(field), values)
        return values

    def int64(self, field: str, scale: int = 1) -> Array:
        """Like `int32`, for 8-byte fields."""
        layout, start = (HEAD, self._starts) if _has(HEAD, field) else (TAIL, self._tails)
        values = np.empty(self.rows, np.int64)
        kernel.gather_i64(self._window, start, layout.offset_of(field), scale, values)
        return values

    def store_timestamps(self, scale: int = 1) -> Array:
        """Store times in ms, times `scale`."""
        values = np.empty(self.rows, np.int64)
        kernel.gather_i64(self._window, self._parts[hop.STORE_HOST], -STORED.size, scale, values)
        return values

    @property
    def _starts(self) -> Array:
        starts: Array = self._parts[hop.START]
        return starts

    @cached_property
    def _tails(self) -> Array:
        tails: Array = self._parts[hop.BODY] - TAIL.size
        return tails

    @cached_property
    def sys_flags(self) -> Array:
        """sys_flag of every record."""
        return self.int32("sys_flag")

    @cached_property
    def topics(self) -> Interned:
        """Topics as stored bytes."""
        return Interned(self._window, self._parts[hop.TOPIC], self._parts[hop.TOPIC_LENGTH])

    @cached_property
    def topic_names(self) -> list[str]:
        """The distinct topics; bytes that are not UTF-8 become U+FFFD."""
        return [value.decode("utf-8", "replace") for value in self.topics.values]

    @cached_property
    def _split(self) -> tuple[Array, Array, Array, Array]:
        """Where the properties are that have columns of their own, and all entries where they are wanted."""
        keep_entries = self._keep_entries
        lengths = self._parts[hop.PROPERTIES_LENGTH]
        room = int(lengths.sum()) // text.MIN_ENTRY_SIZE + self.rows if keep_entries else 0
        wanted = np.empty((text.WANTED_COUNT, self.rows), np.int64)
        wanted_lengths = np.empty((text.WANTED_COUNT, self.rows), np.int64)
        entries = np.empty((4, room), np.int64)
        offsets = np.empty(self.rows + 1, np.int32)
        count = text.split_properties(
            self._window,
            self._parts[hop.PROPERTIES],
            lengths,
            keep_entries,
            wanted,
            wanted_lengths,
            entries,
            offsets,
            _SCRATCH,
        )
        return wanted, wanted_lengths, entries[:, :count], offsets

    def properties(self) -> pa.Array:
        """All properties as maps."""
        _, _, entries, offsets = self._split
        keys = arrow.spans(self._window, entries[0], entries[1], pa.string())
        values = arrow.spans(self._window, entries[2], entries[3], pa.string())
        return arrow.maps(offsets, keys, values)

    def wanted_property(self, row: int) -> pa.Array:
        """One of the properties that have columns of their own, as strings."""
        positions, lengths, *_ = self._split
        return arrow.spans(self._window, positions[row], lengths[row], pa.string())

    def tags(self) -> pa.Array:
        """Tags; they repeat, so that each is decoded once."""
        positions, lengths, *_ = self._split
        interned = Interned(self._window, positions[text.TAGS], lengths[text.TAGS])
        return arrow.repeated(interned.codes, [value.decode() for value in interned.values])

    def keys(self) -> pa.Array:
        """Business keys as lists."""
        positions, lengths, *_ = self._split
        lengths = lengths[text.KEYS]
        room = int(np.maximum(lengths, 0).sum()) // 2 + self.rows
        key_positions, key_lengths = np.empty(room, np.int64), np.empty(room, np.int64)
        offsets = np.empty(self.rows + 1, np.int32)
        count = text.split_keys(self._window, positions[text.KEYS], lengths, key_positions, key_lengths, offsets)
        values = arrow.spans(self._window, key_positions[:count], key_lengths[:count], pa.string())
        return arrow.lists(offsets, values, lengths >= 0)

    def priority(self) -> pa.Array:
        """The priority property where it is a number, else null."""
        texts = self.wanted_property(text.PRIORITY)
        if texts.null_count == self.rows:
            return pa.nulls(self.rows, pa.int32())
        return pa.array([parse_priority(value) for value in texts.to_pylist()], pa.int32())

    def _hosts(self, positions: Array, v6_bit: int) -> pa.Array:
        """Hosts as text; each distinct one is formatted once."""
        sizes = self.host_sizes(v6_bit)
        interned = Interned(self._window, positions, sizes)
        texts = [str(parse_host(value, 0, is_v6=len(value) == V6_SIZE)) for value in interned.values]
        return arrow.repeated(interned.codes, texts)

    def host_sizes(self, v6_bit: int) -> Array:
        """Stored sizes of hosts, by their bit in sys_flag."""
        return np.where(self.sys_flags & v6_bit, V6_SIZE, V4_SIZE).astype(np.int64)

    def message_ids(self) -> pa.Array:
        """Offset message ids."""
        sizes = self.host_sizes(STORE_HOST_V6)
        offsets = np.empty(self.rows + 1, np.int32)
        data = np.empty(int(2 * (sizes.sum() + 8 * self.rows)), np.uint8)
        kernel.write_message_ids(
            self._window,
            self._parts[hop.STORE_HOST],
            sizes,
            self._starts,
            HEAD.offset_of("physical_offset"),
            offsets,
            data,
        )
        return pa.Array.from_buffers(pa.string(), self.rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])

    def body_codecs(self) -> pa.Array:
        """How each body is compressed."""
        flags, codes = np.unique(self.sys_flags & (COMPRESSED | COMPRESSION_MASK), return_inverse=True)
        return arrow.repeated(codes.astype(np.int32), [str(body_codec(int(flag))) for flag in flags])

    def kinds(self) -> pa.Array:
        """Kinds, which follow from the topics."""
        return arrow.repeated(self.topics.codes, [str(kind_of(name)) for name in self.topic_names])

    def bodies(self) -> pa.Array:
        """Bodies as stored."""
        return arrow.spans(self._window, self._parts[hop.BODY], self._parts[hop.BODY_LENGTH], pa.binary())

    def body_sizes(self) -> Array:
        """Sizes of the stored bodies."""
        sizes: Array = self._parts[hop.BODY_LENGTH].astype(np.int32)
        return sizes

    def brokers(self) -> pa.Array:
        """The store's name in every row."""
        return arrow.constant(self._broker, self.rows)

    def born_hosts(self) -> pa.Array:
        """Producers' hosts."""
        return self._hosts(self._starts + HEAD.size, BORN_HOST_V6)

    def store_hosts(self) -> pa.Array:
        """Brokers' hosts."""
        return self._hosts(self._parts[hop.STORE_HOST], STORE_HOST_V6)


def _has(layout: Layout, field: str) -> bool:
    return any(declared.name == field for declared in layout.fields)


_SCRATCH = np.full(text.SCRATCH_SIZE, -1, np.int32)

_BUILDERS: dict[str, Callable[[DecodedWindow], pa.Array]] = {
    "broker": DecodedWindow.brokers,
    "physical_offset": lambda it: arrow.fixed(it.int64("physical_offset"), pa.int64()),
    "size": lambda it: arrow.fixed(it.int32("total_size"), pa.int32()),
    "topic": lambda it: arrow.repeated(it.topics.codes, it.topic_names),
    "queue_id": lambda it: arrow.fixed(it.int32("queue_id"), pa.int32()),
    "queue_offset": lambda it: arrow.fixed(it.int64("queue_offset"), pa.int64()),
    "msg_id": DecodedWindow.message_ids,
    "unique_key": lambda it: it.wanted_property(text.UNIQUE_KEY),
    "keys": DecodedWindow.keys,
    "tags": DecodedWindow.tags,
    "kind": DecodedWindow.kinds,
    "born_timestamp": lambda it: arrow.fixed(it.int64("born_timestamp", _MICROSECONDS), _TIMESTAMP),
    "store_timestamp": lambda it: arrow.fixed(it.store_timestamps(_MICROSECONDS), _TIMESTAMP),
    "born_host": DecodedWindow.born_hosts,
    "store_host": DecodedWindow.store_hosts,
    "sys_flag": lambda it: arrow.fixed(it.sys_flags, pa.int32()),
    "flag": lambda it: arrow.fixed(it.int32("flag"), pa.int32()),
    "reconsume_times": lambda it: arrow.fixed(it.int32("reconsume_times"), pa.int32()),
    "priority": DecodedWindow.priority,
    "prepared_transaction_offset": lambda it: arrow.fixed(it.int64("prepared_transaction_offset"), pa.int64()),
    "body_size": lambda it: arrow.fixed(it.body_sizes(), pa.int32()),
    "body_crc": lambda it: arrow.fixed(it.int32("body_crc"), pa.int32()),
    "body_codec": DecodedWindow.body_codecs,
    "properties": DecodedWindow.properties,
    "body": DecodedWindow.bodies,
}
