"""What the handlers ask of a broker's store, whichever layout its files have.

    BrokerStore   messages, queues, topics, groups and offsets
    Deliveries    what becomes of messages that do not go straight to their consumers: delays, retries, transactions

RocketMQ's layout is `broker_lite.stores.rocketmq.MessageStore` with `broker_lite.delivery.Delivery`; JMQ's is
`broker_lite.stores.jmq_adapter.JmqStore`, which is both. Messages and records are RocketMQ's here, because its clients
are served: a store in another layout makes them of its own. What a layout has no place for raises `UnsupportedError`,
whose text the client gets as the remark of REQUEST_CODE_NOT_SUPPORTED. A slave's copy of a log is RocketMQ's alone, and
is no part of this: see `broker_lite.replication`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Generator, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from commitlake.broker_lite.stores.engine.pulling import PullLimits, PullResult
from commitlake.broker_lite.stores.rocketmq import PutResult
from commitlake.broker_lite.stores.rocketmq.config_files import DelayOffsets, Groups, Topics
from commitlake.broker_lite.stores.rocketmq.prepared import SentMessage
from commitlake.broker_lite.stores.rocketmq.reading import DEFAULT_KEY_LIMIT, MAX_TIME_MS
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.rocketmq.consumequeue import Entry
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.timer_checkpoint import TimerCheckpoint


class Offsets(Protocol):
    """How far every group is."""

    @property
    def entries(self) -> Mapping[Any, Any]:
        """By `topic@group`, the next message of each queue."""

    @property
    def count(self) -> int:
        """How many offsets there are."""

    def get(self, topic: str, group: str, queue_id: int) -> int | None:
        """The next message that the group consumes; None where it has not begun."""

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Let the group go on at an offset, whatever it has consumed."""

    def acknowledge(self, topic: str, group: str, queue_id: int, offset: int, client: Host) -> None:
        """Note that a member of the group has consumed everything before an offset, or has failed on it."""

    def hand_out(self, topic: str, group: str, queue_id: int, offset: int, following: int) -> None:
        """Note that a member of the group is given the messages from an offset to before another."""

    def remove(self, is_gone: Callable[[str, str], bool]) -> None:
        """Forget the offsets of topics and groups that are gone."""


class Config(Protocol):
    """Tables that a store keeps beside its messages."""

    @property
    def topics(self) -> Topics:
        """Topics, with the number of their queues."""

    @property
    def groups(self) -> Groups:
        """Consumer groups."""

    @property
    def consumer_offsets(self) -> Offsets:
        """How far every group is."""

    @property
    def delay_offsets(self) -> DelayOffsets:
        """How far every delay level is."""


class StoreSettings(Protocol):
    """What of a store's options others must know."""

    @property
    def max_message_size_bytes(self) -> int:
        """Limit of a body, and of all bodies of a batch together."""

    @property
    def settings(self) -> dict[str, object]:
        """All options, under RocketMQ's names where it has them."""


class BrokerStore(Protocol):
    """An open store; the broker's thread uses it, and others that flush it."""

    path: Path
    clock: Callable[[], int]

    def __enter__(self) -> Self:
        """The store itself."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""

    @property
    def options(self) -> StoreSettings:
        """Its settings."""

    @property
    def config(self) -> Config:
        """Topics, groups and offsets."""

    @property
    def max_queues(self) -> int:
        """How many queues a topic may have."""

    @property
    def has_batch_queues(self) -> bool:
        """Whether a topic may have `queue.type=BatchCQ`."""

    @property
    def timer_checkpoint(self) -> TimerCheckpoint | None:
        """How far the timers are; None in a layout that has none."""

    def send(self, message: SentMessage) -> PutResult:
        """Store a producer's message that is to be consumed at once; does not wait for the disk."""

    def send_batch(self, messages: Sequence[SentMessage]) -> list[PutResult]:
        """Store messages of one queue together, or none of them."""

    def pull(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        limits: PullLimits,
        codes: Container[int] | None = None,
        accepts_record: Callable[[bytes], bool] | None = None,
    ) -> PullResult:
        """Records of a queue from a queue offset on that pass a filter."""

    def take_arrived(self) -> set[tuple[str, int]]:
        """Topic and number of the queues that got messages since the last call."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset of a queue's first message; 0 for an unknown queue."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset of a queue's next message; 0 for an unknown queue."""

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Queue offset of the first message stored at or after a time; the queue's end where there is none."""

    def entry_at(self, topic: str, queue_id: int, queue_offset: int) -> Entry | None:
        """Where a message of a queue stands in the log; None where there is none."""

    def get_at(self, physical_offset: int) -> Message | None:
        """The message whose record begins at an offset of the log; None where none does."""

    def get_by_id(self, msg_id: str) -> Message | None:
        """The message with an offset message id; None where this store has none.

        Raises:
            LayoutError: if the text is no such id.
        """

    def get_by_key(
        self, topic: str, key: str, begin_ms: int = 0, end_ms: int = MAX_TIME_MS, limit: int = DEFAULT_KEY_LIMIT
    ) -> list[Message]:
        """The newest messages with a key, in the order of the log.

        Raises:
            IndexDisabledError: if the store keeps no index.
            UnsupportedError: if its layout has none.
        """

    def find_by_key(
        self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int, limit_bytes: int
    ) -> Generator[None, None, list[Message]]:
        """Do the same in small steps; what is found ends with `limit_bytes` of records, too."""

    def timestamp_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """When a message of a queue was stored; -1 where there is none."""

    def record_of(self, message: Message) -> bytes:
        """The bytes of a message that was found, as clients get it."""

    def queue_codes(self, tags: Collection[str], codes: Collection[int]) -> frozenset[int] | None:
        """The hashes by which the queues know tags; None where all messages are to be taken.

        Args:
            tags: a consumer's.
            codes: the hashes of them that it has sent, which are Java's.
        """

    @property
    def min_physical_offset(self) -> int:
        """Offset of the first byte that the log has."""

    @property
    def max_physical_offset(self) -> int:
        """Offset behind the log's last record."""

    @property
    def log_end(self) -> int:
        """The same, without waiting for anybody."""

    def sync_log(self) -> int:
        """Put the log on the disk; gives the offset up to which it is there."""

    def delete_queues(self, topic: str) -> None:
        """Forget the queues of a topic, as far as the layout can."""

    def clean(self, now_seconds: float) -> int:
        """Delete the files that may go; tells how many of the log went."""

    @property
    def is_disk_full(self) -> bool:
        """Whether the disk is too full for more messages."""


class Deliveries(Protocol):
    """What a broker does with messages beside storing them."""

    @property
    def delay_levels(self) -> int:
        """How many delay levels there are; 0 in a layout whose messages cannot wait."""

    @property
    def schedule_topic(self) -> str:
        """Where messages with a delay level wait; empty in such a layout."""

    def take(self, message: SentMessage) -> PutResult:
        """Take a producer's message, which may be one that waits or is decided later.

        Raises:
            UnsupportedError: if the layout has no such messages.
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
        """Take back a message that a consumer has failed on; None where its failure is dropped.

        Raises:
            SendBackError: if there is no such message.
        """

    def next_due_ms(self) -> int | None:
        """When the next message that waits is due; None where none waits."""

    def deliver_due(self, now_ms: int, limit: int | None = None) -> Sized:
        """Let consumers have the messages whose time has come; gives as many things as that were."""

    def find_half(self, physical_offset: int) -> Message | None:
        """The half message at an offset of the log, if there is one.

        Raises:
            UnsupportedError: if the layout has no transactions.
        """

    def commit(self, producer_group: str, half_offset: int) -> object:
        """Let consumers see the message of a half."""

    def rollback(self, producer_group: str, half_offset: int) -> None:
        """Drop a half."""

    def take_due_halves(self, now_ms: int, timeout_ms: int, checks_max: int) -> Iterator[Message | None]:
        """The halves whose producers are to be asked now, and None for others that were looked at."""
