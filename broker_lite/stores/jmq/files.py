"""All files of a store in JMQ's layout, opened together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from commitlake.broker_lite.stores.engine.checkpoint_file import read_in_place, write_in_place
from commitlake.broker_lite.stores.engine.mapped_file import Mappings
from commitlake.broker_lite.stores.jmq.consume_log import ConsumeLog
from commitlake.broker_lite.stores.jmq.journal import Journal
from commitlake.broker_lite.stores.jmq.offset_file import OffsetFile
from commitlake.broker_lite.stores.jmq.options import JournalOptions
from commitlake.broker_lite.stores.jmq.queues import JournalQueues
from commitlake.schemas.layouts.jmq import consumption as jmq_consumption
from commitlake.schemas.layouts.jmq import journal
from commitlake.schemas.layouts.jmq import queue as jmq_queue
from commitlake.schemas.layouts.jmq.checkpoint import (
    FILE_NAME,
    JournalCheckpoint,
    parse_journal_checkpoint,
    serialize_journal_checkpoint,
)
from commitlake.schemas.store_files import make_folders


class JournalCheckpointFile:
    """Checkpoint on disk.

    Attributes:
        value: content of the file when it was opened; None if it is missing or invalid.
    """

    def __init__(self, root: Path) -> None:
        self._path = root / FILE_NAME
        stored = read_in_place(self._path)
        self.value = None if stored is None else parse_journal_checkpoint(stored)

    def save(self, checkpoint: JournalCheckpoint) -> None:
        """Write the file and flush it to disk; it is a single page, so the disk has either the old or the new one."""
        write_in_place(self._path, serialize_journal_checkpoint(checkpoint))


@dataclass(frozen=True)
class JournalFiles:
    """Files of one store.

    Attributes:
        journal: messages.
        queues: queues of all topics.
        offsets: positions of all applications.
        consume_log: records of consumption.
        checkpoint: positions up to which everything is on disk.
        mappings: limits the number of mapped files.
    """

    journal: Journal
    queues: JournalQueues
    offsets: OffsetFile
    consume_log: ConsumeLog
    checkpoint: JournalCheckpointFile
    mappings: Mappings

    @classmethod
    def load(cls, root: Path, options: JournalOptions, clock: Callable[[], int]) -> JournalFiles:
        """Open the files below `root`, and create missing folders.

        Raises:
            StoreFilesError: if files do not fit the options or one another.
            UnsafeFileError: if one of them is a symbolic link or not a regular file.
            ConfigFileError: if the offset file and its `.bak` are invalid.
        """
        for folder in (journal.FOLDER, jmq_queue.FOLDER, jmq_consumption.FOLDER):
            make_folders(root / folder, below=root)
        mappings = Mappings(root=root)
        return cls(
            journal=Journal(root, options, mappings),
            queues=JournalQueues(root, options.queue_file_size_bytes, mappings),
            offsets=OffsetFile(root, clock),
            consume_log=ConsumeLog(root, options.consume_file_size_bytes, mappings),
            checkpoint=JournalCheckpointFile(root),
            mappings=mappings,
        )

    def delete_expired(self, min_journal_offset: int, written_seconds: float) -> None:
        """Delete queue files that only point before an offset of the journal, and old consume records.

        Args:
            min_journal_offset: first offset of the journal.
            written_seconds: time of the last write to the newest deleted journal file, s since 1970.
        """
        self.queues.delete_expired(min_journal_offset)
        self.consume_log.delete_expired(written_seconds)
