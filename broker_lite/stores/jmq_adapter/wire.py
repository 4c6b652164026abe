"""Messages of RocketMQ's clients as a journal keeps them, and as clients get them back.

    journal             client
    app                 producer group
    business id         __SHARDINGKEY of a message that has one, which is ordered then; else the first of KEYS
    business tag        flag, 0 to 65,535
    priority            the property _SYS_MSG_PRIORITY_, where it is 0 to 255
    properties          all properties of the client, but not what a RocketMQ broker adds of its own
    compressed body     zlib; the journal's store compresses what its producer has not
    journal offset      commitLogOffset, which is in the offset message id, too
    queue, and number   the same

A retry and a dead letter are RocketMQ's, too: the message under the group's topic, with how often it has failed, and
where it was first.
"""

from __future__ import annotations

from collections.abc import Mapping

from commitlake.broker_lite.stores.engine.errors import MessageRefusedError, UnsupportedError
from commitlake.broker_lite.stores.jmq.retry import Retry
from commitlake.broker_lite.stores.jmq.retry_queues import RetryQueue, topic_of
from commitlake.broker_lite.stores.rocketmq.prepared import SentMessage
from commitlake.schemas.layouts.jmq.journal import JournalMessage, NewJournalMessage
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage, serialize_message
from commitlake.schemas.layouts.rocketmq.message_id import serialize_message_id
from commitlake.schemas.layouts.rocketmq.sysflag import TRANSACTION_MASK, BodyCodec, body_codec, compression_bits

SHARDING_KEY = "__SHARDINGKEY"
CLUSTER = "CLUSTER"
BROKER_MARKS = frozenset({CLUSTER, "MSG_REGION", "TRACE_ON"})
_MAX_PRIORITY = 0xFF
_INT63 = 1 << 63
_ZLIB = compression_bits(BodyCodec.ZLIB)


def to_journal(message: SentMessage) -> NewJournalMessage:
    """A producer's message as a journal keeps it.

    Raises:
        MessageRefusedError: if its body is compressed by something else than zlib.
        UnsupportedError: if it is part of a transaction.
    """
    if message.sys_flag & TRANSACTION_MASK:
        raise UnsupportedError("a journal has no transactions: send the message without one")
    codec = body_codec(message.sys_flag)
    if codec not in (BodyCodec.NONE, BodyCodec.ZLIB):
        raise MessageRefusedError(f"body: expected none or zlib as its compression in a journal, found {codec}")
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
        properties=[pair for pair in known.items() if pair[0] not in BROKER_MARKS],
    )


def client_properties(message: JournalMessage, marks: Mapping[str, str]) -> dict[str, str]:
    """What a client gets of a message's properties; its business id is one of its keys, whoever has sent it.

    Args:
        message: as it stands in the journal.
        marks: what the broker says of itself.
    """
    known = message.properties
    if message.business_id and props.KEYS not in known and SHARDING_KEY not in known:
        known[props.KEYS] = message.business_id
    known.update(marks)
    return known


def record_of(message: JournalMessage, known: dict[str, str]) -> bytes:
    """The record that clients get of a message.

    Args:
        message: as it stands in the journal.
        known: its `client_properties`.
    """
    return _record(message, (message.topic, message.queue_id, message.queue_offset), 0, known)


def record_of_retry(retry: Retry, marks: Mapping[str, str]) -> bytes:
    """The record that clients get of a retry, or a dead letter, that is in a queue."""
    message, failures = retry.message, retry.failed_retries + 1
    changes = {
        props.RETRY_TOPIC: message.topic,
        props.ORIGIN_MESSAGE_ID: serialize_message_id(message.server_address, message.journal_offset),
    }
    known = {key: value for key, value in client_properties(message, marks).items() if key not in changes}
    assert retry.place is not None, "a retry that is in no queue has no place"
    return _record(message, (topic_of(RetryQueue(retry.app, retry.status)), 0, retry.place), failures, changes | known)


def _record(message: JournalMessage, place: tuple[str, int, int], failures: int, known: dict[str, str]) -> bytes:
    topic, queue_id, queue_offset = place
    return serialize_message(
        NewMessage(
            topic=topic,
            body=message.body,
            born_timestamp=message.send_timestamp,
            born_host=message.client_address,
            queue_id=queue_id,
            flag=message.business_tag,
            sys_flag=_ZLIB if message.is_compressed else 0,
            reconsume_times=failures,
            properties=_that_fit(known),
        ),
        queue_offset=queue_offset,
        physical_offset=message.journal_offset,
        # A forged one may be further from the time of sending than an int64 reaches.
        store_timestamp=max(-_INT63, min(message.store_timestamp, _INT63 - 1)),
        store_host=message.server_address,
    )


def _that_fit(known: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """The properties that RocketMQ's record can hold: not empty, without its separators, and not too large together.

    Those of RocketMQ's clients do. Others can be put into a journal, and must not keep consumers from going on.
    """
    pairs = tuple(known.items())
    text = "".join([f"{key}\x01{value}\x02" for key, value in pairs])
    count = len(pairs)
    is_sound = all(known.values()) and text.count("\x01") == count and text.count("\x02") == count
    if is_sound and len(text) * 4 <= props.MAX_SIZE:
        return pairs
    kept, room = [], props.MAX_SIZE
    for key, value in pairs:
        size = len(f"{key}\x01{value}\x02".encode())
        if key and value and not {"\x01", "\x02"} & {*key, *value} and size <= room:
            kept.append((key, value))
            room -= size
    return tuple(kept)
