"""All files of a store in JMQ's layout: opened together, and made consistent by recovery."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from commitlake.broker_lite.stores.engine.log_writer import LogProgress, QueueGapError, RecoveryReport
from commitlake.broker_lite.stores.engine.mapped_file import MappedFiles
from commitlake.broker_lite.stores.engine.table_and_checkpoint_files import read_checkpoint_file_bytes, write_in_place
from commitlake.broker_lite.stores.jmq.consume_log import ConsumeLog
from commitlake.broker_lite.stores.jmq.journal import Journal
from commitlake.broker_lite.stores.jmq.offset_file import OffsetFile
from commitlake.broker_lite.stores.jmq.options import JournalOptions
from commitlake.broker_lite.stores.jmq.queues import JournalQueues
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.jmq import consume_records as jmq_consumption
from commitlake.schemas.layouts.jmq import journal
from commitlake.schemas.layouts.jmq import queue_file as jmq_queue
from commitlake.schemas.layouts.jmq.checkpoint import (
    FILE_NAME,
    JournalCheckpoint,
    parse_journal_checkpoint,
    serialize_journal_checkpoint,
)
from commitlake.schemas.safe_store_files import make_folders

_logger = logging.getLogger(__name__)


class JournalCheckpointFile:
    """Checkpoint of a store in JMQ's layout, in memory and on disk.

    Attributes:
        value: content of the file when it was opened; None if it is missing or invalid.
    """

    def __init__(self, root: Path) -> None:
        self._path = root / FILE_NAME
        stored = read_checkpoint_file_bytes(self._path)
        self.value = None if stored is None else parse_journal_checkpoint(stored)

    def save(self, checkpoint: JournalCheckpoint) -> None:
        """Write the file and flush it to disk; it is a single page, so the disk has either the old or the new one."""
        write_in_place(self._path, serialize_journal_checkpoint(checkpoint))


@dataclass(frozen=True)
class JournalFiles:
    """Open files of one store in JMQ's layout: journal, queues, consume records, offsets and checkpoint.

    Attributes:
        journal: journal with the messages.
        queues: queues of all topics.
        offsets: positions of all applications.
        consume_log: log of consume records.
        checkpoint: checkpoint, the positions up to which everything is on disk.
        mappings: registry that limits the number of mapped files.
    """

    journal: Journal
    queues: JournalQueues
    offsets: OffsetFile
    consume_log: ConsumeLog
    checkpoint: JournalCheckpointFile
    mappings: MappedFiles

    @classmethod
    def load(cls, root: Path, options: JournalOptions, clock: Callable[[], int]) -> JournalFiles:
        """Open the files below `root`, and create missing folders.

        Raises:
            StoreFilesError: if files do not fit the options or one another.
            UnsafeFileError: if one of them is a symbolic link or not a regular file.
            StoreError: if the offset file and its `.bak` are invalid.
        """
        for folder in (journal.FOLDER, jmq_queue.FOLDER, jmq_consumption.FOLDER):
            make_folders(root / folder, trusted_root=root)
        mappings = MappedFiles(root=root)
        return cls(
            journal=Journal(root, options, mappings),
            queues=JournalQueues(root, options.queue_file_size_bytes, mappings),
            offsets=OffsetFile(root, clock),
            consume_log=ConsumeLog(root, options.consume_file_size_bytes, mappings),
            checkpoint=JournalCheckpointFile(root),
            mappings=mappings,
        )

    def delete_expired(self, min_journal_offset: int, last_write_seconds: float) -> None:
        """Delete queue files whose entries all point before an offset of the journal, and old consume records.

        Args:
            min_journal_offset: first offset of the journal.
            last_write_seconds: time of the last write to the newest deleted journal file, s since 1970.
        """
        self.queues.delete_expired(min_journal_offset)
        self.consume_log.delete_expired(last_write_seconds)


def recover_journal(files: JournalFiles, *, is_after_crash: bool) -> RecoveryReport:
    """Find the journal's end, and make the queues consistent with the journal.

    The journal is read from the offset up to which the checkpoint confirms journal and queues; without a valid
    checkpoint, from its start. The records are entered into the queues, whose later entries were dropped. If the queues
    have fewer messages than the checkpoint counted, or lack one before the part that is read, they are rebuilt from the
    journal's start; entries of expired messages stay, to keep the numbering.

    The journal ends after the last valid record, even in the last file: after a crash, pages of zeros can precede
    records that were acknowledged. Unreadable bytes before that are damage: they are skipped, and only the messages in
    them are lost. Bytes after the end stay in the file until the first append.
    """
    journal, queues = files.journal, files.queues
    if journal.files.is_empty:
        queues.recover(0)
        return RecoveryReport(is_after_crash, stopped_by="no journal")
    known = _confirmed_progress(files)
    if known.log_end:
        queues.recover(known.log_end)
        # The sum of all queues shows a lost queue or file, of which nothing is left to see otherwise.
        if files.checkpoint.value is None or queues.entry_count != files.checkpoint.value.entries:
            _logger.warning("rebuilding all queues: they do not match the count in the checkpoint")
            known = LogProgress()
    try:
        report = _replay_journal(files, is_after_crash, known)
    except QueueGapError as error:
        _logger.warning("rebuilding all queues: %s", error)
        report = _replay_journal(files, is_after_crash, LogProgress())
    journal.files.truncate(report.log_end)
    return report


def _confirmed_progress(files: JournalFiles) -> LogProgress:
    """Return the progress in the checkpoint if the journal has its last record at that place, else zeros."""
    checkpoint, journal = files.checkpoint.value, files.journal
    if checkpoint is None or not journal.start < checkpoint.journal_end <= journal.end:
        return LogProgress()
    # The body is not needed here: offset and size show that it is the record which the checkpoint means.
    last = journal.message_at(checkpoint.last_record, verify_crc=False)
    if last is None or last.journal_offset + last.size != checkpoint.journal_end:
        return LogProgress()
    return LogProgress(checkpoint.journal_end, last.store_timestamp, last.journal_offset)


def _replay_journal(files: JournalFiles, is_after_crash: bool, confirmed_progress: LogProgress) -> RecoveryReport:
    journal, queues = files.journal, files.queues
    is_from_start = not confirmed_progress.log_end
    last = LogProgress(journal.start) if is_from_start else confirmed_progress
    start = last.log_end
    if is_from_start:
        queues.recover(start)
    journal.lost_bytes = records = 0
    while True:
        try:
            message = journal.next_message(last.log_end, journal.end)
        except LayoutError as error:
            return RecoveryReport(is_after_crash, start, records, last, str(error), journal.lost_bytes)
        queues.dispatch_recovered(message, reads_whole_journal=is_from_start, journal_start=journal.start)
        last = LogProgress(message.journal_offset + message.size, message.store_timestamp, message.journal_offset)
        records += 1
