"""What the ConsumeQueue and the index need to know of a stored record.

A put makes it from the message in hand, recovery from the record it has read; both must come to the same.
Source: CommitLog.checkMessageAndReturnSize, DispatchRequest, IndexService.buildIndex.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from commitlake.broker_lite.stores.rocketmq.options import StoreOptions
from commitlake.schemas.layouts.numbers import parse_int32
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.rocketmq.indexfile import tags_key
from commitlake.schemas.layouts.rocketmq.inner_batch import INNER_BASE, queue_numbers
from commitlake.schemas.layouts.rocketmq.light_queues import MULTI_QUEUE_OFFSET, light_queue_entries
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH, TRANSACTION_MASK, TransactionType

_QUEUED_TYPES = frozenset({int(TransactionType.NOT), int(TransactionType.COMMIT)})


def is_queued(sys_flag: int) -> bool:
    """Whether a record is in a queue: the two types that are not are of brokers before 4.x; their queue offset is 0."""
    return sys_flag & TRANSACTION_MASK in _QUEUED_TYPES


class Dispatch(NamedTuple):
    """A record as the queues and the index see it.

    Attributes:
        tags_code: the third field of its ConsumeQueue entry.
        index_keys: what it is found by, in the order in which brokers enter it.
        is_queued: whether it gets a ConsumeQueue entry.
        base_offset: number of its first message in a BatchConsumeQueue.
        message_count: how many messages it holds there.
        is_inner_batch: whether only a topic with BatchConsumeQueues can have such a record.
        light_queues: further queues that it is in, and its number in each.
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
    """A DELAY property as Java's Integer.parseInt reads it; None where there is none, or no number."""
    return parse_int32(value)


def _as_long(number: int) -> int:
    """Return the sum of two Java longs as Java has it: only a damaged or forged record has one that is too large."""
    return ((number + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


class Dispatching:
    """Makes dispatches, by a store's options.

    Attributes:
        schedule_topic: where delayed messages wait.
    """

    def __init__(self, options: StoreOptions) -> None:
        self._delay_levels_ms = options.delay_levels_ms
        self._index_tags = options.index_tags
        self._has_index = options.has_index
        self._tags_code = lru_cache(maxsize=4096)(options.dialect.tags_code)
        self.schedule_topic = options.dialect.schedule_topic

    def of_message(self, message: Message) -> Dispatch:
        """The dispatch of a record that was read."""
        properties = message.properties
        base, count = queue_numbers(properties, message.queue_offset)
        return Dispatch(
            message.topic,
            message.queue_id,
            message.queue_offset,
            message.physical_offset,
            message.size,
            message.store_timestamp,
            self.code_for(message.topic, properties, message.store_timestamp),
            self.keys_for(properties, message.sys_flag),
            is_queued(message.sys_flag),
            base,
            count,
            bool(message.sys_flag & INNER_BATCH) and INNER_BASE in properties,
            light_queue_entries(message.topic, properties) if MULTI_QUEUE_OFFSET in properties else (),
        )

    def code_for(self, topic: str, properties: Mapping[str, str], store_timestamp: int) -> int:
        """The code of a ConsumeQueue entry: the hash of TAGS, or the time of delivery in the schedule topic."""
        delay_ms = self.delay_for(properties) if topic == self.schedule_topic else None
        return self.tags_code_for(properties) if delay_ms is None else _as_long(store_timestamp + delay_ms)

    def delay_for(self, properties: Mapping[str, str]) -> int | None:
        """How long a record in the schedule topic waits, ms; None where its DELAY is none."""
        level = parse_delay_level(properties.get(props.DELAY))
        return self.delay_ms(level) if level is not None and level > 0 else None

    def tags_code_for(self, properties: Mapping[str, str]) -> int:
        """The hash of TAGS, 0 where there are none."""
        tags = properties.get(props.TAGS)
        return self._tags_code(tags) if tags else 0

    def delay_ms(self, level: int) -> int:
        """The delay of a level above 0; levels above the highest count as the highest."""
        return self._delay_levels_ms[min(level, len(self._delay_levels_ms)) - 1]

    def keys_for(self, properties: Mapping[str, str], sys_flag: int) -> tuple[str, ...]:
        """What a record is entered under: UNIQ_KEY, every part of KEYS, TAGS; nothing if it was rolled back."""
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
