"""Flushing of a store to disk: the log after each message or twice a second, other files every second.

A stored message survives a crash of the process, because it is in the page cache. Only synced data survives a crash of
the machine. In SYNC mode `put` waits for the sync; one sync serves all waiting calls (group commit). The checkpoint has
the positions up to which log, queues and index are synced, and is written after them.
Source: CommitLog.GroupCommitService, FlushRealTimeService, ConsumeQueueStore.FlushConsumeQueueService.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from commitlake.broker_lite.errors import StoreUnusableError
from commitlake.broker_lite.stores.engine.file_queue import FileQueue
from commitlake.broker_lite.stores.engine.log_writer import LogProgress, LogWriter
from commitlake.broker_lite.stores.engine.options import FlushMode

QUEUE_FLUSH_INTERVAL_SECONDS = 1.0
CONFIG_SAVE_INTERVAL_SECONDS = 5.0
"""RocketMQ saves consumer offsets every 5 s, delay offsets every 10 s."""
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors of opening a file, not of a sync: nothing is lost, and the next attempt may succeed."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_logger = logging.getLogger(__name__)


class FlushOptions(Protocol):
    """Options that control the flushes of the log."""

    @property
    def flush_mode(self) -> FlushMode:
        """Flush mode, which determines whether writers wait for the disk."""

    @property
    def flush_interval_ms(self) -> int:
        """Time between two flushes in ASYNC mode."""


class LogFlusher:
    """Flusher of the log, on demand and in a background thread; it flushes derived files less often.

    Subclasses flush the derived files.
    """

    def __init__(
        self, options: FlushOptions, writer: LogWriter, log_files: FileQueue, save_config: Callable[[], None]
    ) -> None:
        self._options = options
        self._writer = writer
        self._log_files = log_files
        self._save_config = save_config
        self._guard = threading.Lock()
        self._last_logged = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run_flush_loop, name="store-flusher", daemon=True)

    def start(self) -> None:
        """Start to flush in the background."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the background thread, without a flush."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def flush_lock(self) -> threading.Lock:
        """Return a lock that prevents flushes while it is held, so that files can be deleted."""
        return self._guard

    def wait_until_flushed(self, log_end: int) -> None:
        """Wait until the log is flushed up to an offset.

        Raises:
            StoreUnusableError: if the disk failed; unsynced data may then be lost, even if a later sync succeeds.
        """
        # A flush by another thread may already include this message; then nothing is left to do.
        self.sync_log()
        assert self._log_files.synced >= log_end

    def sync_log(self) -> int:
        """Flush the log to disk, and return the offset up to which it is flushed."""
        with self._guard:
            self._flush_log()
            return self._log_files.synced

    def _flush_log(self) -> None:
        self._writer.check_usable()
        # Read before the flush: what is appended while it runs may not be on disk after it.
        progress = self._writer.last
        try:
            self._log_files.sync(progress.log_end)
        except OSError as error:
            self._note_failure(error)
            raise StoreUnusableError(f"cannot write {self._log_files.folder} to disk: {error}") from error
        self._note_synced_log(progress)

    def _note_failure(self, error: OSError) -> None:
        if error.errno not in _NO_DESCRIPTORS:
            self._writer.failure = error

    def _note_synced_log(self, progress: LogProgress) -> None:
        """Record how far the log is flushed; the caller holds the lock."""

    def sync_derived_files(self) -> None:
        """Flush the derived files (queues and index) to disk, and then write the checkpoint."""
        with self._guard:
            try:
                self._sync_derived_files()
            except OSError as error:
                self._note_failure(error)
                raise StoreUnusableError(
                    f"cannot write the queues, the index or the checkpoint to disk: {error}"
                ) from error

    def _sync_derived_files(self) -> None:
        raise NotImplementedError

    def _save_checkpoint(self, write_checkpoint: Callable[[], None]) -> None:
        """Write the checkpoint. If the disk is full, keep the old one, which only makes recovery slower."""
        try:
            write_checkpoint()
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            self._log_first_failure(f"cannot write the checkpoint: {error}")

    def _run_flush_loop(self) -> None:
        seconds = QUEUE_FLUSH_INTERVAL_SECONDS
        if self._options.flush_mode is FlushMode.ASYNC:
            seconds = min(seconds, self._options.flush_interval_ms / 1000)
        rest_due = config_due = time.monotonic()
        while not self._stop.wait(seconds):
            now = time.monotonic()
            try:
                self.sync_log()
                if now >= rest_due:
                    rest_due = now + QUEUE_FLUSH_INTERVAL_SECONDS
                    self.sync_derived_files()
            except StoreUnusableError as error:
                if self._writer.failure is not None:
                    # The next put reports the error, too.
                    _logger.error("flushing has stopped: %s", error)
                    return
                self._log_first_failure(str(error))
                continue
            if now >= config_due:
                config_due = now + CONFIG_SAVE_INTERVAL_SECONDS
                self._save_tables()

    def _save_tables(self) -> None:
        """Save the changed tables; if the disk is full, keep the old files and try again later."""
        try:
            self._save_config()
        except OSError as error:
            self._log_first_failure(f"cannot save topics, groups and offsets: {error}")
        else:
            self._last_logged = ""

    def _log_first_failure(self, problem: str) -> None:
        if problem != self._last_logged:
            self._last_logged = problem
            _logger.error("%s; will retry", problem)
