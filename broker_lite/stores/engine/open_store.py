"""The life of a store in any layout, from the moment its folder is held until it is given back."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from commitlake.broker_lite.stores.engine.errors import StoreUnusableError
from commitlake.broker_lite.stores.engine.flushing import FlushOptions, LogFlusher
from commitlake.broker_lite.stores.engine.log_writer import LogWriter
from commitlake.broker_lite.stores.engine.mapped_file import Mappings
from commitlake.broker_lite.stores.engine.message_log import StoredMessage
from commitlake.broker_lite.stores.engine.options import FlushMode
from commitlake.broker_lite.stores.engine.ownership import AbortMark, StoreLock
from commitlake.broker_lite.stores.engine.reading import QueueReader
from commitlake.broker_lite.stores.engine.retention import Retention

M = TypeVar("M", bound=StoredMessage)
R = TypeVar("R", bound=QueueReader[Any, Any])


def system_clock() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class OpenStore(ABC, Generic[M, R]):
    """A store that is open; several threads may use it. A subclass loads and recovers its files.

    Attributes:
        path: its folder.
        options: its settings.
    """

    path: Path
    options: FlushOptions
    _lock: StoreLock
    _abort: AbortMark
    _writer: LogWriter
    _flusher: LogFlusher
    _retention: Retention
    _mappings: Mappings
    _reader: R

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
                self._save_rest()
                self._abort.clear()
        finally:
            with self._writer.lock:
                self._mappings.unmap_all()
            self._lock.release()

    @abstractmethod
    def _save_rest(self) -> None:
        """Save what a flush leaves out."""

    def flush(self) -> None:
        """Put everything written so far on the disk, and the checkpoint after it."""
        self._flusher.sync_log()
        self._flusher.sync_rest()

    def sync_log(self) -> int:
        """Put the log on the disk; gives the offset up to which it is there.

        Raises:
            StoreUnusableError: if the disk failed.
        """
        return self._flusher.sync_log()

    def clean(self, now_seconds: float) -> int:
        """Delete the log's files that may go, and what leads to them; tells how many went. See `Retention`."""
        with self._flusher.paused(), self._reading():
            return self._retention.clean(now_seconds)

    @contextmanager
    def _reading(self) -> Iterator[R]:
        """Hold the lock of a store that is open."""
        with self._writer.lock:
            if self._writer.is_closed:
                raise StoreUnusableError(f"{self.path}: expected an open store, found it closed")
            yield self._reader

    def _wait_for(self, log_end: int) -> None:
        """Return when the log is on the disk up to an offset, in a store whose producers wait for that."""
        if self.options.flush_mode is FlushMode.SYNC:
            self._flusher.wait_for(log_end)

    @property
    def is_disk_full(self) -> bool:
        """Whether the disk is too full for more messages."""
        return self._retention.is_disk_full

    @property
    def log_end(self) -> int:
        """Offset behind the last record, of a store that may be closed, and without waiting for anybody."""
        return self._writer.last.log_end

    def take_arrived(self) -> set[tuple[str, int]]:
        """Topic and number of the queues that got messages since the last call."""
        arrived, self._writer.arrived = self._writer.arrived, set()
        return arrived

    @property
    def queues(self) -> list[tuple[str, int]]:
        """Topic and number of every queue that has entries, in order."""
        with self._reading() as reader:
            return reader.queues()

    def bounds(self, topic: str, queue_id: int) -> range:
        """The queue offsets of a queue's messages whose records the log has; empty for an unknown queue."""
        with self._reading() as reader:
            return reader.bounds(topic, queue_id)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset of a queue's first message whose record the log has; 0 for an unknown queue."""
        return self.bounds(topic, queue_id).start

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset of a queue's next message; 0 for an unknown queue."""
        return self.bounds(topic, queue_id).stop

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Queue offset of the first message stored at or after a time; the queue's end where there is none."""
        with self._reading() as reader:
            return reader.offset_by_time(topic, queue_id, timestamp_ms)

    def get_at(self, log_offset: int) -> M | None:
        """The message whose record begins at an offset of the log; None where none does."""
        with self._reading() as reader:
            found: M | None = reader.message_at(log_offset)
            return found

    def record_at(self, log_offset: int, size: int) -> bytes:
        """The bytes of a record whose place and size are known."""
        with self._reading() as reader:
            return reader.record_at(log_offset, size)
