"""Base class of an open store in any layout."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from commitlake.broker_lite.errors import StoreUnusableError
from commitlake.broker_lite.stores.engine.flushing import FlushOptions, LogFlusher
from commitlake.broker_lite.stores.engine.log_writer import LogWriter
from commitlake.broker_lite.stores.engine.mapped_file import MappedFiles
from commitlake.broker_lite.stores.engine.options import FlushMode
from commitlake.broker_lite.stores.engine.queue_reader import QueueReader
from commitlake.broker_lite.stores.engine.record_log import StoredMessage
from commitlake.broker_lite.stores.engine.retention import Retention
from commitlake.broker_lite.stores.engine.store_lock import AbortMark, StoreLock

M = TypeVar("M", bound=StoredMessage)
R = TypeVar("R", bound=QueueReader[Any, Any])


def system_clock() -> int:
    """Return the current time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class OpenStore(ABC, Generic[M, R]):
    """Open store, which several threads may use; subclasses load and recover the files of their layout.

    Attributes:
        path: folder of the store.
        options: settings of the store.
    """

    path: Path
    options: FlushOptions
    _lock: StoreLock
    _abort: AbortMark
    _writer: LogWriter
    _flusher: LogFlusher
    _retention: Retention
    _mappings: MappedFiles
    _reader: R

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Flush everything to disk and release the folder; after a failed write, leave the `abort` file in place."""
        with self._writer.lock:
            if self._writer.is_closed:
                return
            # First, so that no message is accepted that the last flush does not have.
            self._writer.is_closed = True
        self._flusher.stop()
        try:
            if self._writer.failure is None:
                self.flush()
                self._save_before_close()
                self._abort.clear()
        finally:
            # A reader may still be in the middle of a mapped file.
            with self._writer.lock:
                self._mappings.unmap_all()
            self._lock.release()

    @abstractmethod
    def _save_before_close(self) -> None:
        """Save data that `flush` does not include; called by `close`."""

    def flush(self) -> None:
        """Flush all data written so far to disk, and then write the checkpoint."""
        self._flusher.sync_log()
        self._flusher.sync_derived_files()

    def sync_log(self) -> int:
        """Flush the log to disk, and return the offset up to which it is flushed.

        Raises:
            StoreUnusableError: if the disk failed.
        """
        return self._flusher.sync_log()

    def delete_expired_files(self, now_seconds: float) -> int:
        """Delete expired files of log, queues and index; return the number of log files deleted."""
        # The two locks are always taken in this order, as in `truncate_log`.
        with self._flusher.flush_lock(), self._lock_reader():
            return self._retention.delete_expired_files(now_seconds)

    @contextmanager
    def _lock_reader(self) -> Iterator[R]:
        """Hold the store's lock while the block runs, and yield its reader; raise an error if the store is closed."""
        with self._writer.lock:
            if self._writer.is_closed:
                raise StoreUnusableError(f"{self.path}: the store is closed: open it again to use it")
            yield self._reader

    def _wait_until_flushed(self, log_end: int) -> None:
        """Wait until the log is flushed up to an offset, if the store is in SYNC mode."""
        if self.options.flush_mode is FlushMode.SYNC:
            self._flusher.wait_until_flushed(log_end)

    @property
    def is_disk_full(self) -> bool:
        """True if the disk is too full for more messages."""
        return self._retention.is_disk_full

    @property
    def log_end(self) -> int:
        """Offset of the end of the last record; available without waiting, also in a closed store."""
        return self._writer.last.log_end

    def take_queues_with_new_messages(self) -> set[tuple[str, int]]:
        """Return the (topic, queue id) pairs that received messages since the last call."""
        return self._writer.take_arrived()

    @property
    def queues(self) -> list[tuple[str, int]]:
        """Sorted (topic, queue id) pairs of the queues that have entries."""
        with self._lock_reader() as reader:
            return reader.queues()

    def queue_offset_range(self, topic: str, queue_id: int) -> range:
        """Return the queue offsets of a queue's messages that are still in the log; empty for an unknown queue."""
        with self._lock_reader() as reader:
            return reader.queue_offset_range(topic, queue_id)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of a queue's first message that is still in the log; 0 for an unknown queue."""
        return self.queue_offset_range(topic, queue_id).start

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of a queue's next message; 0 for an unknown queue."""
        return self.queue_offset_range(topic, queue_id).stop

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored at or after a time; without one, the end of the queue."""
        with self._lock_reader() as reader:
            return reader.offset_by_time(topic, queue_id, timestamp_ms)

    def get_at(self, log_offset: int) -> M | None:
        """Return the message whose record begins at an offset of the log, or None."""
        with self._lock_reader() as reader:
            found: M | None = reader.message_at(log_offset)
            return found

    def record_at(self, log_offset: int, size: int) -> bytes:
        """Return the bytes of a record with a known offset and size."""
        with self._lock_reader() as reader:
            return reader.record_at(log_offset, size)
