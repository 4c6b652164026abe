"""The message store: one folder with the files of a RocketMQ broker, in one process.

    with MessageStore.open(folder, StoreOptions(segment_size_bytes=1 << 20)) as store:
        result = store.put(NewMessage("orders", b"{}", born_timestamp, born_host, properties=[("KEYS", "order-4711")]))
        store.get("orders", 0, result.queue_offset).messages

The folder holds `commitlog/`, `consumequeue/`, `index/`, `config/`, `checkpoint`, `lock` and, while it is open,
`abort`. A RocketMQ broker with the same file sizes opens it, and this store opens a broker's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from broker_lite.store.config_files import ConfigFiles
from broker_lite.store.dispatch import Dispatching
from broker_lite.store.errors import StoreUnusableError
from broker_lite.store.files import StoreFiles
from broker_lite.store.flushing import Flusher
from broker_lite.store.options import FlushMode, StoreOptions
from broker_lite.store.ownership import AbortMark, StoreLock
from broker_lite.store.reading import DEFAULT_KEY_LIMIT, MAX_TIME_MS, GetResult, Reader
from broker_lite.store.recovery import Recovery
from broker_lite.store.writing import PutResult, Writer
from schemas.layouts.commitlog import Message, NewMessage
from schemas.layouts.consumequeue import Entry

DEFAULT_MAX_MESSAGES = 32
"""What a consumer asks for at once."""


def system_clock() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class MessageStore:
    """An open store; several threads may use it.

    Attributes:
        path: its folder.
        options: its settings.
        clock: gives the store time of messages, ms.
        recovery: what was found when it was opened.
    """

    def __init__(self, path: Path, options: StoreOptions, clock: Callable[[], int], lock: StoreLock) -> None:
        """Load and recover the files of a folder whose lock is held; use `open`."""
        self.path = path
        self.options = options
        self.clock = clock
        self._lock = lock
        self._abort = AbortMark(path)
        self._files = StoreFiles.load(path, options, clock)
        # From here on files are changed: whoever finds them in the middle of it must know.
        self._abort.set()
        self.recovery = Recovery(self._files, Dispatching(options)).run(crashed=self._abort.was_found)
        for queue in self._files.queues:
            self.config.topics.ensure(queue.topic, queue.queue_id)
        self._writer = Writer(options, clock, self._files)
        self._writer.last = self.recovery.progress
        self._reader = Reader(self._files)
        self._flusher = Flusher(options, self._writer, self._files)

    @property
    def config(self) -> ConfigFiles:
        """Topics, groups and offsets."""
        return self._files.config

    @classmethod
    def open(
        cls, path: str | Path, options: StoreOptions | None = None, *, clock: Callable[[], int] = system_clock
    ) -> MessageStore:
        """Open a folder, which is created if it is not there, and recover what is in it.

        Args:
            path: the store's root.
            options: its settings; file sizes must be those of the files that are there.
            clock: gives ms since 1970.

        Raises:
            StoreLockedError: if a broker or another store has it open.
            StoreFilesError: if its files do not fit the options or one another.
            ConfigFileError: if a file under `config/` is broken, and its `.bak` too.
        """
        root = Path(path)
        root.mkdir(parents=True, exist_ok=True)
        lock = StoreLock(root)
        try:
            store = cls(root, options or StoreOptions(), clock, lock)
        except BaseException:
            lock.release()
            raise
        store._flusher.start()
        return store

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Put everything on the disk and give the folder back; a store that failed keeps its `abort`."""
        with self._writer.lock:
            if self._writer.is_closed:
                return
            self._writer.is_closed = True
        self._flusher.stop()
        try:
            if self._writer.failure is None:
                self.flush()
                if self._files.index is not None:
                    self._files.index.sync()
                self.config.save()
                self._abort.clear()
        finally:
            with self._writer.lock:
                self._files.mappings.unmap_all()
            self._lock.release()

    def flush(self) -> None:
        """Put everything written so far on the disk, and the checkpoint after it."""
        self._flusher.sync_log()
        self._flusher.sync_rest()

    def put(self, message: NewMessage) -> PutResult:
        """Store a message.

        Raises:
            MessageRefusedError: if a broker would refuse it; nothing was written.
            DiskFullError: if there is no room for it; nothing was written.
            StoreUnusableError: if the store is closed, or its disk failed.
        """
        result = self._writer.put([message])[0]
        if self.options.flush_mode is FlushMode.SYNC:
            self._flusher.wait_for(result.physical_offset + result.size)
        return result

    def put_batch(self, messages: Sequence[NewMessage]) -> list[PutResult]:
        """Store messages of one queue together, as a producer's batch: one after another, in one segment, or none.

        Raises:
            MessageRefusedError: if a broker would refuse the batch; nothing was written.
            DiskFullError: if there is no room for it; nothing was written.
            StoreUnusableError: if the store is closed, or its disk failed.
        """
        results = self._writer.put_batch(messages)
        if self.options.flush_mode is FlushMode.SYNC:
            self._flusher.wait_for(results[-1].physical_offset + results[-1].size)
        return results

    def get(self, topic: str, queue_id: int, queue_offset: int, max_messages: int = DEFAULT_MAX_MESSAGES) -> GetResult:
        """Messages of a queue, from a queue offset on.

        Raises:
            StoreFilesError: if a record that the queue leads to is damaged.
        """
        with self._reading() as reader:
            return reader.get(topic, queue_id, queue_offset, max_messages)

    def entry_at(self, topic: str, queue_id: int, queue_offset: int) -> Entry | None:
        """The ConsumeQueue entry of a message; None where the queue has none, or only filler."""
        with self._reading() as reader:
            return reader.entry_at(topic, queue_id, queue_offset)

    def get_at(self, physical_offset: int) -> Message | None:
        """The message whose record begins at a physical offset; None where none does."""
        with self._reading() as reader:
            return reader.message_at(physical_offset)

    def get_by_id(self, msg_id: str) -> Message | None:
        """The message with an offset message id; None where this store has none.

        Raises:
            LayoutError: if the text is no such id.
        """
        with self._reading() as reader:
            return reader.by_id(msg_id)

    def get_by_key(
        self, topic: str, key: str, begin_ms: int = 0, end_ms: int = MAX_TIME_MS, limit: int = DEFAULT_KEY_LIMIT
    ) -> list[Message]:
        """The newest messages with a key, in the order of the log.

        Args:
            topic: the topic under which they are stored, so `SCHEDULE_TOPIC_XXXX` for waiting ones.
            key: a UNIQ_KEY, one of the KEYS, or `tags_key(TAGS)`.
            begin_ms: earliest store time.
            end_ms: latest store time.
            limit: how many at most.

        Raises:
            IndexDisabledError: if the store keeps no index.
        """
        with self._reading() as reader:
            return reader.by_key(topic, key, begin_ms, end_ms, limit)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Queue offset of the first message stored at or after a time; the queue's end where there is none."""
        with self._reading() as reader:
            return reader.offset_by_time(topic, queue_id, timestamp_ms)

    def get_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, max_messages: int = DEFAULT_MAX_MESSAGES
    ) -> GetResult:
        """Messages of a queue from the first on that was stored at or after a time; see `get`."""
        with self._reading() as reader:
            return reader.get(topic, queue_id, reader.offset_by_time(topic, queue_id, timestamp_ms), max_messages)

    @property
    def min_physical_offset(self) -> int:
        """Physical offset of the first byte that the log has."""
        with self._reading():
            return self._files.log.start

    @property
    def max_physical_offset(self) -> int:
        """Physical offset behind the last record: where the next one goes, unless it must go to a new segment."""
        with self._reading():
            return self._files.log.end

    @property
    def queues(self) -> list[tuple[str, int]]:
        """Topic and number of every queue that has entries, in order."""
        with self._reading():
            return sorted((queue.topic, queue.queue_id) for queue in self._files.queues if not queue.is_empty)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset of a queue's first message whose record the log has; 0 for an unknown queue."""
        with self._reading() as reader:
            return reader.bounds(topic, queue_id).start

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset of a queue's next message; 0 for an unknown queue."""
        with self._reading() as reader:
            return reader.bounds(topic, queue_id).stop

    @contextmanager
    def _reading(self) -> Iterator[Reader]:
        with self._writer.lock:
            if self._writer.is_closed:
                raise StoreUnusableError(f"{self.path}: expected an open store, found it closed")
            yield self._reader
