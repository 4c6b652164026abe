"""Writer of a store: it appends to the journal and the queue under one lock.

A message gets its queue offset and its position in the journal at the same moment, so the order of the journal is the
order of every queue. Everything that can be refused is refused before anything is written, including a full disk. A
later failure, such as a disk error, makes the store unusable until it is opened again, because only recovery can make
journal and queues consistent again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from commitlake.broker_lite.errors import MessageRefusedError
from commitlake.broker_lite.stores.engine.log_writer import LogProgress, LogWriter
from commitlake.broker_lite.stores.jmq.journal_files import JournalFiles
from commitlake.broker_lite.stores.jmq.message_preparation import PreparedMessage
from commitlake.broker_lite.stores.jmq.options import JournalOptions
from commitlake.schemas.layouts.jmq.queue_file import ENTRY, MessageIdParts, serialize_message_id


class JournalPutResult(NamedTuple):
    """Position of a stored message in its queue and in the journal.

    Attributes:
        journal_offset: journal offset of its record.
        size: size of its record.
        queue_offset: queue offset.
        store_timestamp: store time, ms.
    """

    topic: str
    queue_id: int
    queue_offset: int
    journal_offset: int
    size: int
    store_timestamp: int
    broker: str

    @property
    def message_id(self) -> str:
        """Id of the message."""
        return serialize_message_id(MessageIdParts(self.topic, self.queue_id, self.queue_offset, self.broker))


class JournalWriter(LogWriter):
    """Writer of messages to a store in JMQ's layout."""

    def __init__(
        self, options: JournalOptions, clock: Callable[[], int], files: JournalFiles, last: LogProgress
    ) -> None:
        super().__init__(last)
        self._broker = options.broker_name
        self._clock = clock
        self._journal = files.journal
        self._queues = files.queues

    def append(self, messages: Sequence[PreparedMessage]) -> list[JournalPutResult]:
        """Append prepared messages of one queue, all or none.

        Raises:
            MessageRefusedError: if there are none, if they are for several queues, or too large together for a file.
            DiskFullError: if the disk is full; nothing was written.
            StoreUnusableError: if the store is closed, or a write failed before.
        """
        places = {(message.topic, message.queue_id) for message in messages}
        if len(places) != 1:
            raise MessageRefusedError(f"batch: expected messages of one queue, found messages of {sorted(places)}")
        (place,) = places
        with self.lock:
            self.check_writable()
            results = self._append(messages, *place)
            self.arrived.add(place)
        return results

    def _append(self, messages: Sequence[PreparedMessage], topic: str, queue_id: int) -> list[JournalPutResult]:
        journal, queue = self._journal, self._queues.find_or_create(topic, queue_id)
        store_timestamp = self._clock()
        queue_offset = queue.max_offset
        records = [message.record for message in messages]

        def set_record_offsets(first_offset: int) -> None:
            for number, message in enumerate(messages, queue_offset):
                message.set_offsets(number, first_offset, store_timestamp)
                first_offset += len(message.record)

        set_record_offsets(journal.end)
        journal.check_size(sum(map(len, records)))
        queue.files.create_files_for(len(records) * ENTRY.size)
        offset = first = journal.append(records, set_record_offsets)
        results = []
        try:
            for number, record in enumerate(records, queue_offset):
                size = len(record)
                queue.append(offset, size)
                results.append(JournalPutResult(topic, queue_id, number, offset, size, store_timestamp, self._broker))
                offset += size
        except BaseException as error:
            raise self.mark_unusable(
                error, f"the message at {first} is in the journal, but not in its queue"
            ) from error
        recorded = messages[-1].recorded_timestamp(store_timestamp)
        self.last = LogProgress(journal.end, recorded, results[-1].journal_offset)
        return results
