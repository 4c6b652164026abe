"""A store in JMQ's layout as RocketMQ's clients see it.

    with JmqStore.open(folder, JournalOptions()) as store:
        run_server(store, ServerOptions(...))

Topics are the journal's, and beside them every group's retries and dead letters (see `retrying`). What RocketMQ's
layout has and JMQ's has not is refused with `UnsupportedError`: transactions, delays and timers, look-ups by key,
slaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Never, Self

from commitlake.broker_lite.delivery.timers import asks_for_timer
from commitlake.broker_lite.stores.engine.errors import UnsupportedError
from commitlake.broker_lite.stores.engine.open_store import system_clock
from commitlake.broker_lite.stores.jmq import JournalOptions, JournalPutResult, JournalStore, RetryStatus
from commitlake.broker_lite.stores.jmq.options import MAX_QUEUES
from commitlake.broker_lite.stores.jmq.retry_queues import RetryQueue, retry_queue_of, topic_of
from commitlake.broker_lite.stores.jmq_adapter import wire
from commitlake.broker_lite.stores.jmq_adapter.config import JmqConfig, Registry
from commitlake.broker_lite.stores.jmq_adapter.consumed import RECORDED_AT_ONCE, ConsumedOffsets
from commitlake.broker_lite.stores.jmq_adapter.lookups import LookUps
from commitlake.broker_lite.stores.jmq_adapter.retrying import Retrying
from commitlake.broker_lite.stores.rocketmq import PutResult
from commitlake.broker_lite.stores.rocketmq.dispatch import parse_delay_level
from commitlake.broker_lite.stores.rocketmq.prepared import SentMessage
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.hosts import Host

_NOBODY = Host.of("0.0.0.0", 0)  # noqa: S104 (nobody listens there)
_NO_TRANSACTIONS = "a journal has no transactions: send the message without one"


class JmqStore(LookUps):
    """An open store: the broker's messages, and what becomes of those that fail.

    Attributes:
        path: its folder.
        clock: gives the receive and store time of messages, ms.
        config: topics, groups and offsets.
    """

    def __init__(self, journal: JournalStore, registry: Registry, cluster: str) -> None:
        """Serve an open journal; use `open`."""
        self._marks = {wire.CLUSTER: cluster} if cluster else {}
        self.path = journal.path
        self.clock = journal.clock
        self._journal = journal
        self._registry = registry
        self._retrying = Retrying(journal)
        self._consumed = ConsumedOffsets(journal, self._retrying)
        self.config = JmqConfig(journal.path, journal.clock, registry, self._consumed)
        self._is_closed = False
        for topic, queue_id in journal.queues:
            self.config.topics.ensure(topic, queue_id)
        for queue in self._retrying.queues.all():
            self.config.topics.ensure(topic_of(queue))

    @classmethod
    def open(
        cls,
        path: str | Path,
        options: JournalOptions | None = None,
        *,
        clock: Callable[[], int] = system_clock,
        cluster: str = "",
    ) -> JmqStore:
        """Open a folder, which is created if it is not there, and recover what is in it.

        Args:
            path: the store's root.
            options: its settings; file sizes must be those of the files that are there.
            clock: gives ms since 1970.
            cluster: the broker's; consumers that answer a request find its name in the message.

        Raises:
            StoreLockedError: if another store has it open.
            StoreFilesError: if its files do not fit the options or one another.
            ConfigFileError: if a file of topics, groups or positions is broken, and its `.bak` too.
        """
        options = options or JournalOptions()
        registry = Registry(Path(path), clock, options)
        journal = JournalStore.open(
            path, options, clock=clock, queue_count_of=registry.queue_count_of, save_beside=registry.save_changed
        )
        try:
            return cls(journal, registry, cluster)
        except BaseException:
            journal.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Put everything on the disk and give the folder back."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._consumed.record()
            self._registry.save_changed()
        finally:
            self._retrying.close()
            self._journal.close()

    @property
    def journal(self) -> JournalStore:
        """The journal itself, for whoever archives it."""
        return self._journal

    @property
    def options(self) -> JournalOptions:
        """Its settings."""
        return self._journal.options

    @property
    def has_batch_queues(self) -> bool:
        """Whether a topic may have `queue.type=BatchCQ`: a queue's entry in this layout is one message's."""
        return False

    @property
    def timer_checkpoint(self) -> None:
        """Nothing: this layout has no timers."""
        return None

    @property
    def max_queues(self) -> int:
        """How many queues a topic may have: a record has one byte for their number."""
        return MAX_QUEUES

    def send(self, message: SentMessage) -> PutResult:
        """Store a producer's message; an ordered one goes to the queue of its business id, whoever else was chosen.

        Raises:
            MessageRefusedError: if a broker would refuse it; nothing was written.
            UnsupportedError: if it is for a topic of retries or dead letters, or part of a transaction.
            DiskFullError: if there is no room for it; nothing was written.
            StoreUnusableError: if the store is closed, or its disk failed.
        """
        return self.send_batch([message])[0]

    def send_batch(self, messages: Sequence[SentMessage]) -> list[PutResult]:
        """Store messages of one queue together, or none of them; see `send`."""
        prepared = []
        queue_id: int | None = None
        for message in messages:
            if retry_queue_of(message.topic) is not None:
                raise UnsupportedError(f"{message.topic}: JMQ keeps failures in its retry store; send messages back")
            new = wire.to_journal(message)
            if queue_id is None and not new.is_ordered:
                queue_id = message.queue_id
            prepared.append(self._journal.preparing.prepare(new, queue_id))
            queue_id = prepared[0].queue_id
        return [self._result(result) for result in self._journal.append_batch(prepared)]

    def _result(self, result: JournalPutResult) -> PutResult:
        return PutResult(
            result.journal_offset,
            result.size,
            result.queue_offset,
            result.store_timestamp,
            self._journal.options.server_address,
            result.queue_id,
        )

    @property
    def delay_levels(self) -> int:
        """How many delay levels there are: none."""
        return 0

    @property
    def schedule_topic(self) -> str:
        """Where messages wait: nowhere."""
        return ""

    def take(self, message: SentMessage) -> PutResult:
        """Take a producer's message that may be one that waits or is decided later; see `send`.

        Raises:
            UnsupportedError: if it is.
        """
        known = dict(message.properties)
        if known.get(props.TRAN_MSG, "").lower() == "true":
            raise UnsupportedError(_NO_TRANSACTIONS)
        if (parse_delay_level(known.get(props.DELAY)) or 0) > 0 or asks_for_timer(known):
            raise UnsupportedError("a journal's messages cannot wait: send the message without a delay")
        return self.send(message)

    def send_back(
        self,
        group: str,
        physical_offset: int,
        *,
        delay_level: int = 0,
        max_reconsume_times: int | None = None,
        client: Host | None = None,
    ) -> RetryStatus | None:
        """Take back a message that a consumer has failed on: it comes again after 3^n seconds, or is dead.

        Args:
            group: the consumer's.
            physical_offset: of the message's record in the journal.
            delay_level: below 0 for a dead letter at once; other levels JMQ does not have.
            max_reconsume_times: how many retries there are at most; else what the group has. The store's own limits
                hold, too.
            client: the consumer.

        Raises:
            SendBackError: if there is no such message.
        """
        limit = self.config.groups.ensure(group).retry_max_times if max_reconsume_times is None else max_reconsume_times
        most = 0 if delay_level < 0 else limit
        status = self._retrying.send_back(group, physical_offset, most, client or _NOBODY)
        if status is RetryStatus.DEAD:
            self.config.topics.ensure(topic_of(RetryQueue(group, status)))
        return status

    def next_due_ms(self) -> int | None:
        """When the next retry is due, or something else is to be done."""
        return 0 if self._consumed.is_behind else self._retrying.queues.next_due_ms()

    def deliver_due(self, now_ms: int, limit: int | None = None) -> range:
        """Let consumers have the retries whose time has come, and record what they have consumed."""
        limit = RECORDED_AT_ONCE if limit is None else limit
        self._consumed.record(limit)
        return range(self._retrying.enter_due(now_ms, limit))

    def find_half(self, physical_offset: int) -> Never:  # noqa: ARG002
        """Refuse to look for a half message.

        Raises:
            UnsupportedError: in any case.
        """
        raise UnsupportedError(_NO_TRANSACTIONS)

    def commit(self, producer_group: str, half_offset: int) -> Never:  # noqa: ARG002
        """Refuse to commit; see `find_half`."""
        raise UnsupportedError(_NO_TRANSACTIONS)

    def rollback(self, producer_group: str, half_offset: int) -> Never:  # noqa: ARG002
        """Refuse to roll back; see `find_half`."""
        raise UnsupportedError(_NO_TRANSACTIONS)

    def take_due_halves(self, now_ms: int, timeout_ms: int, checks_max: int) -> Iterator[None]:  # noqa: ARG002
        """No halves: there are none."""
        return iter(())

    def take_arrived(self) -> set[tuple[str, int]]:
        """Topic and number of the queues that got messages since the last call."""
        arrived = self._journal.take_arrived()
        if self._retrying.arrived:
            arrived |= self._retrying.arrived
            self._retrying.arrived = set()
        return arrived

    def sync_log(self) -> int:
        """Put the journal on the disk; gives the offset up to which it is there.

        Raises:
            StoreUnusableError: if the disk failed.
        """
        return self._journal.sync_log()

    def delete_queues(self, topic: str) -> None:
        """Let retries or dead letters not come again.

        A queue of the journal stays: what is built anew from the journal has all of its messages, so a topic that is
        made again goes on behind them.
        """
        self._retrying.drop(topic)

    def clean(self, now_seconds: float) -> int:
        """Delete the files that may go; tells how many of the journal went."""
        count = self._journal.clean(now_seconds)
        if count:
            self._retrying.forget_expired()
        return count

    @property
    def is_disk_full(self) -> bool:
        """Whether the disk is too full for more messages."""
        return self._journal.is_disk_full
