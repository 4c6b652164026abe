"""Putting messages into a store: one lock, within which the journal and the queue get their parts.

A message has its queue offset and its place in the journal in the same moment, so the journal's order is every queue's
order. What can be refused is refused before anything is written, a full disk too; what fails later (a disk that breaks)
makes the store unusable until it is opened anew, because recovery alone can bring journal and queues together again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from commitlake.broker_lite.stores.engine.errors import MessageRefusedError
from commitlake.broker_lite.stores.engine.log_writer import LogWriter
from commitlake.broker_lite.stores.engine.progress import Progress
from commitlake.broker_lite.stores.jmq.files import JournalFiles
from commitlake.broker_lite.stores.jmq.options import JournalOptions
from commitlake.broker_lite.stores.jmq.prepared import PreparedMessage
from commitlake.schemas.layouts.jmq.message_id import MessagePlace, serialize_message_id
from commitlake.schemas.layouts.jmq.queue import ENTRY


class JournalPutResult(NamedTuple):
    """Where a message was stored.

    Attributes:
        journal_offset: of its record.
        size: of its record.
        queue_offset: its number in its queue.
        store_timestamp: the store's clock, ms.
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
        """The message's id."""
        return serialize_message_id(MessagePlace(self.topic, self.queue_id, self.queue_offset, self.broker))


class JournalWriter(LogWriter):
    """Appends messages."""

    def __init__(self, options: JournalOptions, clock: Callable[[], int], files: JournalFiles, last: Progress) -> None:
        super().__init__(last)
        self._broker = options.broker_name
        self._clock = clock
        self._journal = files.journal
        self._queues = files.queues

    def append(self, messages: Sequence[PreparedMessage]) -> list[JournalPutResult]:
        """Append prepared messages of one queue, together.

        Raises:
            MessageRefusedError: if there is none, if they are of several queues, or too large together for a file.
            DiskFullError: if there is no room; nothing was written.
            StoreUnusableError: if the store was closed, or failed before.
        """
        places = {(message.topic, message.queue_id) for message in messages}
        if len(places) != 1:
            raise MessageRefusedError(f"batch: expected messages of one queue, found {sorted(places)}")
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

        def place(offset: int) -> None:
            for number, message in enumerate(messages, queue_offset):
                message.place(number, offset, store_timestamp)
                offset += len(message.record)

        place(journal.end)
        journal.check_size(sum(map(len, records)))
        queue.files.prepare(len(records) * ENTRY.size)
        offset = first = journal.append(records, place)
        results = []
        try:
            for number, record in enumerate(records, queue_offset):
                size = len(record)
                queue.append(offset, size)
                results.append(JournalPutResult(topic, queue_id, number, offset, size, store_timestamp, self._broker))
                offset += size
        except BaseException as error:
            raise self.fail(error, f"the message at {first} is in the journal, but not in its queue") from error
        recorded = messages[-1].recorded_timestamp(store_timestamp)
        self.last = Progress(journal.end, recorded, results[-1].journal_offset)
        return results
