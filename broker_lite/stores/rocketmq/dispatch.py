"""Dispatch of records: the fields that ConsumeQueues and index need from a stored record.

A put derives them from the new message, recovery from the record in the log; both must have the same result.
Source: CommitLog.checkMessageAndReturnSize, DispatchRequest, IndexService.buildIndex.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from commitlake.broker_lite.stores.rocketmq.options import StoreOptions
from commitlake.schemas.layouts.integer_parsing import parse_int32
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import INNER_BASE, base_offset_and_count
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.rocketmq.indexfile import tags_index_key
from commitlake.schemas.layouts.rocketmq.light_queues import MULTI_QUEUE_OFFSET, light_queue_offsets
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH, TRANSACTION_MASK, TransactionType

_QUEUED_TYPES = frozenset({int(TransactionType.NOT), int(TransactionType.COMMIT)})


def is_queued(sys_flag: int) -> bool:
    """Return whether records with this sysFlag get queue entries; half messages and rollbacks do not."""
    return sys_flag & TRANSACTION_MASK in _QUEUED_TYPES


class Dispatch(NamedTuple):
    """Fields of a stored record that queues and index need.

    Attributes:
        tags_code: third field of its ConsumeQueue entry: tag hash or delivery time.
        index_keys: keys in the index, in the order in which brokers enter them.
        is_queued: True if it has a ConsumeQueue entry.
        base_offset: queue offset of its first message in a BatchConsumeQueue.
        message_count: number of its messages in a BatchConsumeQueue.
        is_inner_batch: True if the record contains an inner batch, which needs BatchConsumeQueues.
        light_queues: light queues that also contain the record, with its queue offset in each.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    store_timestamp: int
    tags_code: int
    index_keys: tuple[str, ...]
    is_queued: bool
    base_offset: int
    message_count: int
    is_inner_batch: bool
    light_queues: tuple[tuple[str, int], ...]


def parse_delay_level(value: str | None) -> int | None:
    """Parse a DELAY property like Java's Integer.parseInt; return None if it is missing or not a number."""
    return parse_int32(value)


def _wrap_int64(number: int) -> int:
    """Convert a sum of two 64-bit integers to 64 bits with overflow as in Java; only damaged records overflow."""
    return ((number + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


class DispatchBuilder:
    """Builder of `Dispatch` objects, which applies a store's options.

    Attributes:
        schedule_topic: topic of delayed messages.
    """

    def __init__(self, options: StoreOptions) -> None:
        self._delay_levels_ms = options.delay_levels_ms
        self._index_tags = options.index_tags
        self._has_index = options.has_index
        self._tags_code = lru_cache(maxsize=4096)(options.dialect.tags_code)
        self.schedule_topic = options.dialect.schedule_topic

    def make_dispatch(self, message: Message) -> Dispatch:
        """Return the fields that queues and index need, of a message read from the log."""
        properties = message.properties
        base, count = base_offset_and_count(properties, message.queue_offset)
        return Dispatch(
            message.topic,
            message.queue_id,
            message.queue_offset,
            message.physical_offset,
            message.size,
            message.store_timestamp,
            self.queue_entry_code(message.topic, properties, message.store_timestamp),
            self.index_keys_for(properties, message.sys_flag),
            is_queued(message.sys_flag),
            base,
            count,
            bool(message.sys_flag & INNER_BATCH) and INNER_BASE in properties,
            light_queue_offsets(message.topic, properties) if MULTI_QUEUE_OFFSET in properties else (),
        )

    def queue_entry_code(self, topic: str, properties: Mapping[str, str], store_timestamp: int) -> int:
        """Return the tag code of a queue entry: the hash of TAGS or, in the schedule topic, the delivery time."""
        delay_ms = self.message_delay_ms(properties) if topic == self.schedule_topic else None
        return self.tags_code_for(properties) if delay_ms is None else _wrap_int64(store_timestamp + delay_ms)

    def message_delay_ms(self, properties: Mapping[str, str]) -> int | None:
        """Return the delay of a message in the schedule topic, ms; None if its DELAY property is missing or invalid."""
        level = parse_delay_level(properties.get(props.DELAY))
        return self.delay_ms_of_level(level) if level is not None and level > 0 else None

    def tags_code_for(self, properties: Mapping[str, str]) -> int:
        """Return the tag hash of a message; 0 without tags."""
        tags = properties.get(props.TAGS)
        return self._tags_code(tags) if tags else 0

    def delay_ms_of_level(self, level: int) -> int:
        """Return the delay of a level (1 or more), ms; levels above the highest have the delay of the highest."""
        return self._delay_levels_ms[min(level, len(self._delay_levels_ms)) - 1]

    def index_keys_for(self, properties: Mapping[str, str], sys_flag: int) -> tuple[str, ...]:
        """Return a record's keys for the index: UNIQ_KEY, parts of KEYS, and TAGS; none for rolled-back messages."""
        if not self._has_index or sys_flag & TRANSACTION_MASK == TransactionType.ROLLBACK:
            return ()
        unique_key = properties.get(props.UNIQ_KEY)
        keys = properties.get(props.KEYS)
        tags = properties.get(props.TAGS) if self._index_tags else None
        found = [unique_key] if unique_key else []
        if keys:
            found += props.split_keys(keys)
        if tags:
            found.append(tags_index_key(tags))
        return tuple(found)
