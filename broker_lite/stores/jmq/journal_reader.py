"""Queries for messages of a store in JMQ's layout: by queue and offset, by time, by id.

Queues point to records; every record is verified before it is returned (magic, own offset, lengths, CRC).
"""

from __future__ import annotations

from collections.abc import Callable

from commitlake.broker_lite.errors import StoreFilesError
from commitlake.broker_lite.stores.engine.queue_reader import (
    MAX_EXAMINED,
    GetResult,
    GetStatus,
    PullLimits,
    PullResult,
    QueueReader,
    locate_offset,
)
from commitlake.broker_lite.stores.jmq.journal_files import JournalFiles
from commitlake.broker_lite.stores.jmq.queues import JournalQueue
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.jmq.journal import JournalMessage
from commitlake.schemas.layouts.jmq.queue_file import JmqQueueEntry, parse_message_id
from commitlake.schemas.remoting.sql92 import PausedError

Form = Callable[[JournalMessage], bytes | None]
"""Function that converts a message to the form in which it is delivered; None for an unwanted message.

The pull is cut at a message for which it raises PausedError.
"""


class JournalReader(QueueReader[JournalMessage, JournalQueue]):
    """Reader of a store in JMQ's layout; the caller holds the store's lock."""

    def __init__(self, files: JournalFiles, broker_name: str) -> None:
        super().__init__(files.journal, files.queues)
        self._journal = files.journal
        self._broker = broker_name

    def get(self, topic: str, queue_id: int, queue_offset: int, max_messages: int) -> GetResult[JournalMessage]:
        """Return at most `max_messages` messages of a queue from a queue offset on."""
        queue = self._queues.find(topic, queue_id)
        where = locate_offset(queue, self._journal.start, queue_offset)
        if queue is None or where.status is not GetStatus.FOUND:
            return GetResult(where.status, [], *where[1:])
        following = min(where.max_offset, queue_offset + max(0, max_messages))
        messages = []
        for number in range(queue_offset, following):
            entry = queue.entry(number)
            try:
                if not entry.is_lost:
                    messages.append(self._journal.parse_at(entry.journal_offset))
            except LayoutError as error:
                raise StoreFilesError(
                    f"the message with queue offset {number} of {topic}/{queue_id}: {error}"
                ) from error
        status = GetStatus.FOUND if messages else GetStatus.NO_MATCHED_MESSAGE
        return GetResult(status, messages, following, where.min_offset, where.max_offset)

    def pull(
        self, topic: str, queue_id: int, queue_offset: int, limits: PullLimits, convert_to_record: Form
    ) -> PullResult:
        """Return messages of a queue from a queue offset on, in the form in which they are delivered to clients."""
        queue = self._queues.find(topic, queue_id)
        where = locate_offset(queue, self._journal.start, queue_offset)
        if queue is None or where.status is not GetStatus.FOUND:
            return PullResult(where.status, [], *where[1:])
        records: list[bytes] = []
        size = 0
        number = queue_offset
        is_cut = False
        for number in range(queue_offset, min(where.max_offset, queue_offset + max(MAX_EXAMINED, limits.messages))):
            # At least one entry is examined, so that each pull advances.
            if number > queue_offset and limits.is_deadline_passed:
                is_cut = True
                break
            try:
                entry = queue.entry(number)
                if entry.is_lost:
                    continue
                if records and (len(records) >= limits.messages or size + entry.size > limits.bytes):
                    break
                record = convert_to_record(
                    self._message_of(entry, f"the message with queue offset {number} of {topic}/{queue_id}")
                )
            except PausedError:
                is_cut = True
                break
            except StoreFilesError:
                if number > queue_offset:
                    break  # return the messages before it
                raise
            if record is not None:
                records.append(record)
                size += len(record)
        else:
            # The loop has ended by itself, so its last entry is done, too.
            number += 1
        status = GetStatus.FOUND if records else GetStatus.NO_MATCHED_MESSAGE
        return PullResult(status, records, number, where.min_offset, where.max_offset, is_cut)

    def _message_of(self, entry: JmqQueueEntry, entry_name: str) -> JournalMessage:
        try:
            message = self._journal.parse_at(entry.journal_offset)
        except LayoutError as error:
            raise StoreFilesError(f"{entry_name}: {error}") from error
        if message.size != entry.size:
            raise StoreFilesError(f"{entry_name}: expected a record of {entry.size} bytes, found {message.size}")
        return message

    def entries(self, topic: str, queue_id: int, offset_range: range) -> list[tuple[int, JmqQueueEntry]]:
        """Return (queue offset, entry) pairs of a queue in a range of offsets, without entries of lost messages."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return []
        there = range(max(offset_range.start, queue.first_queue_offset), min(offset_range.stop, queue.max_offset))
        return [(number, entry) for number in there if not (entry := queue.entry(number)).is_lost]

    def read_journal(self, journal_offset: int, max_messages: int) -> tuple[list[JournalMessage], int]:
        """Return messages that are flushed to disk, from a journal offset on, and the offset to continue at."""
        end = self._journal.files.synced
        messages: list[JournalMessage] = []
        position = max(journal_offset, self._journal.start)
        while position < end and len(messages) < max_messages:
            try:
                message = self._journal.next_message(position, end)
            except LayoutError:
                break
            following = message.journal_offset + message.size
            if following > end:
                break
            messages.append(message)
            position = following
        return messages, position

    def message_by_id(self, message_id: str) -> JournalMessage | None:
        """Return the message with an id; None if the id names another broker, or no message of the journal."""
        place = parse_message_id(message_id)
        if place.broker != self._broker or place.queue_offset not in self.queue_offset_range(
            place.topic, place.queue_id
        ):
            return None
        found = self.get(place.topic, place.queue_id, place.queue_offset, 1).messages
        return found[0] if found else None
