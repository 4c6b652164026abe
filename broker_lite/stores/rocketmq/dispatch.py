"""Dispatch of records: the fields that ConsumeQueues and index need from a stored record.

A put derives them from the new message, recovery from the record in the log; both must have the same result.
Source: CommitLog.checkMessageAndReturnSize, DispatchRequest, IndexService.buildIndex.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from commitlake.broker_lite.stores.rocketmq.options import StoreOptions
from commitlake.schemas.layouts.numbers import parse_int32
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import INNER_BASE, queue_numbers
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.rocketmq.indexfile import tags_key
from commitlake.schemas.layouts.rocketmq.light_queues import MULTI_QUEUE_OFFSET, light_queue_entries
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH, TRANSACTION_MASK, TransactionType

_QUEUED_TYPES = frozenset({int(TransactionType.NOT), int(TransactionType.COMMIT)})


def is_queued(sys_flag: int) -> bool:
    """Return whether a record is in a queue; prepared and rolled-back messages of brokers before 4.x are not."""
    return sys_flag & TRANSACTION_MASK in _QUEUED_TYPES


class Dispatch(NamedTuple):
    """Record as the queues and the index see it.

    Attributes:
        tags_code: third field of its ConsumeQueue entry.
        index_keys: keys in the index, in the order in which brokers enter them.
        is_queued: True if it has a ConsumeQueue entry.
        base_offset: queue offset of its first message in a BatchConsumeQueue.
        message_count: number of messages that it contains there.
        is_inner_batch: True if only a topic with BatchConsumeQueues can have such a record.
        light_queues: further queues that contain it, and its queue offset in each.
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


def _as_long(number: int) -> int:
    """Return a sum of two Java longs with Java's overflow, which only damaged or forged records reach."""
    return ((number + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


class DispatchBuilder:
    """Builder of dispatches by a store's options.

    Attributes:
        schedule_topic: topic of delayed messages.
    """

    def __init__(self, options: StoreOptions) -> None:
        self._delay_levels_ms = options.delay_levels_ms
        self._index_tags = options.index_tags
        self._has_index = options.has_index
        self._tags_code = lru_cache(maxsize=4096)(options.dialect.tags_code)
        self.schedule_topic = options.dialect.schedule_topic

    def entries_of_message(self, message: Message) -> Dispatch:
        """Return the dispatch of a record that was read."""
        properties = message.properties
        base, count = queue_numbers(properties, message.queue_offset)
        return Dispatch(
            message.topic,
            message.queue_id,
            message.queue_offset,
            message.physical_offset,
            message.size,
            message.store_timestamp,
            self.entry_code(message.topic, properties, message.store_timestamp),
            self.keys_for(properties, message.sys_flag),
            is_queued(message.sys_flag),
            base,
            count,
            bool(message.sys_flag & INNER_BATCH) and INNER_BASE in properties,
            light_queue_entries(message.topic, properties) if MULTI_QUEUE_OFFSET in properties else (),
        )

    def entry_code(self, topic: str, properties: Mapping[str, str], store_timestamp: int) -> int:
        """Return the code of a ConsumeQueue entry: the hash of TAGS, or the delivery time in the schedule topic."""
        delay_ms = self.delay_for(properties) if topic == self.schedule_topic else None
        return self.tags_code_for(properties) if delay_ms is None else _as_long(store_timestamp + delay_ms)

    def delay_for(self, properties: Mapping[str, str]) -> int | None:
        """Return the delay of a record in the schedule topic, ms; None if its DELAY is missing or invalid."""
        level = parse_delay_level(properties.get(props.DELAY))
        return self.delay_ms(level) if level is not None and level > 0 else None

    def tags_code_for(self, properties: Mapping[str, str]) -> int:
        """Return the hash of TAGS, or 0 if there are none."""
        tags = properties.get(props.TAGS)
        return self._tags_code(tags) if tags else 0

    def delay_ms(self, level: int) -> int:
        """Return the delay of a level above 0; levels above the highest count as the highest."""
        return self._delay_levels_ms[min(level, len(self._delay_levels_ms)) - 1]

    def keys_for(self, properties: Mapping[str, str], sys_flag: int) -> tuple[str, ...]:
        """Return the index keys of a record: UNIQ_KEY, every part of KEYS, TAGS; none if it was rolled back."""
        if not self._has_index or sys_flag & TRANSACTION_MASK == TransactionType.ROLLBACK:
            return ()
        unique_key = properties.get(props.UNIQ_KEY)
        keys = properties.get(props.KEYS)
        tags = properties.get(props.TAGS) if self._index_tags else None
        found = [unique_key] if unique_key else []
        if keys:
            found += props.split_keys(keys)
        if tags:
            found.append(tags_key(tags))
        return tuple(found)
