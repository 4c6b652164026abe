"""Bringing journal and queues together when a store is opened.

The journal is read from where the checkpoint says that all before it was on the disk, queues too; without a checkpoint
that can be believed, from its start. What is read is entered into the queues, which have dropped what they had from
there on. Queues that do not have as many messages as the checkpoint has counted, or that lack one in front of what is
read, are built anew from the journal's start; entries of expired messages stay, because they carry the numbers on.

The journal ends behind the last record that proves itself, in the last file too: after a crash, pages of zeros can lie
before records that were acknowledged. What cannot be read before that is damage: it is skipped, and the messages that
were in it are lost, but none that can be read. What stands behind the end stays in the file until the first message is
put.
"""

from __future__ import annotations

import logging

from commitlake.broker_lite.stores.engine.progress import Progress
from commitlake.broker_lite.stores.engine.recovery import QueueGapError, RecoveryReport
from commitlake.broker_lite.stores.jmq.files import JournalFiles
from commitlake.schemas.layouts.errors import LayoutError

_logger = logging.getLogger(__name__)


def recover(files: JournalFiles, *, crashed: bool) -> RecoveryReport:
    """Find the journal's end, and make the queues agree with the journal.

    Args:
        files: the store's.
        crashed: whether `abort` was found.
    """
    journal, queues = files.journal, files.queues
    if journal.files.is_empty:
        queues.recover(0)
        return RecoveryReport(crashed, stopped_by="no journal")
    known = _known_progress(files)
    if known.log_end:
        queues.recover(known.log_end)
        if files.checkpoint.value is None or queues.entries != files.checkpoint.value.entries:
            _logger.warning("all queues are built anew: they do not have what the checkpoint has counted")
            known = Progress()
    try:
        report = _read(files, crashed, known)
    except QueueGapError as error:
        _logger.warning("all queues are built anew: %s", error)
        report = _read(files, crashed, Progress())
    journal.files.truncate(report.end)
    return report


def _known_progress(files: JournalFiles) -> Progress:
    """What the checkpoint vouches for; zeros where it is of another journal, or of none."""
    checkpoint, journal = files.checkpoint.value, files.journal
    if checkpoint is None or not journal.start < checkpoint.journal_end <= journal.end:
        return Progress()
    last = journal.message_at(checkpoint.last_record, verify_crc=False)
    if last is None or last.journal_offset + last.size != checkpoint.journal_end:
        return Progress()
    return Progress(checkpoint.journal_end, last.store_timestamp, last.journal_offset)


def _read(files: JournalFiles, crashed: bool, known: Progress) -> RecoveryReport:
    journal, queues = files.journal, files.queues
    is_from_start = not known.log_end
    last = Progress(journal.start) if is_from_start else known
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
        last = Progress(message.journal_offset + message.size, message.store_timestamp, message.journal_offset)
        records += 1
