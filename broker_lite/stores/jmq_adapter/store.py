"""Store in JMQ's layout for RocketMQ's clients.

    with JmqStore.open(folder, JournalOptions()) as store:
        run_server(store, ServerOptions(...))

Topics are those of the journal, and every group's retries and dead letters (see `failed_messages`). Features that
JMQ's layout lacks raise `UnsupportedError`: transactions, delays and timers, queries by key, slaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Never, Self

from commitlake.broker_lite.delivery.timer_messages import has_delivery_time
from commitlake.broker_lite.errors import UnsupportedError
from commitlake.broker_lite.stores.engine.open_store import system_clock
from commitlake.broker_lite.stores.jmq import JournalOptions, JournalPutResult, JournalStore, RetryStatus
from commitlake.broker_lite.stores.jmq.options import MAX_QUEUES
from commitlake.broker_lite.stores.jmq.retry_queues import RetryQueue, retry_queue_of, topic_of_retry_queue
from commitlake.broker_lite.stores.jmq_adapter import message_conversion
from commitlake.broker_lite.stores.jmq_adapter.failed_messages import FailedMessages
from commitlake.broker_lite.stores.jmq_adapter.queries import JmqQueries
from commitlake.broker_lite.stores.jmq_adapter.topics_and_offsets import (
    RECORDS_PER_ANSWER,
    ConsumedOffsets,
    JmqConfig,
    TopicsAndGroups,
)
from commitlake.broker_lite.stores.rocketmq import PutResult
from commitlake.broker_lite.stores.rocketmq.dispatch import parse_delay_level
from commitlake.broker_lite.stores.rocketmq.message_preparation import SentMessage
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.hosts import Host

_NOBODY = Host.of("0.0.0.0", 0)  # noqa: S104 (an unknown client)


class JmqStore(JmqQueries):
    """Store in JMQ's layout that serves RocketMQ's requests, with retries, topics, groups and offsets.

    Attributes:
        path: folder of the store.
        clock: returns the receive and store time of messages, ms.
        config: topics, groups and offsets.
    """

    def __init__(self, journal: JournalStore, registry: TopicsAndGroups, marks: Mapping[str, str]) -> None:
        """Combine an open journal and its tables; use `open` instead."""
        self._marks = marks
        self.path = journal.path
        self.clock = journal.clock
        self._journal = journal
        self._registry = registry
        self._failures = FailedMessages(journal)
        self._offsets_of_groups = ConsumedOffsets(journal, self._failures)
        self.config = JmqConfig(journal.path, journal.clock, registry, self._offsets_of_groups)
        self._is_closed = False
        # Queues in the journal may be missing in the tables, which are saved less often.
        for topic, queue_id in journal.queues:
            self.config.topics.ensure_queue(topic, queue_id)
        for queue in self._failures.queues.all_queues():
            self.config.topics.ensure_queue(topic_of_retry_queue(queue))

    @classmethod
    def open(
        cls,
        path: str | Path,
        options: JournalOptions | None = None,
        *,
        clock: Callable[[], int] = system_clock,
        added_properties: Mapping[str, str] = MappingProxyType({}),
    ) -> JmqStore:
        """Open a folder, create it if necessary, and recover its content.

        Args:
            path: folder of the store.
            options: settings; file sizes must be those of the existing files.
            clock: returns ms since 1970.
            added_properties: properties that a RocketMQ broker adds to messages, and that a journal does not store.
                Consumers that reply to a request read the cluster there, and send traces only of messages with a
                region.

        Raises:
            StoreLockedError: if another store has the folder open.
            StoreFilesError: if its files do not fit the options or one another.
            StoreError: if a file of topics, groups or positions and its `.bak` are invalid.
        """
        options = options or JournalOptions()
        registry = TopicsAndGroups(Path(path), clock, options)
        journal = JournalStore.open(
            path,
            options,
            clock=clock,
            queue_count_of=registry.queue_count_of,
            save_other_files=registry.save_if_changed,
        )
        try:
            return cls(journal, registry, added_properties)
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
        """Flush everything to disk and release the folder."""
        if self._is_closed:
            return
        self._is_closed = True
        # Files are closed even if the disk has no room for the last records.
        try:
            self._offsets_of_groups.write_consume_records()
            self._registry.save_if_changed()
        finally:
            self._failures.close()
            self._journal.close()

    @property
    def journal(self) -> JournalStore:
        """Journal of the store, for an archive."""
        return self._journal

    @property
    def options(self) -> JournalOptions:
        """Settings of the store."""
        return self._journal.options

    @property
    def has_batch_queues(self) -> bool:
        """False, because a queue entry in this layout is for one message."""
        return False

    @property
    def timer_checkpoint(self) -> None:
        """None, because this layout has no timers."""
        return None

    @property
    def max_queues(self) -> int:
        """Maximum number of queues of a topic: a record has one byte for the queue id."""
        return MAX_QUEUES

    def send(self, message: SentMessage) -> PutResult:
        """Store a producer's message; an ordered one always goes to the queue of its business id.

        Raises:
            MessageRefusedError: if a broker would refuse the message; nothing was written.
            UnsupportedError: if it is for a topic of retries or dead letters, or part of a transaction.
            DiskFullError: if the disk has no room for it; nothing was written.
            StoreUnusableError: if the store is closed, or its disk failed.
        """
        return self.send_batch([message])[0]

    def send_batch(self, messages: Sequence[SentMessage]) -> list[PutResult]:
        """Store all messages of a batch in one queue, or none of them."""
        prepared = []
        queue_id: int | None = None
        for message in messages:
            if retry_queue_of(message.topic) is not None:
                raise UnsupportedError(
                    f"{message.topic}: producers may not send to a retry or dead-letter topic; consumers send failed "
                    "messages back instead"
                )
            new = message_conversion.to_journal_message(message)
            # An ordered message determines the queue of the whole batch by its business id.
            if queue_id is None and not new.is_ordered:
                queue_id = message.queue_id
            prepared.append(self._journal.preparing.prepare(new, queue_id))
            queue_id = prepared[0].queue_id
        return [self._to_put_result(result) for result in self._journal.append_batch(prepared)]

    def _to_put_result(self, result: JournalPutResult) -> PutResult:
        return PutResult(
            result.journal_offset,
            result.size,
            result.queue_offset,
            result.store_timestamp,
            self._journal.options.server_address,
            result.queue_id,
        )

    @property
    def delay_level_count(self) -> int:
        """Number of delay levels, which is always 0."""
        return 0

    @property
    def schedule_topic(self) -> str:
        """Topic of delayed messages, which is always empty."""
        return ""

    def accept_message(self, message: SentMessage) -> PutResult:
        """Store a producer's message; refuse one that is delayed or part of a transaction.

        Raises:
            UnsupportedError: if the message is delayed or part of a transaction.
        """
        known = dict(message.properties)
        if known.get(props.TRAN_MSG, "").lower() == "true":
            raise UnsupportedError(message_conversion.NO_TRANSACTIONS)
        if (parse_delay_level(known.get(props.DELAY)) or 0) > 0 or has_delivery_time(known):
            raise UnsupportedError("a JMQ journal does not support delays: send the message without a delay")
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
        """Schedule a retry, in 3^n seconds, of a message that a consumer failed to consume, or make it a dead letter.

        Args:
            group: group of the consumer.
            physical_offset: journal offset of the message's record.
            delay_level: negative for a dead letter at once; JMQ has no other levels.
            max_reconsume_times: maximum number of retries; None for the group's setting. The store's own limits also
                apply.

        Raises:
            SendBackError: if there is no message at the offset.
        """
        limit = (
            self.config.groups.find_or_create(group).retry_max_times
            if max_reconsume_times is None
            else max_reconsume_times
        )
        most = 0 if delay_level < 0 else limit
        status = self._failures.send_back(group, physical_offset, most, client or _NOBODY)
        if status is RetryStatus.DEAD:
            self.config.topics.ensure_queue(topic_of_retry_queue(RetryQueue(group, status)))
        return status

    def next_due_ms(self) -> int | None:
        """Return the time at which the next retry is due or other work must be done, or None."""
        # `deliver_due` also writes the consume records, so it is due at once.
        return 0 if self._offsets_of_groups.has_unrecorded_consumptions else self._failures.queues.next_due_ms()

    def deliver_due(self, now_ms: int, limit: int | None = None) -> range:
        """Make due retries available and write consume records; the result's length is the number of retries."""
        limit = RECORDS_PER_ANSWER if limit is None else limit
        self._offsets_of_groups.write_consume_records(limit)
        return range(self._failures.enqueue_due_retries(now_ms, limit))

    def find_half_message(self, physical_offset: int) -> Never:  # noqa: ARG002
        """Raise an error, because a journal has no transactions.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(message_conversion.NO_TRANSACTIONS)

    def commit(self, producer_group: str, half_offset: int) -> Never:  # noqa: ARG002
        """Raise an error, because a journal has no transactions."""
        raise UnsupportedError(message_conversion.NO_TRANSACTIONS)

    def rollback(self, producer_group: str, half_offset: int) -> Never:  # noqa: ARG002
        """Raise an error, because a journal has no transactions."""
        raise UnsupportedError(message_conversion.NO_TRANSACTIONS)

    def take_due_half_messages(self, now_ms: int, timeout_ms: int, max_checks: int) -> Iterator[None]:  # noqa: ARG002
        """Return an empty iterator, because a journal has no half messages."""
        return iter(())

    def take_queues_with_new_messages(self) -> set[tuple[str, int]]:
        """Return the (topic, queue id) pairs that received messages since the last call."""
        arrived = self._journal.take_queues_with_new_messages()
        # One by one, as the journal's, because another thread may add to the set meanwhile.
        return arrived | {self._failures.arrived.pop() for _ in range(len(self._failures.arrived))}

    def sync_log(self) -> int:
        """Flush the journal to disk, and return the offset up to which it is flushed.

        Raises:
            StoreUnusableError: if the disk failed.
        """
        return self._journal.sync_log()

    def delete_queues(self, topic: str) -> None:
        """Delete the messages of a retry or dead-letter topic; queues of other topics stay.

        A queue of the journal stays: a rebuilt queue contains all of the topic's messages in the journal, so a topic
        that is created again continues after them.
        """
        self._failures.delete_topic_messages(topic)

    def delete_expired_files(self, now_seconds: float) -> int:
        """Delete expired files, and return the number of journal files deleted."""
        count = self._journal.delete_expired_files(now_seconds)
        # Retries point into the journal, so they only expire with its files.
        if count:
            self._failures.delete_expired_retries()
        return count

    @property
    def is_disk_full(self) -> bool:
        """True if the disk is too full for more messages."""
        return self._journal.is_disk_full
