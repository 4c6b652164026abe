"""Message store in JMQ's layout: one folder with the files of a JMQ broker, in one process.

    with JournalStore.open(folder, JournalOptions(journal_file_size_bytes=1 << 20)) as store:
        result = store.put(NewJournalMessage("orders", b"{}", sent, client, business_id="order-4711", is_ordered=True))
        store.get("orders", result.queue_id, result.queue_offset).messages

The folder contains `journal/`, `queue/`, `offset/`, `consume/`, `retry/`, `checkpoint`, `lock` and, while it is open,
`abort`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from commitlake.broker_lite.stores.engine.flushing import LogFlusher
from commitlake.broker_lite.stores.engine.open_store import OpenStore, system_clock
from commitlake.broker_lite.stores.engine.queue_reader import DEFAULT_MAX_MESSAGES, GetResult, PullLimits, PullResult
from commitlake.broker_lite.stores.engine.retention import Retention
from commitlake.broker_lite.stores.engine.store_lock import AbortMark, StoreLock, hold_store_lock
from commitlake.broker_lite.stores.jmq.journal_files import JournalFiles, recover_journal
from commitlake.broker_lite.stores.jmq.journal_reader import Form, JournalReader
from commitlake.broker_lite.stores.jmq.journal_writer import JournalPutResult, JournalWriter
from commitlake.broker_lite.stores.jmq.message_preparation import JournalMessagePreparer, PreparedMessage, QueueSelector
from commitlake.broker_lite.stores.jmq.offset_file import OffsetFile
from commitlake.broker_lite.stores.jmq.options import JournalOptions
from commitlake.schemas.layouts.jmq.checkpoint import JournalCheckpoint
from commitlake.schemas.layouts.jmq.consume_records import Consumption, serialize_consumption
from commitlake.schemas.layouts.jmq.journal import JournalMessage, NewJournalMessage
from commitlake.schemas.layouts.jmq.queue_file import JmqQueueEntry
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX


class JournalStore(OpenStore[JournalMessage, JournalReader]):
    """Open store in JMQ's layout; several threads may use it.

    Attributes:
        path: folder of the store.
        options: settings of the store.
        clock: returns the receive and store time of messages, ms.
        recovery: report of recovery at the opening.
        preparing: prepares messages for `append`.
    """

    options: JournalOptions
    _writer: JournalWriter

    def __init__(
        self,
        path: Path,
        options: JournalOptions,
        clock: Callable[[], int],
        lock: StoreLock,
        routing: QueueSelector,
        save_beside: Callable[[], None],
    ) -> None:
        """Load and recover the files of a folder that is already locked; use `open` instead."""
        self.path = path
        self.options = options
        self.clock = clock
        self._lock = lock
        self._abort = AbortMark(path)
        self._files = JournalFiles.load(path, options, clock)
        self._mappings = self._files.mappings
        # Files are changed from here on, so a crash must be detectable.
        self._abort.set()
        self.recovery = recover_journal(self._files, is_after_crash=self._abort.was_found)
        self._writer = JournalWriter(options, clock, self._files, self.recovery.progress)
        self._reader = JournalReader(self._files, options.broker_name)
        self._flusher = JournalFlusher(options, self._writer, self._files, save_beside)
        self._retention = Retention(path, self._files.journal.files, self._files.delete_expired, options.retention)
        max_record_bytes = self._files.journal.max_record_bytes
        self.preparing = JournalMessagePreparer(options, routing, clock, max_record_bytes)
        # A crash may have lost the journal's end. A consumer beyond it would miss the messages that are stored there
        # next.
        self.offsets.clamp_to_queue_ends(self._max_consumer_offset)

    def _max_consumer_offset(self, topic: str, queue_id: int) -> int:
        """Return the largest offset that a consumer may store for a queue; unlimited for dead letters."""
        return sys.maxsize if topic.startswith(DLQ_PREFIX) else self.max_offset(topic, queue_id)

    @classmethod
    def open(
        cls,
        path: str | Path,
        options: JournalOptions | None = None,
        *,
        clock: Callable[[], int] = system_clock,
        rng: random.Random | None = None,
        queue_count_of: Callable[[str], int] | None = None,
        save_other_files: Callable[[], None] = lambda: None,
    ) -> JournalStore:
        """Open a folder, create it if necessary, and recover its content.

        Args:
            path: folder of the store.
            options: settings; file sizes must be those of the existing files.
            clock: returns ms since 1970.
            rng: chooses the queues of messages that are not ordered.
            queue_count_of: returns the number of queues of a topic, if topics are stored elsewhere; None for the
                options.
            save_other_files: saves further files in the same folder; called every few seconds.

        Raises:
            StoreLockedError: if another store has the folder open.
            StoreFilesError: if its files do not fit the options or one another.
            UnsafeFileError: if one of them is a symbolic link or not a regular file.
            StoreError: if the offset file and its `.bak` are invalid.
        """
        root = Path(path)
        with hold_store_lock(root) as lock:
            options = options or JournalOptions()
            store = cls(root, options, clock, lock, QueueSelector(options, rng, queue_count_of), save_other_files)
        store._flusher.start()
        return store

    def _save_before_close(self) -> None:
        self.offsets.save_if_changed()

    def put(self, message: NewJournalMessage, queue_id: int | None = None) -> JournalPutResult:
        """Store a message.

        Args:
            message: message of a producer; its body is compressed if that makes it smaller.
            queue_id: its queue; None if the store chooses, by business id, weights or at random.

        Raises:
            MessageRefusedError: if a broker would refuse the message; nothing was written.
            DiskFullError: if the disk has no room for it; nothing was written.
            StoreUnusableError: if the store is closed, or its disk failed.
        """
        return self._wait_for_results(self._writer.append([self.preparing.prepare(message, queue_id)]))[0]

    def put_batch(self, messages: Sequence[NewJournalMessage], queue_id: int | None = None) -> list[JournalPutResult]:
        """Store messages in one queue and one file, directly after one another, or none of them.

        If the store chooses the queue, all go to the queue of the first.
        """
        prepared: list[PreparedMessage] = []
        for message in messages:
            prepared.append(self.preparing.prepare(message, queue_id))
            queue_id = prepared[0].queue_id
        return self._wait_for_results(self._writer.append(prepared))

    def _wait_for_results(self, results: list[JournalPutResult]) -> list[JournalPutResult]:
        self._wait_until_flushed(results[-1].journal_offset + results[-1].size)
        return results

    def append(self, message: PreparedMessage) -> JournalPutResult:
        """Store a prepared message without waiting for the disk, even in SYNC mode."""
        return self._writer.append([message])[0]

    def append_batch(self, messages: Sequence[PreparedMessage]) -> list[JournalPutResult]:
        """Store all prepared messages of a batch in one queue, or none of them, without waiting for the disk."""
        return self._writer.append(messages)

    @property
    def offsets(self) -> OffsetFile:
        """Positions of all applications in all queues."""
        return self._files.offsets

    def get(
        self, topic: str, queue_id: int, queue_offset: int, max_messages: int = DEFAULT_MAX_MESSAGES
    ) -> GetResult[JournalMessage]:
        """Return messages of a queue, from a queue offset on.

        Raises:
            StoreFilesError: if the queue or a record of it is damaged.
        """
        with self._lock_reader() as reader:
            return reader.get(topic, queue_id, queue_offset, max_messages)

    def pull(
        self, topic: str, queue_id: int, queue_offset: int, limits: PullLimits, convert_to_record: Form
    ) -> PullResult:
        """Return messages of a queue from a queue offset on, in the form in which they are delivered.

        Raises:
            StoreFilesError: if the first of them is damaged; messages before a damaged one are returned.
        """
        with self._lock_reader() as reader:
            return reader.pull(topic, queue_id, queue_offset, limits, convert_to_record)

    def entries(self, topic: str, queue_id: int, offset_range: range) -> list[tuple[int, JmqQueueEntry]]:
        """Return (queue offset, entry) pairs of the entries that a queue has in a range of offsets."""
        with self._lock_reader() as reader:
            return reader.entries(topic, queue_id, offset_range)

    def get_by_id(self, message_id: str) -> JournalMessage | None:
        """Return the message with an id, or None if this store does not have it.

        Raises:
            LayoutError: if the text is not a message id.
        """
        with self._lock_reader() as reader:
            return reader.message_by_id(message_id)

    @property
    def min_journal_offset(self) -> int:
        """Journal offset of the first byte of the journal."""
        with self._lock_reader() as reader:
            return reader.log_start

    @property
    def max_journal_offset(self) -> int:
        """Journal offset of the end of the last record; the next one goes there, or to a new file."""
        with self._lock_reader() as reader:
            return reader.log_end

    def log_consumption(self, consumptions: Sequence[Consumption]) -> None:
        """Append consume records, which state which messages were delivered to whom, and the outcome.

        Raises:
            UnserializableError: if one does not fit the format; nothing was written.
            DiskFullError: if the disk is full.
        """
        records = [serialize_consumption(consumption) for consumption in consumptions]
        with self._lock_reader():
            for record in records:
                self._files.consume_log.append((record,))

    def read_consumptions(self, offset: int, max_records: int) -> tuple[list[Consumption], int]:
        """Return flushed consume records from an offset of the consume log on, and the offset to continue at."""
        with self._lock_reader():
            log = self._files.consume_log
            return log.read(offset, log.files.synced, max_records)

    def read_journal(self, journal_offset: int, max_messages: int) -> tuple[list[JournalMessage], int]:
        """Return flushed messages from a journal offset on, and the offset to continue at."""
        with self._lock_reader() as reader:
            return reader.read_journal(journal_offset, max_messages)


class JournalFlusher(LogFlusher):
    """Flusher of journal, queues and consume records, which then writes the checkpoint."""

    def __init__(
        self, options: JournalOptions, writer: JournalWriter, files: JournalFiles, save_beside: Callable[[], None]
    ) -> None:
        super().__init__(options, writer, files.journal.files, self._save_offsets)
        self._offsets = files.offsets
        self._save_beside = save_beside
        self._lock = writer.lock
        self._queues = files.queues
        self._consume_log = files.consume_log
        self._checkpoint = files.checkpoint

    def _save_offsets(self) -> None:
        self._offsets.save_if_changed()
        self._save_beside()

    def _sync_derived_files(self) -> None:
        with self._lock:
            progress, entries, consumed = self._writer.last, self._queues.entry_count, self._consume_log.files.end
        # The checkpoint confirms both, so both are flushed up to their state at one moment.
        self._flush_log()
        self._queues.sync()
        self._consume_log.files.sync(consumed)
        if progress.log_end:
            log_end, store_timestamp, last_record = progress
            checkpoint = JournalCheckpoint(log_end, last_record, store_timestamp, entries)
            self._save_checkpoint(lambda: self._checkpoint.save(checkpoint))
