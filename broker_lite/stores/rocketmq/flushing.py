"""Flushes of a store in RocketMQ's layout: log, queues, timers and index, and then the checkpoint."""

from __future__ import annotations

from commitlake.broker_lite.stores.engine.flushing import LogFlusher
from commitlake.broker_lite.stores.engine.progress import LogProgress
from commitlake.broker_lite.stores.rocketmq.files import StoreFiles
from commitlake.broker_lite.stores.rocketmq.options import StoreOptions
from commitlake.broker_lite.stores.rocketmq.writing import Writer


class Flusher(LogFlusher):
    """Flusher of a store in RocketMQ's layout."""

    def __init__(self, options: StoreOptions, writer: Writer, files: StoreFiles) -> None:
        super().__init__(options, writer, files.log.files, files.config.save_changed)
        self._queues = files.queues
        self._index = files.index
        self._checkpoint = files.checkpoint
        self._timers = files.timers
        self._log_synced = writer.last

    def _note_synced_log(self, progress: LogProgress) -> None:
        self._log_synced = progress
        if progress.store_timestamp:
            self._checkpoint.update(physic_msg_timestamp=progress.store_timestamp)

    def _sync_rest(self) -> None:
        progress = self._writer.last
        self._queues.sync()
        self._timers.sync()
        if self._index is not None:
            self._index.sync_full_files()
            if self._index.synced_timestamp:
                self._checkpoint.update(index_msg_timestamp=self._index.synced_timestamp)
        if progress.store_timestamp:
            self._checkpoint.update(
                logics_msg_timestamp=progress.store_timestamp,
                # The log is also on disk up to this record: a copy of a log keeps nothing after it.
                logics_physical_offset=self._log_synced.last_record,
            )
        self._save_checkpoint(self._checkpoint.save)
