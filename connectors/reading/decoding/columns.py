"""Columns of decoded records, as Arrow arrays on the kernel's buffers.

Names and meanings are those of `schemas.tables.messages`. A column is made when it is requested. The distinct values of
a repetitive column are numbered by the kernel, and each is converted to text once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.decoding import arrow
from commitlake.connectors.reading.decoding.arrow import Dictionary
from commitlake.connectors.reading.kernel import buffers as b
from commitlake.connectors.reading.kernel import record_walk as h
from commitlake.connectors.reading.kernel.buffers import is_crowded_interner, make_interner
from commitlake.connectors.reading.kernel.memory_access import PADDING
from commitlake.connectors.reading.kernel.strings import DISTINCT, intern_span
from commitlake.schemas.layouts.rocketmq.hosts import V6_SIZE, parse_host
from commitlake.schemas.layouts.rocketmq.properties import (
    KEYS,
    UNIQ_KEY,
    first_value,
    parse_priority,
    parse_properties,
    split_keys,
)
from commitlake.schemas.layouts.rocketmq.sysflag import COMPRESSED, COMPRESSION_MASK, body_codec
from commitlake.schemas.layouts.rocketmq.topics import FAILED_KINDS, WAITING_KINDS, Kind, kind_of

_MAX_KEPT = 1024  # a data file stores all values of a dictionary, also those that its rows do not have
ToText = Callable[[bytes], str]


def utf8_text(value: bytes) -> str:
    """Decode bytes as UTF-8; invalid bytes become U+FFFD."""
    return value.decode("utf-8", "replace")


def host_text(value: bytes) -> str:
    """Return a stored host as ip:port."""
    return str(parse_host(value, 0, is_v6=len(value) == V6_SIZE))


class DistinctValues:
    """Distinct values of a column, numbered in the order in which they first appear in one or several splits."""

    def __init__(self, seed: np.uint64, to_text: ToText, known: tuple[str, ...] = ()) -> None:
        """Start with the given values, which get the numbers from 0 on."""
        self._seed = seed
        self._to_text = to_text
        self._known = known
        self.interner = make_interner()
        self._values: list[bytes] = []
        self._texts: list[str] = []
        self._dictionary = Dictionary([])
        for value in known:
            data = np.frombuffer(value.encode() + bytes(PADDING), np.uint8)
            intern_span(data, 0, len(data) - PADDING, seed, -1, *self.interner)

    def renew_if_crowded(self) -> DistinctValues:
        """Return this object or, if it has become too large for the next batch, a new one without values."""
        # Replaced as a whole, not cleared: earlier batches, which a caller may still hold, refer to the old object.
        return self._make_empty() if is_crowded_interner(self.interner) else self

    def replace_if_large(self) -> DistinctValues:
        """Return this object or, if it has many values that the next split may not need, a new one without values."""
        return self._make_empty() if self.interner.counts[DISTINCT] > _MAX_KEPT else self

    def _make_empty(self) -> DistinctValues:
        return DistinctValues(self._seed, self._to_text, self._known)

    @property
    def values(self) -> list[bytes]:
        """Distinct values as bytes, as stored in the log."""
        # Only the values since the last call are converted, because a batch adds few.
        known, count = len(self._values), int(self.interner.counts[DISTINCT])
        if known < count:
            starts = self.interner.starts[known : count + 1].tolist()
            texts = self.interner.texts[: starts[-1]].tobytes()
            fresh = [texts[begin:end] for begin, end in pairwise(starts)]
            self._values += fresh
            self._texts += [self._to_text(value) for value in fresh]
        return self._values

    @property
    def texts(self) -> list[str]:
        """Distinct values as strings."""
        return self._texts if self.values else []

    @property
    def invalid_value_numbers(self) -> list[int]:
        """Numbers of the values that are not UTF-8, so that their strings differ from the stored bytes."""
        # A valid text may contain U+FFFD itself, so the bytes are compared, too.
        return [
            code for code, text in enumerate(self.texts) if "\ufffd" in text and text.encode() != self._values[code]
        ]

    @property
    def to_dictionary(self) -> Dictionary:
        """Distinct values as an Arrow dictionary of strings."""
        if len(self._dictionary.array) < len(self.values):
            self._dictionary = Dictionary(self._texts)
        return self._dictionary


class DistinctValuesByColumn(NamedTuple):
    """Distinct values of each column with repeating values, such as topics and tags, in the kernel's order.

    Attributes:
        names: property names.
        topics: topics, including original topics that properties name.
        tags: tags.
        producer_groups: producer groups.
        born_hosts: hosts of producers.
        store_hosts: hosts of brokers.
    """

    names: DistinctValues
    topics: DistinctValues
    tags: DistinctValues
    producer_groups: DistinctValues
    born_hosts: DistinctValues
    store_hosts: DistinctValues

    def renew_if_crowded(self) -> DistinctValuesByColumn:
        """Return the same objects, but a new, empty one in place of each that is too large for the next batch."""
        return DistinctValuesByColumn(*(values.renew_if_crowded() for values in self))

    def replace_if_large(self) -> DistinctValuesByColumn:
        """Return the same objects, but a new, empty one in place of each that has many values."""
        return DistinctValuesByColumn(*(values.replace_if_large() for values in self))


_MICROSECONDS = 1000  # per millisecond
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_SIZE_BYTES = 4  # size of total_size, a record's first field
Texts = dict[int, bytes]
"""Texts of a record, by the rows of `parts` with their positions; the next rows contain the lengths."""
_KINDS = Dictionary([str(kind) for kind in Kind])
_MOVED_KINDS = WAITING_KINDS | FAILED_KINDS
_KIND_CODES = {kind: code for code, kind in enumerate(Kind)}


@dataclass(frozen=True, slots=True)
class RepairedText:
    """Text of a record that is not valid in its column, with a valid form to replace it.

    Attributes:
        part: the row of `parts` with the position of the text.
        name: the name of the text, for the note about it; empty if no information is lost.
        raw: the bytes as stored.
        repaired: the bytes in a form that can be decoded.
    """

    part: int
    name: str
    raw: bytes
    repaired: bytes


@dataclass(frozen=True, eq=False)
class DecodedBatch:
    """Batch of records in a window, with the output columns that the kernel filled.

    Attributes:
        window: the log's bytes; `parts` has the positions of the records in it. Valid until the walk's next step.
        origin: physical offset of the window's first byte.
        parts: int64[parts, rows], see `kernel.record_walk`.
        broker: the store's name.
        format_name: the name of the store's format.
        columns: the columns of fixed size, filled by the kernel.
        text: the texts from properties, filled by the kernel.
        numbers32: names of the columns in `columns.numbers32`.
        numbers64: names of the columns in `columns.numbers64`.
        encoded: return repeated strings as dictionary arrays.
        names: property names; see `DistinctValuesByColumn`, also for the next five.
        topics: stored topics and original topics.
        tags: tags.
        producer_groups: producer groups.
        born_hosts: producers.
        store_hosts: brokers.
    """

    window: Array
    origin: int
    parts: Array
    broker: str
    format_name: str
    columns: b.ColumnBuffers
    text: b.TextBuffers
    numbers32: Sequence[str]
    numbers64: Sequence[str]
    encoded: bool
    names: DistinctValues
    topics: DistinctValues
    tags: DistinctValues
    producer_groups: DistinctValues
    born_hosts: DistinctValues
    store_hosts: DistinctValues

    @property
    def row_count(self) -> int:
        """Number of records."""
        return int(self.parts.shape[1])

    def has_column(self, name: str) -> bool:
        """Return whether the format has a column; a column of other formats is null in all rows."""
        return name in self.numbers32 or name in self.numbers64 or name in _BUILDERS

    def column(self, name: str) -> pa.Array:
        """Return a column by its name in the table `messages`.

        Raises:
            KeyError: if there is no such column, or the decoder was not created with it.
        """
        if name in self.numbers32:
            return arrow.fixed_width_array(self._int32_values(name), pa.int32())
        if name in _BUILDERS:
            built: pa.Array = getattr(self, _BUILDERS[name])()
            return built
        return arrow.fixed_width_array(self.int64_values(name), pa.int64())

    def first_rows(self, count: int) -> DecodedBatch:
        """Return a batch with only the first `count` records of this one."""
        return type(self)(**{**self.__dict__, "parts": self.parts[:, :count]})

    def record_extent(self, row: int) -> tuple[int, int]:
        """Return the physical offsets of a record's first byte and of the byte after its last."""
        start = int(self.parts[h.START, row])
        size = int.from_bytes(self.window[start : start + _SIZE_BYTES].tobytes())
        return self.origin + start, self.origin + start + size

    def raw_text(self, part_row: int, record_number: int) -> bytes:
        """Return the bytes of one text of a record, such as its topic, as stored.

        Args:
            part_row: number of the row of `parts` that has the text's start; the next row has its length.
            record_number: number of the record.
        """
        start = self.parts[part_row, record_number]
        return bytes(self.window[start : start + self.parts[part_row + 1, record_number]])

    def invalid_texts(self, row: int) -> list[RepairedText]:
        """Return the texts of a row that are not valid UTF-8, each with a valid form to replace it."""
        raw = self.raw_text(h.PROPERTIES, row)
        return [RepairedText(h.PROPERTIES, "properties", raw, raw.decode("utf-8", "replace").encode())]

    def keys_after_repair(self, row: int) -> set[str | None]:
        """Return the keys that a row has once invalid UTF-8 in its texts is replaced."""
        pairs = parse_properties(self.raw_text(h.PROPERTIES, row))
        return {first_value(pairs, UNIQ_KEY), *split_keys(dict(pairs).get(KEYS, ""))}

    def rows_with_invalid_text(self) -> Array:
        """Return the indexes of the rows whose properties are not UTF-8."""
        rows = self.text.not_utf8[: self.text.used[b.NOT_UTF8]]
        # `first_rows` may have cut this batch, but the list of rows is that of the whole.
        return rows[rows < self.row_count]

    def replace_texts(self, texts_by_row: dict[int, Texts]) -> tuple[Array, Array]:
        """Return a copy of the window to which the given texts are appended, and the records' positions with them."""
        # After the last record of the batch; the window continues with bytes that no row of it needs.
        end = int((self.parts[h.PROPERTIES] + self.parts[h.PROPERTIES_LENGTH]).max())
        pieces, parts = [self.window[:end]], self.parts.copy()
        for row, texts in texts_by_row.items():
            for part, data in texts.items():
                pieces.append(np.frombuffer(data, np.uint8))
                parts[part, row], parts[part + 1, row] = end, len(data)
                end += len(data)
        return np.concatenate([*pieces, np.zeros(PADDING, np.uint8)]), parts

    def _int32_values(self, name: str) -> Array:
        numbers: Array = self.columns.numbers32[self.numbers32.index(name), : self.row_count]
        return numbers

    def int64_values(self, name: str) -> Array:
        """Return a column of stored 8-byte integers; times are in ms."""
        numbers: Array = self.columns.numbers64[self.numbers64.index(name), : self.row_count]
        return numbers

    @property
    def sys_flags(self) -> Array:
        """sys_flag of every record."""
        flags: Array = self.columns.sys_flags[: self.row_count]
        return flags

    def _row_codes(self, code_row: int) -> Array:
        codes: Array = self.columns.codes[code_row, : self.row_count]
        return codes

    def _dictionary_column(self, dictionary: Dictionary, codes: Array) -> pa.Array:
        return dictionary.to_dictionary_array(codes) if self.encoded else dictionary.to_string_array(codes)

    def _make_constant_column(self, text: str) -> pa.Array:
        return arrow.constant_array(text, self.row_count, as_dictionary=self.encoded)

    @property
    def topic_codes(self) -> Array:
        """Return the index in `topics` of each record's topic."""
        return self._row_codes(b.TOPIC)

    def broker_column(self) -> pa.Array:
        """Return the store's name for every row."""
        return self._make_constant_column(self.broker)

    def format_column(self) -> pa.Array:
        """Return the format's name for every row."""
        return self._make_constant_column(self.format_name)

    def topic_column(self) -> pa.Array:
        """Return the topics; bytes that are not UTF-8 become U+FFFD."""
        return self._dictionary_column(self.topics.to_dictionary, self.topic_codes)

    def kind_column(self) -> pa.Array:
        """Return the kind of each message, such as normal or dead letter, derived from its topic."""
        codes = np.array([_KIND_CODES[kind_of(name)] for name in self.topics.texts], np.int32)
        return self._dictionary_column(_KINDS, codes[self.topic_codes])

    def origin_topic_column(self) -> pa.Array:
        """Return the original topics: the stored ones, except for records in internal topics."""
        named = self._row_codes(b.ORIGIN)
        # Properties that name another topic stay after delivery, so they count only in topics where a message waits or
        # has failed.
        is_moved = np.array([kind_of(name) in _MOVED_KINDS for name in self.topics.texts], bool)
        codes = np.where((named >= 0) & is_moved[self.topic_codes], named, self.topic_codes)
        return self._dictionary_column(self.topics.to_dictionary, codes)

    def producer_group_column(self) -> pa.Array:
        """Return the producer groups."""
        return self._dictionary_column(self.producer_groups.to_dictionary, self._row_codes(b.PRODUCER_GROUP))

    def tag_column(self) -> pa.Array:
        """Return the tags."""
        return self._dictionary_column(self.tags.to_dictionary, self._row_codes(b.TAGS))

    def born_host_column(self) -> pa.Array:
        """Return the producers' hosts."""
        return self._dictionary_column(self.born_hosts.to_dictionary, self._row_codes(b.BORN_HOST))

    def store_host_column(self) -> pa.Array:
        """Return the brokers' hosts."""
        return self._dictionary_column(self.store_hosts.to_dictionary, self._row_codes(b.STORE_HOST))

    def body_codec_column(self) -> pa.Array:
        """Return the compression of each body."""
        # Usually no body is compressed, and a constant column needs no memory per row.
        bits = self.sys_flags & (COMPRESSED | COMPRESSION_MASK)
        if not bits.any():
            return self._make_constant_column(_NO_CODEC)
        flags, codes = np.unique(bits, return_inverse=True)
        return self._dictionary_column(
            Dictionary([str(body_codec(int(flag))) for flag in flags]), codes.astype(np.int32)
        )

    def message_id_column(self) -> pa.Array:
        """Return the offset message ids."""
        return arrow.string_array(self.columns.message_id_offsets[: self.row_count + 1], self.columns.message_ids)

    def unique_key_column(self) -> pa.Array:
        """Return the clients' message ids."""
        present = self.text.present[b.UNIQUE_KEY, : self.row_count]
        return arrow.string_array(self.text.unique_offsets[: self.row_count + 1], self.text.unique, present)

    def keys_column(self) -> pa.Array:
        """Return the business keys as lists."""
        offsets = self.text.list_offsets[: self.row_count + 1]
        values = arrow.string_array(self.text.key_offsets[: int(offsets[-1]) + 1], self.text.keys)
        return arrow.list_array(offsets, values, self.text.present[b.KEYS, : self.row_count])

    def properties_column(self) -> pa.Array:
        """Return all properties as maps."""
        offsets = self.text.map_offsets[: self.row_count + 1]
        count = int(offsets[-1])
        names = self._dictionary_column(self.names.to_dictionary, self.text.names[:count])
        values = arrow.string_array(self.text.value_offsets[: count + 1], self.text.values)
        return arrow.map_array(offsets, names, values)

    def priority_column(self) -> pa.Array:
        """Return the priority property if it is a number, else null."""
        found = self.text.priorities[:, : self.text.used[b.PRIORITIES]]
        # As for `rows_with_invalid_text`, the list is that of the whole batch.
        found = found[:, found[0] < self.row_count]
        if not found.shape[1]:
            return pa.nulls(self.row_count, pa.int32())
        priorities: list[int | None] = [None] * self.row_count
        for row, position, length in found.T.tolist():
            priorities[row] = parse_priority(self.window[position : position + length].tobytes().decode())
        return pa.array(priorities, pa.int32())

    def body_size_column(self) -> pa.Array:
        """Return the sizes of the stored bodies."""
        return arrow.fixed_width_array(self.parts[h.BODY_LENGTH].astype(np.int32), pa.int32())

    def body_column(self) -> pa.Array:
        """Return the stored bodies."""
        return arrow.span_array(self.window, self.parts[h.BODY], self.parts[h.BODY_LENGTH], pa.binary())

    def sys_flag_column(self) -> pa.Array:
        """Return the sysFlag (flag bits) of each record."""
        return arrow.fixed_width_array(self.sys_flags, pa.int32())

    def _timestamp_column(self, name: str) -> pa.Array:
        return arrow.fixed_width_array(self.int64_values(name) * _MICROSECONDS, _TIMESTAMP)

    def born_timestamp_column(self) -> pa.Array:
        """Return the born timestamps, by the producers' clocks."""
        return self._timestamp_column("born_timestamp")

    def store_timestamp_column(self) -> pa.Array:
        """Return the store timestamps, by the brokers' clocks."""
        return self._timestamp_column("store_timestamp")


_NO_CODEC = str(body_codec(0))

_BUILDERS: dict[str, str] = {
    "broker": "broker_column",
    "topic": "topic_column",
    "msg_id": "message_id_column",
    "unique_key": "unique_key_column",
    "keys": "keys_column",
    "tags": "tag_column",
    "kind": "kind_column",
    "born_timestamp": "born_timestamp_column",
    "store_timestamp": "store_timestamp_column",
    "born_host": "born_host_column",
    "store_host": "store_host_column",
    "sys_flag": "sys_flag_column",
    "priority": "priority_column",
    "body_size": "body_size_column",
    "body_codec": "body_codec_column",
    "properties": "properties_column",
    "format": "format_column",
    "origin_topic": "origin_topic_column",
    "producer_group": "producer_group_column",
    "body": "body_column",
}
