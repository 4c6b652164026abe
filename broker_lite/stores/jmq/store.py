"""A message store in JMQ's layout: one folder with the files of a JMQ broker, in one process.

    with JournalStore.open(folder, JournalOptions(journal_file_size_bytes=1 << 20)) as store:
        result = store.put(NewJournalMessage("orders", b"{}", sent, client, business_id="order-4711", is_ordered=True))
        store.get("orders", result.queue_id, result.queue_offset).messages

The folder holds `journal/`, `queue/`, `offset/`, `consume/`, `retry/`, `checkpoint`, `lock` and, while it is open,
`abort`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from commitlake.broker_lite.stores.engine.open_store import OpenStore, system_clock
from commitlake.broker_lite.stores.engine.ownership import AbortMark, StoreLock, holding
from commitlake.broker_lite.stores.engine.pulling import PullLimits, PullResult
from commitlake.broker_lite.stores.engine.reading import DEFAULT_MAX_MESSAGES, GetResult
from commitlake.broker_lite.stores.engine.retention import Retention
from commitlake.broker_lite.stores.jmq.files import JournalFiles
from commitlake.broker_lite.stores.jmq.flushing import JournalFlusher
from commitlake.broker_lite.stores.jmq.offset_file import OffsetFile
from commitlake.broker_lite.stores.jmq.options import JournalOptions
from commitlake.broker_lite.stores.jmq.prepared import JournalPreparing, PreparedMessage
from commitlake.broker_lite.stores.jmq.reading import Form, JournalReader
from commitlake.broker_lite.stores.jmq.recovery import recover
from commitlake.broker_lite.stores.jmq.routing import Routing
from commitlake.broker_lite.stores.jmq.writing import JournalPutResult, JournalWriter
from commitlake.schemas.layouts.jmq.consumption import Consumption, serialize_consumption
from commitlake.schemas.layouts.jmq.journal import JournalMessage, NewJournalMessage
from commitlake.schemas.layouts.jmq.queue import Entry
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX


class JournalStore(OpenStore[JournalMessage, JournalReader]):
    """An open store; several threads may use it.

    Attributes:
        path: its folder.
        options: its settings.
        clock: gives the receive and store time of messages, ms.
        recovery: what was found when it was opened.
        preparing: makes records of messages, for `append`.
    """

    options: JournalOptions
    _writer: JournalWriter

    def __init__(
        self,
        path: Path,
        options: JournalOptions,
        clock: Callable[[], int],
        lock: StoreLock,
        routing: Routing,
        save_beside: Callable[[], None],
    ) -> None:
        """Load and recover the files of a folder whose lock is held; use `open`."""
        self.path = path
        self.options = options
        self.clock = clock
        self._lock = lock
        self._abort = AbortMark(path)
        self._files = JournalFiles.load(path, options, clock)
        self._mappings = self._files.mappings
        # From here on files are changed: whoever finds them in the middle of it must know.
        self._abort.set()
        self.recovery = recover(self._files, crashed=self._abort.was_found)
        self._writer = JournalWriter(options, clock, self._files, self.recovery.progress)
        self._reader = JournalReader(self._files, options.broker_name)
        self._flusher = JournalFlusher(options, self._writer, self._files, save_beside)
        self._retention = Retention(path, self._files.journal.files, self._files.delete_expired, options.retention)
        max_record_bytes = self._files.journal.max_record_bytes
        self.preparing = JournalPreparing(options, routing, clock, max_record_bytes)
        self.offsets.clamp(self._end_of_positions)

    def _end_of_positions(self, topic: str, queue_id: int) -> int:
        """What no position in a queue is behind; dead letters are in the retry store, not in queues."""
        return sys.maxsize if topic.startswith(DLQ_PREFIX) else self.max_offset(topic, queue_id)

    @classmethod
    def open(
        cls,
        path: str | Path,
        options: JournalOptions | None = None,
        *,
        clock: Callable[[], int] = system_clock,
        chance: random.Random | None = None,
        queue_count_of: Callable[[str], int] | None = None,
        save_beside: Callable[[], None] = lambda: None,
    ) -> JournalStore:
        """Open a folder, which is created if it is not there, and recover what is in it.

        Args:
            path: the store's root.
            options: its settings; file sizes must be those of the files that are there.
            clock: gives ms since 1970.
            chance: chooses the queues of messages that are not ordered.
            queue_count_of: how many queues a topic has, where somebody else keeps topics; None for the options.
            save_beside: writes what somebody else keeps in the same folder; called every few seconds.

        Raises:
            StoreLockedError: if another store has it open.
            StoreFilesError: if its files do not fit the options or one another.
            UnsafeFileError: for a link, or something else that is no file, among them.
            ConfigFileError: if the offset file is broken, and its `.bak` too.
        """
        root = Path(path)
        with holding(root) as lock:
            options = options or JournalOptions()
            store = cls(root, options, clock, lock, Routing(options, chance, queue_count_of), save_beside)
        store._flusher.start()
        return store

    def _save_rest(self) -> None:
        self.offsets.save_changed()

    def put(self, message: NewJournalMessage, queue_id: int | None = None) -> JournalPutResult:
        """Store a message.

        Args:
            message: as its producer sent it; its body is compressed if that helps.
            queue_id: its queue; None where the store is to choose, by business id, weights or chance.

        Raises:
            MessageRefusedError: if a broker would refuse it; nothing was written.
            DiskFullError: if there is no room for it; nothing was written.
            StoreUnusableError: if the store is closed, or its disk failed.
        """
        return self._waited(self._writer.append([self.preparing.prepare(message, queue_id)]))[0]

    def put_batch(self, messages: Sequence[NewJournalMessage], queue_id: int | None = None) -> list[JournalPutResult]:
        """Store messages of one queue together: one after another, in one file, or none; see `put`.

        Where the store is to choose, all go to the queue of the first.
        """
        prepared: list[PreparedMessage] = []
        for message in messages:
            prepared.append(self.preparing.prepare(message, queue_id))
            queue_id = prepared[0].queue_id
        return self._waited(self._writer.append(prepared))

    def _waited(self, results: list[JournalPutResult]) -> list[JournalPutResult]:
        self._wait_for(results[-1].journal_offset + results[-1].size)
        return results

    def append(self, message: PreparedMessage) -> JournalPutResult:
        """Store a prepared message, without waiting for the disk in any mode; see `put`."""
        return self._writer.append([message])[0]

    def append_batch(self, messages: Sequence[PreparedMessage]) -> list[JournalPutResult]:
        """Store prepared messages of one queue together, as `append`."""
        return self._writer.append(messages)

    @property
    def offsets(self) -> OffsetFile:
        """How far each application has consumed each queue."""
        return self._files.offsets

    def get(
        self, topic: str, queue_id: int, queue_offset: int, max_messages: int = DEFAULT_MAX_MESSAGES
    ) -> GetResult[JournalMessage]:
        """Messages of a queue, from a queue offset on.

        Raises:
            StoreFilesError: if the queue, or a record that it leads to, is damaged.
        """
        with self._reading() as reader:
            return reader.get(topic, queue_id, queue_offset, max_messages)

    def pull(self, topic: str, queue_id: int, queue_offset: int, limits: PullLimits, form: Form) -> PullResult:
        """Messages of a queue from a queue offset on, in the form in which they are handed out.

        Raises:
            StoreFilesError: if the first of them is damaged; what is before a damaged one is given.
        """
        with self._reading() as reader:
            return reader.pull(topic, queue_id, queue_offset, limits, form)

    def entries(self, topic: str, queue_id: int, numbers: range) -> list[tuple[int, Entry]]:
        """Where those of a queue's messages stand whose queue offsets are in a range, as far as they are there."""
        with self._reading() as reader:
            return reader.entries(topic, queue_id, numbers)

    def get_by_id(self, message_id: str) -> JournalMessage | None:
        """The message with an id; None where this store has none.

        Raises:
            LayoutError: if the text is no such id.
        """
        with self._reading() as reader:
            return reader.by_id(message_id)

    @property
    def min_journal_offset(self) -> int:
        """Journal offset of the first byte that the journal has."""
        with self._reading() as reader:
            return reader.log_start

    @property
    def max_journal_offset(self) -> int:
        """Journal offset behind the last record: where the next one goes, unless it must go to a new file."""
        with self._reading() as reader:
            return reader.log_end

    def log_consumption(self, consumptions: Sequence[Consumption]) -> None:
        """Append consume records.

        Raises:
            UnserializableError: if one does not fit its format; nothing was written.
            DiskFullError: if there is no room.
        """
        records = [serialize_consumption(consumption) for consumption in consumptions]
        with self._reading():
            for record in records:
                self._files.consume_log.append((record,))

    def read_consumptions(self, offset: int, max_records: int) -> tuple[list[Consumption], int]:
        """Consume records that are on the disk, from an offset on, and where to go on; see `ArchiveView`."""
        with self._reading():
            log = self._files.consume_log
            return log.read(offset, log.files.synced, max_records)

    def read_journal(self, journal_offset: int, max_messages: int) -> tuple[list[JournalMessage], int]:
        """Messages that are on the disk, from a journal offset on, and where to go on; see `ArchiveView`."""
        with self._reading() as reader:
            return reader.read_journal(journal_offset, max_messages)
