"""Journal messages as rows of `messages`: RocketMQ's columns, filled with JMQ's data.

    unique_key         JMQ's message id, topic/queue/queueOffset@broker, which no record stores
    msg_id             the same, because it also contains the message's position
    keys               the business id; null if it is empty
    tags               the business tag, a number, as text
    kind               normal: retries and dead letters have no record of their own
    born_timestamp     send time                  born_host    client address
    store_timestamp    store time                 store_host   server address
    sys_flag           the system field           priority     the priority
    body_crc           top bit cleared, as RocketMQ stores it
    origin_topic       the topic, because no record is in a topic of the broker's own
    producer_group     the producer's application; null if it is empty
    flag, reconsume_times, prepared_transaction_offset: 0
    properties         all of them; for a repeated key the last one. Two more are added:
                       `jmq.app`, the producer's application, if it is not empty, and
                       `jmq.receive_timestamp`, ms

A stored property with one of these two names, after any number of underscores, is shown with one more underscore, so
that no property hides another.
"""

from __future__ import annotations

import hashlib
import re

from commitlake.schemas.layouts.jmq.journal import JournalMessage, Magic
from commitlake.schemas.layouts.rocketmq.commitlog import CRC_MASK
from commitlake.schemas.layouts.rocketmq.sysflag import BodyCodec
from commitlake.schemas.layouts.rocketmq.topics import Kind

APP = "jmq.app"
RECEIVE_TIMESTAMP = "jmq.receive_timestamp"
_RESERVED = re.compile(rf"_*(?:{re.escape(APP)}|{re.escape(RECEIVE_TIMESTAMP)})")
_BITS = 64
_MASK = (1 << _BITS) - 1


def display_property_name(name: str) -> str:
    """Put `_` before a property's name if tables use that name for a record's application or receive time."""
    return f"_{name}" if _RESERVED.fullmatch(name) else name


def format_message_id(topic: str, queue_id: int, queue_offset: int, broker: str) -> str:
    """Return a message's id; `queue_offset` is unsigned."""
    return f"{topic}/{queue_id}/{queue_offset}@{broker}"


def to_signed64(value: int) -> int:
    """Convert an unsigned 64-bit number to the signed one that a column of longs stores."""
    return value - (1 << _BITS) if value >> (_BITS - 1) else value


def to_message_row(message: JournalMessage, broker: str) -> dict[str, object]:
    """Return a message under the column names of the table `messages`; timestamps in ms, without the body."""
    own_id = format_message_id(message.topic, message.queue_id, message.queue_offset, broker)
    properties = {display_property_name(name): value for name, value in message.property_pairs}
    if message.app:
        properties[APP] = message.app
    properties[RECEIVE_TIMESTAMP] = str(to_signed64(message.receive_timestamp & _MASK))
    return {
        "broker": broker,
        "physical_offset": message.journal_offset,
        "size": message.size,
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": to_signed64(message.queue_offset),
        "msg_id": own_id,
        "unique_key": own_id,
        "keys": [message.business_id] if message.business_id else None,
        "tags": str(message.business_tag),
        "kind": str(Kind.NORMAL),
        "born_timestamp": message.send_timestamp,
        "store_timestamp": message.store_timestamp,
        "born_host": str(message.client_address),
        "store_host": str(message.server_address),
        "sys_flag": message.sys_flag,
        "flag": 0,
        "reconsume_times": 0,
        "priority": message.priority,
        "prepared_transaction_offset": 0,
        "body_size": len(message.body),
        "body_crc": message.body_crc & CRC_MASK,
        "body_codec": str(BodyCodec.ZLIB if message.is_compressed else BodyCodec.NONE),
        "properties": properties,
        "format": "jmq",
        "origin_topic": message.topic,
        "producer_group": message.app or None,
        "magic": int(Magic.MESSAGE),
        "body_sha256": hashlib.sha256(message.body).hexdigest(),
    }
