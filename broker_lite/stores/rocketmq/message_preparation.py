"""Messages ready to be appended: checked and serialized, without offsets and time.

Everything that needs no lock is done here, once. The values that only the append knows (queue offset, physical offset,
store time) are then written into the serialized record. A message that exceeds a limit is refused before anything is
written, as a broker answers MESSAGE_ILLEGAL. Source: MessageExtEncoder, HookUtils, TopicValidator.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from commitlake.broker_lite.errors import MessageRefusedError
from commitlake.broker_lite.stores.engine.topic_names import check_topic
from commitlake.broker_lite.stores.rocketmq.dispatch import DispatchBuilder, is_queued, parse_delay_level
from commitlake.broker_lite.stores.rocketmq.options import StoreOptions
from commitlake.schemas.layouts.base import Layout
from commitlake.schemas.layouts.boltmq.dialect import ROCKETMQ
from commitlake.schemas.layouts.errors import UnserializableError
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import INNER_NUM
from commitlake.schemas.layouts.rocketmq.commitlog import (
    HEAD,
    MAX_V1_TOPIC_LENGTH,
    STORED,
    TAIL,
    TOPIC_LENGTH,
    NewMessage,
    serialize_message,
)
from commitlake.schemas.layouts.rocketmq.hosts import Host, host_size
from commitlake.schemas.layouts.rocketmq.sysflag import (
    BORN_HOST_V6,
    INNER_BATCH,
    STORE_HOST_V6,
    TransactionType,
    transaction_type,
)

_INT32 = range(-(1 << 31), 1 << 31)
_INT64 = range(-(1 << 63), 1 << 63)
_INT32_FIELDS = ("flag", "sys_flag", "reconsume_times")
_INT64_FIELDS = ("born_timestamp", "prepared_transaction_offset")
_BATCH_FRAME_BYTES = 22
"""Bytes of a producer's batch for each message besides body and properties: five int32 and an int16."""


def _layout_format(layout: Layout) -> str:
    return "".join(field.code for field in layout.fields)


_HOST_V4 = "4si"
_FIXED_V4 = struct.Struct(f">{_layout_format(HEAD)}{_HOST_V4}{_layout_format(STORED)}{_HOST_V4}{_layout_format(TAIL)}")
"""All fields of a record before its body, if both hosts are IPv4."""
assert _FIXED_V4.size == 88

_OFFSETS = struct.Struct(">qq")
_OFFSETS_AT = HEAD.offset_of("queue_offset")
assert HEAD.offset_of("physical_offset") == _OFFSETS_AT + 8
_pack_offsets = _OFFSETS.pack_into
_pack_time = STORED.struct.pack_into
_STORED_AT_V4 = HEAD.size + host_size(is_v6=False)
_STORED_AT_V6 = HEAD.size + host_size(is_v6=True)
_TOPIC_LENGTH = TOPIC_LENGTH[ROCKETMQ.message]
_LENGTH = struct.Struct(">h")
_WITHOUT_HOST_BITS = ~(BORN_HOST_V6 | STORE_HOST_V6)


def check_message(message: NewMessage, max_body_bytes: int, schedule_topic: str) -> None:
    """Raise an error if a broker does not accept a message, or if a field does not fit in a record.

    Args:
        message: message to check.
        max_body_bytes: limit of its body.
        schedule_topic: topic of delayed messages.

    Raises:
        MessageRefusedError: if it breaks a rule. Properties are checked when they are serialized.
    """
    check_topic(message.topic)
    if len(message.body) > max_body_bytes:
        raise MessageRefusedError(f"body: expected at most {max_body_bytes} bytes, found {len(message.body)}")
    if not 0 <= message.queue_id < 1 << 31:
        raise MessageRefusedError(f"queue_id: expected 0 to {(1 << 31) - 1}, found {message.queue_id}")
    if not 0 <= message.born_host.port < 1 << 31 or len(message.born_host.address) not in (4, 16):
        raise MessageRefusedError(
            f"born_host: expected an IPv4 or IPv6 address and a port, found {tuple(message.born_host)}"
        )
    for names, numbers in ((_INT32_FIELDS, _INT32), (_INT64_FIELDS, _INT64)):
        for name in names:
            if (value := getattr(message, name)) not in numbers:
                raise MessageRefusedError(f"{name}: expected {numbers.start} to {numbers.stop - 1}, found {value}")
    if message.topic == schedule_topic:
        _check_delay(message)


def _check_delay(message: NewMessage) -> None:
    # RocketMQ's recovery ends the log at such a record, because Integer.parseInt throws.
    value = dict(message.properties).get(props.DELAY)
    if value is not None and parse_delay_level(value) is None:
        raise MessageRefusedError(
            f"{props.DELAY}: expected a whole number as the delay level of a message in {message.topic}, found "
            f"{value[:40]!r}"
        )


def check_batch(messages: Sequence[NewMessage], max_body_bytes: int) -> None:
    """Raise an error if messages are not valid as a batch: it needs a single queue, and allows no transactions.

    Raises:
        MessageRefusedError: if the batch breaks a rule.
    """
    if not messages:
        raise MessageRefusedError("batch: expected at least one message, found none")
    first = messages[0]
    size = 0
    for message in messages:
        if (message.topic, message.queue_id) != (first.topic, first.queue_id):
            found = f"{first.topic}/{first.queue_id} and {message.topic}/{message.queue_id}"
            raise MessageRefusedError(f"batch: expected messages of one queue, found messages of {found}")
        if transaction_type(message.sys_flag) is not TransactionType.NOT:
            raise MessageRefusedError(
                f"batch: expected messages without a transaction, found one with sys_flag {message.sys_flag:#x}"
            )
        # Text that cannot be encoded is refused later, when the record is built.
        properties = "".join(chain.from_iterable(message.properties)).encode(errors="replace")
        size += len(message.body) + _BATCH_FRAME_BYTES + len(properties) + 2 * len(message.properties)
    if size > max_body_bytes:
        raise MessageRefusedError(f"batch: expected at most {max_body_bytes} bytes in total, found {size}")


class SentMessage(NamedTuple):
    """Message as received from a producer.

    Attributes:
        properties: properties by name.
        stored_properties: the same properties in their serialized form.
    """

    topic: str
    queue_id: int
    body: bytes
    born_timestamp: int
    born_host: Host
    flag: int
    sys_flag: int
    reconsume_times: int
    properties: Mapping[str, str]
    stored_properties: bytes
    producer_group: str = ""

    def as_new_message(self) -> NewMessage:
        """Return the message as a `NewMessage`, with properties as pairs."""
        return NewMessage(
            self.topic,
            self.body,
            self.born_timestamp,
            self.born_host,
            self.queue_id,
            self.flag,
            self.sys_flag,
            self.reconsume_times,
            properties=tuple(self.properties.items()),
        )


@lru_cache(maxsize=4096)
def _encoded_topic(topic: str) -> bytes:
    check_topic(topic)
    return topic.encode()


class PreparedMessage(NamedTuple):
    """Serialized message ready to be appended, in which only offsets and store time are missing.

    Attributes:
        record: serialized record, except for queue offset, physical offset and store time.
        stored_at: position of the store time in the record.
        is_queued: True if it gets a ConsumeQueue entry.
        tags_code: tags code of that entry: a tag hash or a delay.
        is_due_later: True if `tags_code` is a delay, to which the store time is added.
        index_keys: keys under which the index finds the message.
        message_count: number of messages that it contains: 1, except for an inner batch.
        light_queues: names of the light queues that also get an entry, without repetitions.
    """

    topic: str
    queue_id: int
    record: bytearray
    stored_at: int
    is_queued: bool
    tags_code: int
    is_due_later: bool
    index_keys: tuple[str, ...]
    message_count: int = 1
    light_queues: tuple[str, ...] = ()

    def set_offsets(self, queue_offset: int, physical_offset: int, store_timestamp: int) -> None:
        """Write offsets and store time into the serialized record."""
        _pack_offsets(self.record, _OFFSETS_AT, queue_offset if self.is_queued else 0, physical_offset)
        _pack_time(self.record, self.stored_at, store_timestamp)


class MessagePreparer:
    """Converter of messages to prepared messages, with a store's options."""

    def __init__(self, options: StoreOptions, max_record_bytes: int) -> None:
        self._max_body_bytes = options.max_message_size_bytes
        self._max_record_bytes = max_record_bytes
        self._store_host = options.store_host
        self._dialect = options.dialect
        self._dispatching = DispatchBuilder(options)

    def prepare(self, message: NewMessage) -> PreparedMessage:
        """Check a message of any kind, and serialize it except for its offsets and store time.

        Raises:
            MessageRefusedError: if a broker would refuse the message.
        """
        check_message(message, self._max_body_bytes, self._dispatching.schedule_topic)
        try:
            record = serialize_message(
                message,
                queue_offset=0,
                physical_offset=0,
                store_timestamp=0,
                store_host=self._store_host,
                dialect=self._dialect,
            )
        except (UnserializableError, UnicodeEncodeError) as error:
            raise MessageRefusedError(str(error)) from error
        stored_at = _STORED_AT_V6 if message.born_host.is_v6 else _STORED_AT_V4
        return self._finish_record(
            message.topic, message.queue_id, bytearray(record), stored_at, message.sys_flag, dict(message.properties)
        )

    def prepare_sent(self, message: SentMessage) -> PreparedMessage:
        """Check and serialize a producer's message whose properties are already serialized, which is much faster.

        Raises:
            MessageRefusedError: if a broker would refuse the message.
        """
        topic, queue_id, body, born_timestamp, born_host, flag, sys_flag, reconsume_times, known, stored, _ = message
        name = _encoded_topic(topic)
        dialect = self._dialect
        is_v4 = len(born_host.address) == 4 and len(self._store_host.address) == 4
        if not is_v4 or len(name) > MAX_V1_TOPIC_LENGTH or queue_id < 0:
            return self.prepare(message.as_new_message())
        if len(body) > self._max_body_bytes:
            raise MessageRefusedError(f"body: expected at most {self._max_body_bytes} bytes, found {len(body)}")
        if len(stored) > props.MAX_SIZE:
            raise MessageRefusedError(f"properties: expected at most {props.MAX_SIZE} bytes, found {len(stored)}")
        total_size = _FIXED_V4.size + len(body) + 1 + len(name) + 2 + len(stored)
        try:
            fixed = _FIXED_V4.pack(
                total_size, dialect.message, dialect.body_crc(body), queue_id, flag, 0, 0,
                sys_flag & _WITHOUT_HOST_BITS, born_timestamp, *born_host, 0, *self._store_host,
                reconsume_times, 0, len(body),
            )  # fmt: skip
        except struct.error:
            return self.prepare(message.as_new_message())  # raises an error that names the field
        record = bytearray().join((fixed, body, _TOPIC_LENGTH.pack(len(name)), name, _LENGTH.pack(len(stored)), stored))
        return self._finish_record(topic, queue_id, record, _STORED_AT_V4, sys_flag, known)

    def _finish_record(
        self,
        topic: str,
        queue_id: int,
        record: bytearray,
        store_time_position: int,
        sys_flag: int,
        properties: Mapping[str, str],
    ) -> PreparedMessage:
        if len(record) > self._max_record_bytes:
            raise MessageRefusedError(
                f"expected a record of at most {self._max_record_bytes} bytes for a message, found {len(record)}"
            )
        if INNER_NUM in properties and not sys_flag & INNER_BATCH:
            found = properties[INNER_NUM][:40]
            raise MessageRefusedError(
                f"{INNER_NUM}: expected no such property in a message that is not an inner batch, found {found!r}"
            )
        dispatching = self._dispatching
        delay_ms = dispatching.message_delay_ms(properties) if topic == dispatching.schedule_topic else None
        return PreparedMessage(
            topic,
            queue_id,
            record,
            store_time_position,
            is_queued(sys_flag),
            dispatching.tags_code_for(properties) if delay_ms is None else delay_ms,
            delay_ms is not None,
            dispatching.index_keys_for(properties, sys_flag),
        )
