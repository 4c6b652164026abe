"""Recovery at the opening of a store: makes journal and queues consistent.

The journal is read from the offset up to which the checkpoint confirms journal and queues; without a valid checkpoint,
from its start. The records are entered into the queues, whose later entries were dropped. If the queues have fewer
messages than the checkpoint counted, or lack one before the part that is read, they are rebuilt from the journal's
start; entries of expired messages stay, to keep the numbering.

The journal ends after the last valid record, even in the last file: after a crash, pages of zeros can precede records
that were acknowledged. Unreadable bytes before that are damage: they are skipped, and only the messages in them are
lost. Bytes after the end stay in the file until the first append.
"""

from __future__ import annotations

import logging

from commitlake.broker_lite.stores.engine.progress import LogProgress
from commitlake.broker_lite.stores.engine.recovery import QueueGapError, RecoveryReport
from commitlake.broker_lite.stores.jmq.files import JournalFiles
from commitlake.schemas.layouts.errors import LayoutError

_logger = logging.getLogger(__name__)


def recover(files: JournalFiles, *, crashed: bool) -> RecoveryReport:
    """Find the journal's end, and make the queues consistent with the journal.

    Args:
        crashed: True if the `abort` file was found.
    """
    journal, queues = files.journal, files.queues
    if journal.files.is_empty:
        queues.recover(0)
        return RecoveryReport(crashed, stopped_by="no journal")
    known = _known_progress(files)
    if known.log_end:
        queues.recover(known.log_end)
        if files.checkpoint.value is None or queues.entries != files.checkpoint.value.entries:
            _logger.warning("rebuilding all queues: they do not match the count in the checkpoint")
            known = LogProgress()
    try:
        report = _read(files, crashed, known)
    except QueueGapError as error:
        _logger.warning("rebuilding all queues: %s", error)
        report = _read(files, crashed, LogProgress())
    journal.files.truncate(report.end)
    return report


def _known_progress(files: JournalFiles) -> LogProgress:
    """Return the progress that the checkpoint confirms; zeros if it is missing or belongs to another journal."""
    checkpoint, journal = files.checkpoint.value, files.journal
    if checkpoint is None or not journal.start < checkpoint.journal_end <= journal.end:
        return LogProgress()
    last = journal.message_at(checkpoint.last_record, verify_crc=False)
    if last is None or last.journal_offset + last.size != checkpoint.journal_end:
        return LogProgress()
    return LogProgress(checkpoint.journal_end, last.store_timestamp, last.journal_offset)


def _read(files: JournalFiles, crashed: bool, known: LogProgress) -> RecoveryReport:
    journal, queues = files.journal, files.queues
    is_from_start = not known.log_end
    last = LogProgress(journal.start) if is_from_start else known
    start = last.log_end
    if is_from_start:
        queues.recover(start)
    journal.lost_bytes = records = 0
    while True:
        try:
            message = journal.next_message(last.log_end, journal.end)
        except LayoutError as error:
            return RecoveryReport(crashed, start, records, last, str(error), journal.lost_bytes)
        queues.dispatch_again(message, from_journal_start=is_from_start, journal_start=journal.start)
        last = LogProgress(message.journal_offset + message.size, message.store_timestamp, message.journal_offset)
        records += 1
