"""Everything that a store's folder holds, opened together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from commitlake.broker_lite.stores.engine.mapped_file import Mappings
from commitlake.broker_lite.stores.rocketmq import commitlog, consume_queue, message_index
from commitlake.broker_lite.stores.rocketmq.checkpoint_file import CheckpointFile
from commitlake.broker_lite.stores.rocketmq.commitlog import CommitLog
from commitlake.broker_lite.stores.rocketmq.config_files import ConfigFiles
from commitlake.broker_lite.stores.rocketmq.message_index import MessageIndex
from commitlake.broker_lite.stores.rocketmq.options import StoreOptions
from commitlake.broker_lite.stores.rocketmq.queues import StoreQueues
from commitlake.broker_lite.stores.rocketmq.timer_files import TimerFiles
from commitlake.schemas.store_files import make_folders


@dataclass(frozen=True)
class StoreFiles:
    """The files of one store.

    Attributes:
        log: the messages.
        queues: every topic's queues.
        index: the way from keys to messages; None in a store that keeps none.
        checkpoint: how far they are on the disk.
        timers: which messages of the timer topic wait.
        config: topics, groups and offsets.
        mappings: what maps them into memory.
    """

    log: CommitLog
    queues: StoreQueues
    index: MessageIndex | None
    checkpoint: CheckpointFile
    timers: TimerFiles
    config: ConfigFiles
    mappings: Mappings

    @classmethod
    def load(cls, root: Path, options: StoreOptions, clock: Callable[[], int]) -> StoreFiles:
        """Open the files below `root`; folders that are missing are made.

        Raises:
            StoreFilesError: if files do not fit the options or one another.
            UnsafeFileError: for a link, or something else that is no file, among them.
            ConfigFileError: if a config file is broken, and its `.bak` too.
        """
        for folder in (commitlog.FOLDER, consume_queue.FOLDER, message_index.FOLDER):
            make_folders(root / folder, below=root)
        mappings = Mappings(root=root)
        index = MessageIndex(root, options.index_geometry, mappings, clock) if options.has_index else None
        config = ConfigFiles(root, clock, options.dialect)
        return cls(
            log=CommitLog(root, options, mappings),
            queues=StoreQueues(root, options, mappings, config.topics),
            index=index,
            checkpoint=CheckpointFile(root),
            timers=TimerFiles(root, options.timer_log_file_size_bytes, mappings),
            config=config,
            mappings=mappings,
        )

    def delete_expired(self, min_physical_offset: int, _: float) -> None:
        """Remove the files of queues and index that only lead before an offset of the log."""
        self.queues.delete_expired(min_physical_offset)
        self.timers.delete_expired(min_physical_offset)
        if self.index is not None:
            self.index.drop_expired(min_physical_offset)
