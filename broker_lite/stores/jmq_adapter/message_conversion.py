"""Conversion of messages between RocketMQ's clients and a journal.

    journal             client
    app                 producer group
    business id         __SHARDINGKEY, if the message has one, which makes it ordered; else the first of KEYS
    business tag        flag, 0 to 65,535
    priority            property _SYS_MSG_PRIORITY_, if it is 0 to 255
    properties          all properties of the client, without those that a RocketMQ broker adds
    compressed body     zlib; the store compresses bodies that the producer has not compressed
    journal offset      commitLogOffset, also in the offset message id
    queue id, offset    the same

Retries and dead letters also have RocketMQ's form: the message under the group's topic, with its number of failures and
its original topic.
"""

from __future__ import annotations

from collections.abc import Mapping

from commitlake.broker_lite.errors import MessageRefusedError, UnsupportedError
from commitlake.broker_lite.stores.jmq.retry_queues import RetryQueue, topic_of_retry_queue
from commitlake.broker_lite.stores.jmq.retry_store import Retry
from commitlake.broker_lite.stores.rocketmq.message_preparation import SentMessage
from commitlake.schemas.layouts.jmq.journal import JournalMessage, NewJournalMessage
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage, serialize_message
from commitlake.schemas.layouts.rocketmq.message_id import serialize_message_id
from commitlake.schemas.layouts.rocketmq.sysflag import TRANSACTION_MASK, BodyCodec, body_codec, compression_bits

SHARDING_KEY = "__SHARDINGKEY"
NO_TRANSACTIONS = "a JMQ journal has no transactions: send the message without one"
_MAX_PRIORITY = 0xFF
_INT63 = 1 << 63
_ZLIB = compression_bits(BodyCodec.ZLIB)


def to_journal_message(message: SentMessage) -> NewJournalMessage:
    """Return a producer's message in the journal's form.

    Raises:
        MessageRefusedError: if its body is compressed with a method other than zlib.
        UnsupportedError: if it is part of a transaction.
    """
    if message.sys_flag & TRANSACTION_MASK:
        raise UnsupportedError(NO_TRANSACTIONS)
    codec = body_codec(message.sys_flag)
    if codec not in (BodyCodec.NONE, BodyCodec.ZLIB):
        raise MessageRefusedError(f"body: expected a body that is not compressed, or with zlib, found {codec}")
    known = message.properties
    sharding_key = known.get(SHARDING_KEY, "")
    keys = props.split_keys(known.get(props.KEYS, ""))
    priority = props.parse_priority(known.get(props.PRIORITY)) or 0
    return NewJournalMessage(
        topic=message.topic,
        body=message.body,
        send_timestamp=message.born_timestamp,
        client_address=message.born_host,
        app=message.producer_group,
        business_id=sharding_key or (keys[0] if keys else ""),
        business_tag=message.flag,
        priority=priority if 0 <= priority <= _MAX_PRIORITY else 0,
        is_compressed=codec is BodyCodec.ZLIB,
        is_ordered=bool(sharding_key),
        properties=[pair for pair in known.items() if pair[0] not in props.BROKER_MARKS],
    )


def client_properties(message: JournalMessage, added_properties: Mapping[str, str]) -> dict[str, str]:
    """Return a message's properties as a client expects them, with the business id as a key.

    Args:
        added_properties: properties that the broker adds.
    """
    known = message.properties
    if message.business_id and props.KEYS not in known and SHARDING_KEY not in known:
        known[props.KEYS] = message.business_id
    known.update(added_properties)
    return known


def record_for_client(message: JournalMessage, properties: dict[str, str]) -> bytes:
    """Return a message's record in the form that clients expect.

    Args:
        properties: its `client_properties`.
    """
    return _serialize_record(message, (message.topic, message.queue_id, message.queue_offset), 0, properties)


def retry_record_for_client(retry: Retry, added_properties: Mapping[str, str]) -> bytes:
    """Return the record that clients receive for a retry or dead letter in a queue."""
    message, failures = retry.message, retry.failed_retries + 1
    changes = {
        props.RETRY_TOPIC: message.topic,
        props.ORIGIN_MESSAGE_ID: serialize_message_id(message.server_address, message.journal_offset),
    }
    known = {key: value for key, value in client_properties(message, added_properties).items() if key not in changes}
    assert retry.place is not None, "expected a retry that is in a queue"
    return _serialize_record(
        message, (topic_of_retry_queue(RetryQueue(retry.app, retry.status)), 0, retry.place), failures, changes | known
    )


def _serialize_record(
    message: JournalMessage, queue_position: tuple[str, int, int], failure_count: int, properties: dict[str, str]
) -> bytes:
    topic, queue_id, queue_offset = queue_position
    return serialize_message(
        NewMessage(
            topic=topic,
            body=message.body,
            born_timestamp=message.send_timestamp,
            born_host=message.client_address,
            queue_id=queue_id,
            flag=message.business_tag,
            sys_flag=_ZLIB if message.is_compressed else 0,
            reconsume_times=failure_count,
            properties=_convertible_properties(properties),
        ),
        queue_offset=queue_offset,
        physical_offset=message.journal_offset,
        # In a forged message the times may be further apart than an int64 allows.
        store_timestamp=max(-_INT63, min(message.store_timestamp, _INT63 - 1)),
        store_host=message.server_address,
    )


def _convertible_properties(properties: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the properties that RocketMQ's record format can contain: not empty, without separators, not too large.

    Properties of RocketMQ's clients always do. Other producers' may not, and must not block consumers.
    """
    pairs = tuple(properties.items())
    text = "".join([f"{key}\x01{value}\x02" for key, value in pairs])
    count = len(pairs)
    is_sound = all(properties.values()) and text.count("\x01") == count and text.count("\x02") == count
    if is_sound and len(text) * 4 <= props.MAX_SIZE:
        return pairs
    kept, room = [], props.MAX_SIZE
    for key, value in pairs:
        size = len(f"{key}\x01{value}\x02".encode())
        if key and value and not {"\x01", "\x02"} & {*key, *value} and size <= room:
            kept.append((key, value))
            room -= size
    return tuple(kept)
