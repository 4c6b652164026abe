"""All files of a store's folder, opened together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from commitlake.broker_lite.stores.engine.mapped_file import MappedFiles
from commitlake.broker_lite.stores.engine.table_and_checkpoint_files import read_checkpoint_file_bytes, write_in_place
from commitlake.broker_lite.stores.rocketmq import commitlog, consume_queue, message_index
from commitlake.broker_lite.stores.rocketmq.commitlog import CommitLog
from commitlake.broker_lite.stores.rocketmq.config_files import ConfigFiles
from commitlake.broker_lite.stores.rocketmq.message_index import MessageIndex
from commitlake.broker_lite.stores.rocketmq.options import StoreOptions
from commitlake.broker_lite.stores.rocketmq.queues import StoreQueues
from commitlake.broker_lite.stores.rocketmq.timer_files import TimerFiles
from commitlake.schemas.layouts.rocketmq.checkpoint import FILE_SIZE, parse_checkpoint, serialize_checkpoint
from commitlake.schemas.safe_store_files import make_folders

FILE_NAME = "checkpoint"


class CheckpointFile:
    """Checkpoint of a store in RocketMQ's layout, in memory and on disk.

    Attributes:
        value: values to be written by the next `save`.
    """

    def __init__(self, root: Path) -> None:
        """Read the file; missing values become 0, which makes recovery read the whole log."""
        self._path = root / FILE_NAME
        stored = read_checkpoint_file_bytes(self._path) or b""
        self.value = parse_checkpoint(stored.ljust(FILE_SIZE, b"\0"))

    def update(self, **values: int) -> None:
        """Set fields of the checkpoint that the next `save` writes."""
        self.value = replace(self.value, **values)

    def save(self) -> None:
        """Write the file and flush it to disk; it is a single page, so the disk has either the old or the new one."""
        write_in_place(self._path, serialize_checkpoint(self.value))


@dataclass(frozen=True)
class StoreFiles:
    """Open files of one store in RocketMQ's layout: log, queues, index, config files, timers and checkpoint.

    Attributes:
        log: CommitLog with the messages.
        queues: queues of all topics.
        index: index from keys to messages; None in a store without one.
        checkpoint: checkpoint, the times up to which everything is on disk.
        timers: files of waiting timer messages.
        config: topics, groups and offsets.
        mappings: registry that limits the number of mapped files.
    """

    log: CommitLog
    queues: StoreQueues
    index: MessageIndex | None
    checkpoint: CheckpointFile
    timers: TimerFiles
    config: ConfigFiles
    mappings: MappedFiles

    @classmethod
    def load(cls, root: Path, options: StoreOptions, clock: Callable[[], int]) -> StoreFiles:
        """Open the files below `root`, and create missing folders.

        Raises:
            StoreFilesError: if files do not fit the options or one another.
            UnsafeFileError: if one of them is a symbolic link or not a regular file.
            StoreError: if a config file and its `.bak` are invalid.
        """
        for folder in (commitlog.FOLDER, consume_queue.FOLDER, message_index.FOLDER):
            make_folders(root / folder, trusted_root=root)
        mappings = MappedFiles(root=root)
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
        """Delete files of queues and index whose entries all point before an offset of the log."""
        self.queues.delete_expired(min_physical_offset)
        self.timers.delete_expired(min_physical_offset)
        if self.index is not None:
            self.index.drop_expired(min_physical_offset)
