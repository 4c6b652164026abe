"""CommitLog messages as rows of `messages`."""

from __future__ import annotations

import hashlib

from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.commitlog import CRC_MASK, Message
from commitlake.schemas.layouts.rocketmq.topics import kind_of, origin_topic


def row_of(message: Message, broker: str) -> dict[str, object]:
    """Return a message under the column names of the table `messages`; timestamps in ms, without the body."""
    properties = message.properties
    return {
        "broker": broker,
        "physical_offset": message.physical_offset,
        "size": message.size,
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "msg_id": message.msg_id,
        "unique_key": message.unique_key,
        "keys": message.keys,
        "tags": message.tags,
        "kind": str(kind_of(message.topic)),
        "born_timestamp": message.born_timestamp,
        "store_timestamp": message.store_timestamp,
        "born_host": str(message.born_host),
        "store_host": str(message.store_host),
        "sys_flag": message.sys_flag,
        "flag": message.flag,
        "reconsume_times": message.reconsume_times,
        "priority": props.parse_priority(properties.get(props.PRIORITY)),
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "body_size": len(message.body),
        "body_crc": message.body_crc & CRC_MASK,
        "body_codec": str(message.body_codec),
        "properties": properties,
        "format": "rocketmq",
        "origin_topic": origin_topic(message.topic, properties),
        "producer_group": properties.get(props.PGROUP),
        "magic": int(message.magic),
        "body_sha256": hashlib.sha256(message.body).hexdigest(),
    }
