"""Queries of RocketMQ's clients and administrators for a store in JMQ's layout."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Mapping
from typing import Never

from commitlake.broker_lite.errors import StoreFilesError, UnsupportedError
from commitlake.broker_lite.stores.engine.queue_reader import (
    MAX_EXAMINED,
    GetStatus,
    PullLimits,
    PullResult,
    locate_offset,
)
from commitlake.broker_lite.stores.jmq import JournalStore
from commitlake.broker_lite.stores.jmq.retry_queues import retry_queue_of
from commitlake.broker_lite.stores.jmq_adapter import message_conversion
from commitlake.broker_lite.stores.jmq_adapter.failed_messages import FailedMessages
from commitlake.broker_lite.stores.rocketmq.message_reader import DEFAULT_KEY_LIMIT, MAX_TIME_MS
from commitlake.broker_lite.stores.rocketmq.pulling import matches_tag_code
from commitlake.schemas.layouts.jmq.journal import JournalMessage
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.commitlog import Message, parse_message
from commitlake.schemas.layouts.rocketmq.consumequeue import ConsumeQueueEntry, tags_code
from commitlake.schemas.layouts.rocketmq.message_id import parse_message_id

_logger = logging.getLogger(__name__)


class _Bounds:
    """First and next offset of a retry or dead-letter queue, with which a requested offset is compared."""

    def __init__(self, numbers: range) -> None:
        self._numbers = numbers

    @property
    def max_offset(self) -> int:
        return self._numbers.stop

    def min_offset(self, _: int) -> int:
        return self._numbers.start


class JmqQueries:
    """Read operations of a store in JMQ's layout, for RocketMQ's requests."""

    _journal: JournalStore
    _failures: FailedMessages
    _marks: Mapping[str, str]

    def pull(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        limits: PullLimits,
        tag_codes: Container[int] | None = None,
        accepts_record: Callable[[bytes], bool] | None = None,
    ) -> PullResult:
        """Return records of a queue that match a filter, in RocketMQ's format, starting at a queue offset.

        Args:
            topic: topic of the queue.
            queue_offset: offset of the first record.
            tag_codes: hashes of the wanted tags; None for all tags.
            accepts_record: function that returns whether a record matches; None if all records match.
        """

        def convert_to_record(message: JournalMessage) -> bytes | None:
            known = message_conversion.client_properties(message, self._marks)
            if tag_codes is not None and not matches_tag_code(tags_code(known.get(props.TAGS)), tag_codes):
                return None
            record = message_conversion.record_for_client(message, known)
            return record if accepts_record is None or accepts_record(record) else None

        if retry_queue_of(topic) is not None:
            return self._pull_retries(topic, queue_id, queue_offset, limits)
        for following in range(queue_offset, queue_offset + MAX_EXAMINED):
            try:
                return self._journal.pull(topic, queue_id, following, limits, convert_to_record)
            except StoreFilesError as error:
                # Consumers continue after damaged records, as with RocketMQ's broker.
                _logger.warning("skipped a damaged message: %s", error)
            if limits.is_deadline_passed:
                break
        low, high = self.min_offset(topic, queue_id), self.max_offset(topic, queue_id)
        return PullResult(GetStatus.NO_MATCHED_MESSAGE, [], following + 1, low, high, limits.is_deadline_passed)

    def _pull_retries(self, topic: str, queue_id: int, queue_offset: int, limits: PullLimits) -> PullResult:
        """Return messages of a retry or dead-letter topic; filters are not applied."""
        numbers = self._failures.queue_offset_range(topic, queue_id)
        where = locate_offset(_Bounds(numbers) if queue_id == 0 else None, 0, queue_offset)
        if where.status is not GetStatus.FOUND:
            return PullResult(where.status, [], *where[1:])
        records: list[bytes] = []
        size = 0
        following = numbers.stop
        # One more, whose offset is where the next pull begins.
        for retry in self._failures.get(topic, queue_id, queue_offset, limits.messages + 1):
            record = message_conversion.retry_record_for_client(retry, self._marks)
            if records and (len(records) >= limits.messages or size + len(record) > limits.bytes):
                following = retry.place if retry.place is not None else following
                break
            records.append(record)
            size += len(record)
        status = GetStatus.FOUND if records else GetStatus.NO_MATCHED_MESSAGE
        return PullResult(status, records, following, where.min_offset, where.max_offset)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of a queue's first message; 0 for an unknown queue."""
        return self._queue_offset_range(topic, queue_id).start

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset after a queue's last message; 0 for an unknown queue."""
        return self._queue_offset_range(topic, queue_id).stop

    def _queue_offset_range(self, topic: str, queue_id: int) -> range:
        if retry_queue_of(topic) is not None:
            return self._failures.queue_offset_range(topic, queue_id)
        return self._journal.queue_offset_range(topic, queue_id)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored at or after a time; the queue's end if there is none.

        Retries and dead letters are not ordered by time: all of them count as later.
        """
        if retry_queue_of(topic) is not None:
            return self._queue_offset_range(topic, queue_id).start
        return self._journal.offset_by_time(topic, queue_id, timestamp_ms)

    def entry_at(self, topic: str, queue_id: int, queue_offset: int) -> ConsumeQueueEntry | None:
        """Return a message's position in the journal as a queue entry; None if the offset has no message."""
        if retry_queue_of(topic) is not None:
            found = self._failures.get(topic, queue_id, queue_offset, 1)
            messages = [retry.message for retry in found if retry.place == queue_offset]
        else:
            messages = self._journal.get(topic, queue_id, queue_offset, 1).messages
        for message in messages:
            return ConsumeQueueEntry(
                message.journal_offset, message.size, tags_code(message.properties.get(props.TAGS))
            )
        return None

    def get_at(self, physical_offset: int) -> Message | None:
        """Return the message whose record begins at a journal offset, or None."""
        parsed = parse_message(self._record_at(physical_offset))
        return None if parsed is None else parsed[0]

    def _record_at(self, journal_offset: int) -> bytes:
        found = self._journal.get_at(journal_offset)
        return (
            b""
            if found is None
            else message_conversion.record_for_client(found, message_conversion.client_properties(found, self._marks))
        )

    def get_by_id(self, msg_id: str) -> Message | None:
        """Return the message with an offset message id, or None if this store does not have it.

        Raises:
            LayoutError: if the text is not an offset message id.
        """
        wanted = parse_message_id(msg_id)
        message = self.get_at(wanted.physical_offset)
        return message if message is not None and message.store_host == wanted.store_host else None

    def get_by_key(
        self,
        topic: str,  # noqa: ARG002 (there is no index)
        key: str,  # noqa: ARG002
        begin_ms: int = 0,  # noqa: ARG002
        end_ms: int = MAX_TIME_MS,  # noqa: ARG002
        limit: int = DEFAULT_KEY_LIMIT,  # noqa: ARG002
    ) -> Never:
        """Raise an error, because a journal has no index of keys.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError("a JMQ journal has no index of keys: query the archive for the business id")

    def get_by_key_in_steps(
        self,
        topic: str,
        key: str,
        begin_ms: int,
        end_ms: int,
        limit: int,
        limit_bytes: int,  # noqa: ARG002
    ) -> Never:
        """Raise an error, because a journal has no index of keys."""
        self.get_by_key(topic, key, begin_ms, end_ms, limit)

    def timestamp_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time of a message, or -1 if there is no message at that offset."""
        entry = self.entry_at(topic, queue_id, queue_offset)
        found = None if entry is None else self._journal.get_at(entry.physical_offset)
        return -1 if found is None else found.store_timestamp

    def tag_codes_in_queue_entries(self, tags: Collection[str], client_tag_codes: Collection[int]) -> frozenset[int]:  # noqa: ARG002
        """Return the client's tag hashes unchanged, because `pull` compares them with the hashes of messages' tags."""
        return frozenset(client_tag_codes)

    def record_for_client(self, message: Message) -> bytes:
        """Return the bytes of a message's record in the form that clients expect."""
        return self._record_at(message.physical_offset)

    @property
    def min_physical_offset(self) -> int:
        """Offset of the first byte of the journal."""
        return self._journal.min_journal_offset

    @property
    def max_physical_offset(self) -> int:
        """Journal offset after the last record."""
        return self._journal.max_journal_offset

    @property
    def log_end(self) -> int:
        """Journal offset after the last record, without waiting for a lock."""
        return self._journal.log_end
