"""Positions of the columns of `messages` in a CommitLog's records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from commitlake.connectors.formats.rocketmq.kernel import columns as fields
from commitlake.connectors.formats.rocketmq.kernel.records import COMMITLOG, COMMITLOG_PART_COUNT
from commitlake.connectors.reading.decoding.decoder import Decoder
from commitlake.connectors.reading.kernel import buffers as b
from commitlake.schemas.layouts.rocketmq.commitlog import CRC_MASK, HEAD, STORED, TAIL

FIELDS32 = {
    "size": (fields.FROM_START, HEAD.offset_of("total_size"), fields.ALL_BITS),
    "queue_id": (fields.FROM_START, HEAD.offset_of("queue_id"), fields.ALL_BITS),
    "flag": (fields.FROM_START, HEAD.offset_of("flag"), fields.ALL_BITS),
    "body_crc": (fields.FROM_START, HEAD.offset_of("body_crc"), CRC_MASK),
    "reconsume_times": (fields.FROM_BODY, TAIL.offset_of("reconsume_times") - TAIL.size, fields.ALL_BITS),
}
FIELDS64 = {
    "physical_offset": (fields.FROM_START, HEAD.offset_of("physical_offset")),
    "queue_offset": (fields.FROM_START, HEAD.offset_of("queue_offset")),
    "born_timestamp": (fields.FROM_START, HEAD.offset_of("born_timestamp")),
    "store_timestamp": (fields.FROM_STORE_HOST, -STORED.size),
    "prepared_transaction_offset": (
        fields.FROM_BODY,
        TAIL.offset_of("prepared_transaction_offset") - TAIL.size,
    ),
}
_BITS = {
    "topic": b.WANT_TOPIC,
    "kind": b.WANT_TOPIC,
    "born_host": b.WANT_BORN_HOST,
    "store_host": b.WANT_STORE_HOST,
    "msg_id": b.WANT_MESSAGE_ID,
    "unique_key": b.WANT_TEXT | b.WANT_UNIQUE_KEY,
    "keys": b.WANT_TEXT | b.WANT_KEYS,
    "tags": b.WANT_TEXT | b.WANT_TAGS,
    "priority": b.WANT_TEXT | b.WANT_PRIORITY,
    "properties": b.WANT_TEXT | b.WANT_ENTRIES,
    "origin_topic": b.WANT_TOPIC | b.WANT_TEXT | b.WANT_ORIGIN,
    "producer_group": b.WANT_TEXT | b.WANT_PRODUCER_GROUP,
}


class CommitLogDecoder(Decoder):
    """Decoder of the records of one split of a CommitLog."""

    _format_name: ClassVar[str] = "rocketmq"
    _layout: ClassVar[Any] = COMMITLOG
    _part_count: ClassVar[int] = COMMITLOG_PART_COUNT
    _fields32: ClassVar[Mapping[str, tuple[int, ...]]] = FIELDS32
    _fields64: ClassVar[Mapping[str, tuple[int, ...]]] = FIELDS64
    _bits: ClassVar[Mapping[str, int]] = _BITS
