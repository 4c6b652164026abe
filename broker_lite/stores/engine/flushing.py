"""Putting a store on the disk: the log for every message or twice a second, the rest every second.

A message that was put is in the kernel's hands: the process may be killed. Only what was synced survives the machine.
In SYNC mode `put` waits for that; several that wait at once are served by one sync (group commit). The checkpoint says
how far log, queues and index have come, and is written after them. Source: CommitLog.GroupCommitService,
FlushRealTimeService, ConsumeQueueStore.FlushConsumeQueueService.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from commitlake.broker_lite.stores.engine.errors import StoreUnusableError
from commitlake.broker_lite.stores.engine.file_queue import FileQueue
from commitlake.broker_lite.stores.engine.log_writer import LogWriter
from commitlake.broker_lite.stores.engine.options import FlushMode
from commitlake.broker_lite.stores.engine.progress import Progress

QUEUE_FLUSH_INTERVAL_SECONDS = 1.0
CONFIG_SAVE_INTERVAL_SECONDS = 5.0
"""RocketMQ: consumer offsets every 5 s, delay offsets every 10 s."""
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
"""Of opening a file, never of a sync: nothing was lost by it, and the next turn may succeed."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_logger = logging.getLogger(__name__)


class FlushOptions(Protocol):
    """What of a store's options says when its log is flushed."""

    @property
    def flush_mode(self) -> FlushMode:
        """Whether somebody waits for each flush."""

    @property
    def flush_interval_ms(self) -> int:
        """Time between two flushes in ASYNC mode."""


class LogFlusher:
    """Syncs a log, on demand and in a thread of its own, and what follows from the log less often.

    A subclass says what else there is.
    """

    def __init__(
        self, options: FlushOptions, writer: LogWriter, log_files: FileQueue, save_config: Callable[[], None]
    ) -> None:
        self._options = options
        self._writer = writer
        self._log_files = log_files
        self._save_config = save_config
        self._guard = threading.Lock()
        self._told = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-flusher", daemon=True)

    def start(self) -> None:
        """Begin to flush in the background."""
        self._thread.start()

    def stop(self) -> None:
        """End the background thread; does not flush."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def paused(self) -> threading.Lock:
        """What keeps everybody from syncing while it is held: files may go meanwhile."""
        return self._guard

    def wait_for(self, log_end: int) -> None:
        """Return when the log is on the disk up to an offset.

        Raises:
            StoreUnusableError: if the disk failed: what was not synced then may be lost, whatever a later sync says.
        """
        # Whoever had the guard before may have synced this message too: there is nothing left to do then.
        self.sync_log()
        assert self._log_files.synced >= log_end

    def sync_log(self) -> int:
        """Put the log on the disk; gives the offset up to which it is there."""
        with self._guard:
            self._sync_log()
            return self._log_files.synced

    def _sync_log(self) -> None:
        self._writer.check_usable()
        progress = self._writer.last
        try:
            self._log_files.sync(progress.log_end)
        except OSError as error:
            self._note_failure(error)
            raise StoreUnusableError(f"{self._log_files.folder} cannot be synced: {error}") from error
        self._note_synced_log(progress)

    def _note_failure(self, error: OSError) -> None:
        if error.errno not in _NO_DESCRIPTORS:
            self._writer.failure = error

    def _note_synced_log(self, progress: Progress) -> None:
        """Remember how far the log is on the disk; the guard is held."""

    def sync_rest(self) -> None:
        """Put what follows from the log on the disk, and then the checkpoint."""
        with self._guard:
            try:
                self._sync_rest()
            except OSError as error:
                self._note_failure(error)
                raise StoreUnusableError(f"queues, index or checkpoint cannot be synced: {error}") from error

    def _sync_rest(self) -> None:
        raise NotImplementedError

    def _save_checkpoint(self, save: Callable[[], None]) -> None:
        """Write the checkpoint; where the disk has no room for it the old one stays, and recovery reads more."""
        try:
            save()
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            self._tell_once(f"the checkpoint cannot be written: {error}")

    def _run(self) -> None:
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
                    self.sync_rest()
            except StoreUnusableError as error:
                if self._writer.failure is not None:
                    # The next put says so too.
                    _logger.error("flushing has ended: %s", error)
                    return
                self._tell_once(str(error))
                continue
            if now >= config_due:
                config_due = now + CONFIG_SAVE_INTERVAL_SECONDS
                self._save_tables()

    def _save_tables(self) -> None:
        """Save what has changed of the tables; on a full disk the files there stay, and the next turn tries again."""
        try:
            self._save_config()
        except OSError as error:
            self._tell_once(f"topics, groups and offsets cannot be saved: {error}")
        else:
            self._told = ""

    def _tell_once(self, what: str) -> None:
        if what != self._told:
            self._told = what
            _logger.error("%s; it is tried again", what)
