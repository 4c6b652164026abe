"""The life of a store in any layout, from the moment its folder is held until it is given back."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from commitlake.broker_lite.stores.engine.flushing import LogFlusher
from commitlake.broker_lite.stores.engine.log_writer import LogWriter
from commitlake.broker_lite.stores.engine.mapped_file import Mappings
from commitlake.broker_lite.stores.engine.ownership import AbortMark, StoreLock
from commitlake.broker_lite.stores.engine.retention import Retention


def system_clock() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class OpenStore(ABC):
    """A store that is open; a subclass loads and recovers its files, and says what is in them."""

    path: Path
    _lock: StoreLock
    _abort: AbortMark
    _writer: LogWriter
    _flusher: LogFlusher
    _retention: Retention
    _mappings: Mappings

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

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Any]:
        """Hold the lock of a store that is open."""

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
