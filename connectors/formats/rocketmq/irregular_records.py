"""Index data of irregular records, which the kernel leaves to Python; the rules are those of the broker."""

from __future__ import annotations

from dataclasses import dataclass

from commitlake.schemas.layouts.boltmq.dialect import ROCKETMQ, Dialect
from commitlake.schemas.layouts.numbers import parse_int32
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import INNER_NUM
from commitlake.schemas.layouts.rocketmq.indexfile import key_hash, tags_key
from commitlake.schemas.layouts.rocketmq.light_queues import light_queue_entries
from commitlake.schemas.layouts.rocketmq.sysflag import TRANSACTION_MASK, TransactionType


@dataclass(frozen=True, slots=True)
class IrregularRecord:
    """Index data of an irregular record; see `records.Facts` for the fields.

    Attributes:
        tags_code: code of the tags, even if the entry has a delivery time instead.
        delay_level: 0 for none.
        batch_size: 0 for none.
        tags_hash: -1 for none.
        key_hashes: in the broker's order.
        other_queues: names of the light queues that also have the record, and its queue offsets there.
    """

    tags_code: int
    delay_level: int
    batch_size: int
    tags_hash: int
    key_hashes: tuple[int, ...]
    other_queues: tuple[tuple[str, int], ...]


def irregular_record(
    raw_topic: bytes, raw_properties: bytes, sys_flag: int, dialect: Dialect = ROCKETMQ
) -> IrregularRecord:
    """Return the index data of an irregular record.

    Args:
        raw_topic: the topic as stored.
        raw_properties: the properties as stored.
        sys_flag: the sys_flag of the record.
        dialect: the dialect of the record.
    """
    topic = raw_topic.decode("utf-8", "replace")
    found = dict(props.parse_properties(raw_properties))
    tags = found.get(props.TAGS)
    indexed = dialect.has_key_index and sys_flag & TRANSACTION_MASK != TransactionType.ROLLBACK
    keys = [found[props.UNIQ_KEY]] if props.UNIQ_KEY in found else []
    keys += props.split_keys(found.get(props.KEYS, ""))
    return IrregularRecord(
        tags_code=dialect.tags_code(tags),
        delay_level=max(0, parse_int32(found.get(props.DELAY)) or 0) if topic == dialect.schedule_topic else 0,
        batch_size=max(0, parse_int32(found.get(INNER_NUM)) or 0),
        tags_hash=key_hash(topic, tags_key(tags)) if tags and indexed else -1,
        key_hashes=tuple(key_hash(topic, key) for key in keys) if indexed else (),
        other_queues=light_queue_entries(topic, found),
    )
