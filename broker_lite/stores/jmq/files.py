"""Everything that the folder of a store in JMQ's layout holds, opened together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from commitlake.broker_lite.stores.engine.mapped_file import Mappings
from commitlake.broker_lite.stores.jmq.checkpoint_file import JournalCheckpointFile
from commitlake.broker_lite.stores.jmq.consume_log import ConsumeLog
from commitlake.broker_lite.stores.jmq.journal import Journal
from commitlake.broker_lite.stores.jmq.offset_file import OffsetFile
from commitlake.broker_lite.stores.jmq.options import JournalOptions
from commitlake.broker_lite.stores.jmq.queues import JournalQueues
from commitlake.schemas.layouts.jmq import consumption as jmq_consumption
from commitlake.schemas.layouts.jmq import journal
from commitlake.schemas.layouts.jmq import queue as jmq_queue
from commitlake.schemas.store_files import make_folders


@dataclass(frozen=True)
class JournalFiles:
    """The files of one store.

    Attributes:
        journal: the messages.
        queues: every topic's queues.
        offsets: how far each application has consumed them.
        consume_log: what became of each message.
        checkpoint: how far they are on the disk.
        mappings: what maps them into memory.
    """

    journal: Journal
    queues: JournalQueues
    offsets: OffsetFile
    consume_log: ConsumeLog
    checkpoint: JournalCheckpointFile
    mappings: Mappings

    @classmethod
    def load(cls, root: Path, options: JournalOptions, clock: Callable[[], int]) -> JournalFiles:
        """Open the files below `root`; folders that are missing are made.

        Raises:
            StoreFilesError: if files do not fit the options or one another.
            UnsafeFileError: for a link, or something else that is no file, among them.
            ConfigFileError: if the offset file is broken, and its `.bak` too.
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
        """Remove the files of queues that only lead before an offset of the journal, and of consume records.

        Args:
            min_journal_offset: where the journal begins now.
            written_seconds: when the last file before that was written to last, s since 1970.
        """
        self.queues.delete_expired(min_journal_offset)
        self.consume_log.delete_expired(written_seconds)
