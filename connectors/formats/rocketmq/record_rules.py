"""Rules for one record of a CommitLog, in both its dialects, and its row of `messages`; see `log_format.format`."""

from __future__ import annotations

import hashlib

from commitlake.connectors.log_format.records import RecordRules
from commitlake.schemas.layouts.boltmq.dialect import BLANK_MAGICS
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.checkpoint import parse_checkpoint
from commitlake.schemas.layouts.rocketmq.commitlog import BLANK, CRC_MASK, HEAD, STORED, Message, parse_message
from commitlake.schemas.layouts.rocketmq.hosts import V4_SIZE
from commitlake.schemas.layouts.rocketmq.scan import SegmentScanner, classify_span
from commitlake.schemas.layouts.rocketmq.topics import kind_of, origin_topic


def to_message_row(message: Message, broker: str) -> dict[str, object]:
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


def _checkpoint_confirms_flush(checkpoint: bytes, message: Message, was_clean_shutdown: bool) -> bool:
    """Return whether a checkpoint's store time shows that a record was flushed."""
    try:
        known = parse_checkpoint(checkpoint).physic_msg_timestamp
    except LayoutError:
        return False
    return 0 < message.store_timestamp < known + was_clean_shutdown


RULES = RecordRules.of_layouts(
    head=HEAD,
    offset_field="physical_offset",
    filler=BLANK,
    filler_magics=BLANK_MAGICS,
    known_prefix_bytes=HEAD.size + V4_SIZE + STORED.size,  # up to the store time; every record is longer
    examine_span=classify_span,
    make_scanner=SegmentScanner,
    parse_message=parse_message,
    checkpoint_confirms=_checkpoint_confirms_flush,
    to_row=to_message_row,
)
