"""Flushes of a store in JMQ's layout: the journal at once or twice a second, the rest every second."""

from __future__ import annotations

from collections.abc import Callable

from commitlake.broker_lite.stores.engine.flushing import LogFlusher
from commitlake.broker_lite.stores.jmq.files import JournalFiles
from commitlake.broker_lite.stores.jmq.options import JournalOptions
from commitlake.broker_lite.stores.jmq.writing import JournalWriter
from commitlake.schemas.layouts.jmq.checkpoint import JournalCheckpoint


class JournalFlusher(LogFlusher):
    """Flusher of a store in JMQ's layout."""

    def __init__(
        self, options: JournalOptions, writer: JournalWriter, files: JournalFiles, save_beside: Callable[[], None]
    ) -> None:
        super().__init__(options, writer, files.journal.files, self._save)
        self._offsets = files.offsets
        self._save_beside = save_beside
        self._lock = writer.lock
        self._queues = files.queues
        self._consume_log = files.consume_log
        self._checkpoint = files.checkpoint

    def _save(self) -> None:
        self._offsets.save_changed()
        self._save_beside()

    def _sync_rest(self) -> None:
        with self._lock:
            progress, entries, consumed = self._writer.last, self._queues.entries, self._consume_log.files.end
        # The checkpoint confirms both, so both are flushed up to their state at one moment.
        self._sync_log()
        self._queues.sync()
        self._consume_log.files.sync(consumed)
        if progress.log_end:
            log_end, store_timestamp, last_record = progress
            checkpoint = JournalCheckpoint(log_end, last_record, store_timestamp, entries)
            self._save_checkpoint(lambda: self._checkpoint.save(checkpoint))
