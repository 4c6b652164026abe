"""Columns of `messages` that JMQ's journal stores differently from RocketMQ's CommitLog, or not at all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from commitlake.connectors.formats.jmq.kernel import records
from commitlake.connectors.formats.jmq.kernel.columns import ADDRESS_SIZE, NO_DELAY
from commitlake.connectors.formats.jmq.kernel.properties import MAX_PROPERTIES, OWN_NAMES
from commitlake.connectors.formats.jmq.message_row import (
    APP,
    RECEIVE_TIMESTAMP,
    display_property_name,
    format_message_id,
)
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.decoding.columns import (
    DecodedBatch,
    DistinctValues,
    DistinctValuesByColumn,
    RepairedText,
    utf8_text,
)
from commitlake.connectors.reading.decoding.decoder import Decoder
from commitlake.connectors.reading.kernel import buffers as b
from commitlake.connectors.reading.kernel import record_walk as h
from commitlake.connectors.reading.kernel.memory_access import OVERWRITE
from commitlake.schemas.layouts.jmq.journal import HEAD
from commitlake.schemas.layouts.jmq.properties import parse_properties
from commitlake.schemas.layouts.rocketmq.commitlog import CRC_MASK
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.topics import Kind

_LAST_BYTE = 3  # index of the last of four bytes that are read together
_ALL_BITS, _BYTE = -1, 0xFF
_AT_CRC = HEAD.offset_of("body_crc") + 4  # the upper half is zero
FIELDS32 = {
    "size": (HEAD.offset_of("total_size"), _ALL_BITS),
    "queue_id": (HEAD.offset_of("queue_id") - _LAST_BYTE, _BYTE),
    "priority": (HEAD.offset_of("priority") - _LAST_BYTE, _BYTE),
    "body_crc": (_AT_CRC, CRC_MASK),
}
FIELDS64 = {
    "physical_offset": (HEAD.offset_of("journal_offset"), NO_DELAY),
    "queue_offset": (HEAD.offset_of("queue_offset"), NO_DELAY),
    "born_timestamp": (HEAD.offset_of("send_timestamp"), NO_DELAY),
    "store_timestamp": (HEAD.offset_of("send_timestamp"), HEAD.offset_of("store_delay")),
}
_BITS = {
    "topic": b.WANT_TOPIC,
    "kind": 0,
    "born_host": b.WANT_BORN_HOST,
    "store_host": b.WANT_STORE_HOST,
    "msg_id": b.WANT_UNIQUE_KEY | b.WANT_TOPIC,
    "unique_key": b.WANT_UNIQUE_KEY | b.WANT_TOPIC,
    "keys": b.WANT_TEXT | b.WANT_KEYS,
    "tags": b.WANT_TAGS,
    "properties": b.WANT_TEXT | b.WANT_ENTRIES,
    "origin_topic": b.WANT_TOPIC,
    "producer_group": b.WANT_TEXT | b.WANT_PRODUCER_GROUP,
}
_ZEROS = {"flag": pa.int32(), "reconsume_times": pa.int32(), "prepared_transaction_offset": pa.int64()}
_SPECIAL = re.compile(r"[\\\n=]")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_OWN_NAMES = dict(zip(OWN_NAMES, (APP, RECEIVE_TIMESTAMP), strict=True))
_TEXTS = ((records.APP, "application"), (records.BUSINESS_ID, "business id"), (h.PROPERTIES, "properties"))


def _decode_name(stored_bytes: bytes) -> str:
    """Return the displayed name of a property, given its stored bytes."""
    text = utf8_text(stored_bytes)
    return _OWN_NAMES.get(text) or display_property_name(_ESCAPED.sub(r"\1", text))


def _decode_tag(stored_bytes: bytes) -> str:
    return str(int.from_bytes(stored_bytes))


def _decode_address(stored_bytes: bytes) -> str:
    return str(Host(stored_bytes[: ADDRESS_SIZE - 2], int.from_bytes(stored_bytes[ADDRESS_SIZE - 2 :])))


class JournalBatch(DecodedBatch):
    """Records from one window of a JMQ journal, decoded to columns."""

    def has_column(self, name: str) -> bool:
        """Return whether a table's column has values in this format; columns that are always 0 count, too."""
        return name in _ZEROS or super().has_column(name)

    def column(self, name: str) -> pa.Array:
        """Return a column by its name; the columns that JMQ does not have, such as flags, are 0 in every row."""
        if name in _ZEROS:
            return pa.repeat(pa.scalar(0, _ZEROS[name]), self.row_count)
        return super().column(name)

    def message_id_column(self) -> pa.Array:
        """Return the message ids, which consist of a message's topic, queue, queue offset and broker."""
        return self.unique_key_column()

    def kind_column(self) -> pa.Array:
        """Return the kind of each message, which is NORMAL, because a journal has no retries or dead letters."""
        return self._make_constant_column(str(Kind.NORMAL))

    def origin_topic_column(self) -> pa.Array:
        """Return the original topics, which are the stored ones, because JMQ has no internal topics."""
        return self.topic_column()

    def unique_key_column(self) -> pa.Array:
        """Return JMQ's message ids; bytes of a topic that are not UTF-8 become U+FFFD."""
        replaced = self.topics.invalid_value_numbers
        if not np.isin(self.topic_codes, replaced).any():
            return super().unique_key_column()
        topics, suffix_at = self.topics.values, self.text.unique_offsets[: self.row_count + 1].tolist()
        ids = []
        for row, code in enumerate(self.topic_codes.tolist()):
            stored = self.text.unique[suffix_at[row] : suffix_at[row + 1]].tobytes()
            ids.append(self.topics.texts[code] + stored[len(topics[code]) :].decode())
        return pa.array(ids, pa.string())

    def invalid_texts(self, row: int) -> list[RepairedText]:
        """Return the texts of a row that are not UTF-8, and the row's properties if JMQ's escapes in them are wrong."""
        found = []
        for part, name in _TEXTS:
            raw = self.raw_text(part, row)
            text = utf8_text(raw)
            is_same = text.encode() == raw
            repaired = text.encode()
            if part == h.PROPERTIES:
                repaired = _repair_properties(raw)
            if not is_same or repaired != raw:
                found.append(RepairedText(part, "" if is_same else name, raw, repaired))
        return found

    def keys_after_repair(self, row: int) -> set[str | None]:
        """Return the keys that a row will have after invalid UTF-8 in its topic and keys is replaced."""
        topic, start = utf8_text(self.raw_text(h.TOPIC, row)), int(self.parts[h.START, row])
        head = HEAD.unpack(self.window[start : start + HEAD.size].tobytes())
        own_id = format_message_id(topic, head[6], head[7], self.broker)
        return {own_id, utf8_text(self.raw_text(records.BUSINESS_ID, row)) or None}


def _repair_properties(stored_bytes: bytes) -> bytes:
    """Return properties with invalid UTF-8 and wrong escapes replaced; they may become longer than a record allows."""
    pairs = dict(parse_properties(stored_bytes)).items()
    return "\n".join(f"{_escape_text(name)}={_escape_text(value)}" for name, value in pairs).encode()


def _escape_text(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", text)


class JournalDecoder(Decoder):
    """Decoder of the records of one split of a journal."""

    _format_name: ClassVar[str] = "jmq"
    _layout: ClassVar[Any] = records.JOURNAL
    _part_count: ClassVar[int] = records.JOURNAL_PART_COUNT
    _fields32: ClassVar[Mapping[str, tuple[int, ...]]] = FIELDS32
    _fields64: ClassVar[Mapping[str, tuple[int, ...]]] = FIELDS64
    _bits: ClassVar[Mapping[str, int]] = _BITS
    _max_entries: ClassVar[int] = MAX_PROPERTIES
    _batch: ClassVar[type[DecodedBatch]] = JournalBatch

    def _make_distinct_values(self, seed: np.uint64) -> DistinctValuesByColumn:
        return DistinctValuesByColumn(
            names=DistinctValues(seed, _decode_name, OWN_NAMES),
            topics=DistinctValues(seed, utf8_text),
            tags=DistinctValues(seed, _decode_tag),
            producer_groups=DistinctValues(seed, utf8_text),
            born_hosts=DistinctValues(seed, _decode_address),
            store_hosts=DistinctValues(seed, _decode_address),
        )

    def _message_id_suffix(self) -> Array:
        return np.frombuffer(f"@{self._broker}".encode() + bytes(OVERWRITE), np.uint8)
