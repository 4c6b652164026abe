"""Interfaces of a store and its deliveries that request handlers use, independent of the store's layout.

    BrokerStore   messages, queues, topics, groups and offsets
    Deliveries    delays, retries and transactions: messages that are not delivered at once

RocketMQ's layout is `broker_lite.stores.rocketmq.MessageStore` with `broker_lite.delivery.Delivery`; JMQ's is
`broker_lite.stores.jmq_adapter.JmqStore`, which implements both. Messages and records have RocketMQ's form here,
because RocketMQ's clients are served: a store in another layout converts its own. An operation that a layout cannot do
raises `UnsupportedError`, whose text the client receives as the remark of REQUEST_CODE_NOT_SUPPORTED. Replication works
with RocketMQ's log only, and is not part of these interfaces: see `broker_lite.replication`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Generator, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from commitlake.broker_lite.stores.engine.queue_reader import PullLimits, PullResult
from commitlake.broker_lite.stores.rocketmq import PutResult
from commitlake.broker_lite.stores.rocketmq.config_files import DelayOffsets, Groups, Topics
from commitlake.broker_lite.stores.rocketmq.message_preparation import SentMessage
from commitlake.broker_lite.stores.rocketmq.message_reader import DEFAULT_KEY_LIMIT, MAX_TIME_MS
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.rocketmq.consumequeue import ConsumeQueueEntry
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.timers import TimerCheckpoint


class OffsetTable(Protocol):
    """Interface of the stored offsets of consumer groups."""

    @property
    def entries(self) -> Mapping[Any, Any]:
        """Next queue offsets to consume, as a mapping by `topic@group` and then by queue id."""

    @property
    def count(self) -> int:
        """Number of stored offsets."""

    def get(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return the queue offset of the next message for the group, or None if it has no offset."""

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set a group's offset in a queue, whether or not it has consumed the messages before it."""

    def acknowledge(self, topic: str, group: str, queue_id: int, offset: int, client: Host) -> None:
        """Set a group's offset in a queue after a consumer has finished all messages before it, successfully or not."""

    def mark_delivered(self, topic: str, group: str, queue_id: int, offset: int, end_offset: int) -> None:
        """Record that a consumer of a group has received the messages of a queue from `offset` to `end_offset` - 1."""

    def remove_if(self, is_deleted: Callable[[str, str], bool]) -> None:
        """Remove the offsets whose topic or group was deleted."""


class BrokerTables(Protocol):
    """Interface of the tables that a store keeps beside messages: topics, consumer groups and offsets."""

    @property
    def topics(self) -> Topics:
        """Topics with their numbers of queues."""

    @property
    def groups(self) -> Groups:
        """Consumer groups with their settings."""

    @property
    def consumer_offsets(self) -> OffsetTable:
        """Consumer offsets of all groups."""

    @property
    def delay_offsets(self) -> DelayOffsets:
        """Offsets of the messages to deliver next, by delay level."""


class StoreSettings(Protocol):
    """Interface of a store's settings, as far as other modules use them."""

    @property
    def max_message_size_bytes(self) -> int:
        """Maximum size of a body, and of all bodies of a batch together."""

    @property
    def settings(self) -> dict[str, object]:
        """All settings, under RocketMQ's names where those exist."""


class BrokerStore(Protocol):
    """Interface of an open store, used by the broker's thread; other threads only flush it."""

    path: Path
    clock: Callable[[], int]

    def __enter__(self) -> Self:
        """Return the store itself."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""

    @property
    def options(self) -> StoreSettings:
        """Settings of the store, such as its maximum message size."""

    @property
    def config(self) -> BrokerTables:
        """Topics, groups and offsets."""

    @property
    def max_queues(self) -> int:
        """Maximum number of queues that a topic may have."""

    @property
    def has_batch_queues(self) -> bool:
        """True if a topic may have `queue.type=BatchCQ`."""

    @property
    def timer_checkpoint(self) -> TimerCheckpoint | None:
        """Checkpoint of the timers; None in a layout without timers."""

    def send(self, message: SentMessage) -> PutResult:
        """Store a message for immediate consumption, without waiting for the disk."""

    def send_batch(self, messages: Sequence[SentMessage]) -> list[PutResult]:
        """Store all messages of a batch in one queue, or none of them."""

    def pull(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        limits: PullLimits,
        tag_codes: Container[int] | None = None,
        accepts_record: Callable[[bytes], bool] | None = None,
    ) -> PullResult:
        """Return records of a queue that match a filter, starting at a queue offset."""

    def take_queues_with_new_messages(self) -> set[tuple[str, int]]:
        """Return the (topic, queue id) pairs that received messages since the last call."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of a queue's first message; 0 for an unknown queue."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset after a queue's last message; 0 for an unknown queue."""

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored at or after a time; the queue's end if there is none."""

    def entry_at(self, topic: str, queue_id: int, queue_offset: int) -> ConsumeQueueEntry | None:
        """Return the queue entry of a message, or None if the queue has none at that offset."""

    def get_at(self, physical_offset: int) -> Message | None:
        """Return the message whose record begins at a physical offset, or None."""

    def get_by_id(self, msg_id: str) -> Message | None:
        """Return the message with an offset message id, or None if this store does not have it.

        Raises:
            LayoutError: if the text is not an offset message id.
        """

    def get_by_key(
        self, topic: str, key: str, begin_ms: int = 0, end_ms: int = MAX_TIME_MS, limit: int = DEFAULT_KEY_LIMIT
    ) -> list[Message]:
        """Return the newest messages with a key that were stored in a time range, in the order of the log.

        Raises:
            IndexDisabledError: if the store keeps no index.
            UnsupportedError: if the layout has no index.
        """

    def get_by_key_in_steps(
        self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int, limit_bytes: int
    ) -> Generator[None, None, list[Message]]:
        """Find the newest messages with a key in small steps, and read at most `limit_bytes` of records."""

    def timestamp_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time of a message, or -1 if there is no message at that offset."""

    def record_for_client(self, message: Message) -> bytes:
        """Return the bytes of a message's record in the form that clients expect."""

    def tag_codes_in_queue_entries(
        self, tags: Collection[str], client_tag_codes: Collection[int]
    ) -> frozenset[int] | None:
        """Return tag hashes in the form used in queue entries; None if entries do not suffice to filter by tag.

        Args:
            tags: tags that a consumer subscribes to.
            client_tag_codes: hashes of these tags that the consumer sent, computed as in Java.
        """

    @property
    def min_physical_offset(self) -> int:
        """Physical offset of the first byte of the log."""

    @property
    def max_physical_offset(self) -> int:
        """Physical offset of the end of the log's last record."""

    @property
    def log_end(self) -> int:
        """Physical offset after the log's last record, without waiting for a lock."""

    def sync_log(self) -> int:
        """Flush the log to disk, and return the physical offset up to which it is flushed."""

    def delete_queues(self, topic: str) -> None:
        """Remove the queues of a topic, as far as the layout allows."""

    def delete_expired_files(self, now_seconds: float) -> int:
        """Delete expired files, and return the number of log files deleted."""

    @property
    def is_disk_full(self) -> bool:
        """True if the disk is too full for more messages."""


class Deliveries(Protocol):
    """Interface for messages that are delivered later or again: delays, retries and transactions."""

    @property
    def delay_level_count(self) -> int:
        """Number of delay levels; 0 in a layout without delayed messages."""

    @property
    def schedule_topic(self) -> str:
        """Topic that holds messages with a delay level; empty in a layout without delayed messages."""

    def accept_message(self, message: SentMessage) -> PutResult:
        """Store a producer's message, which may be delayed or part of a transaction.

        Raises:
            UnsupportedError: if the layout cannot store such a message.
        """

    def send_back(
        self,
        group: str,
        physical_offset: int,
        *,
        delay_level: int = 0,
        max_reconsume_times: int | None = None,
        client: Host | None = None,
    ) -> object | None:
        """Store a message again that a consumer failed to consume; return None if it is not stored again.

        Raises:
            SendBackError: if no message begins at the offset.
        """

    def next_due_ms(self) -> int | None:
        """Return the time at which the next delayed message is due, or None if no message is delayed."""

    def deliver_due(self, now_ms: int, limit: int | None = None) -> Sized:
        """Deliver due messages under their real topics, and return an object whose length is their number."""

    def find_half_message(self, physical_offset: int) -> Message | None:
        """Return the half message at a physical offset, or None.

        Raises:
            UnsupportedError: if the layout has no transactions.
        """

    def commit(self, producer_group: str, half_offset: int) -> object:
        """Commit a half message: deliver its message to consumers."""

    def rollback(self, producer_group: str, half_offset: int) -> None:
        """Roll back a half message."""

    def take_due_half_messages(self, now_ms: int, timeout_ms: int, max_checks: int) -> Iterator[Message | None]:
        """Yield the undecided half messages whose producers must be asked now, and None for each other one examined."""
