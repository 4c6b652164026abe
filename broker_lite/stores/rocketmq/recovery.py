"""Recovery at the opening of a store: makes log, queues and index consistent.

The log is read from a record up to which queues and index are known to be complete, to the first position without a
valid record; there the log ends. The records are entered again into queues and index, which skip those that they have.
Entries of queues and index after the end of the log are dropped. The bytes after the end stay in the file until the
first append (see `RecordLog.append`).

    after a clean stop  the last record that both queues and index have
    after a crash       the first record of the newest segment that both have and that is older than the time up to
                        which the checkpoint confirms everything; newer index files are deleted first

If the queues or the index are missing, reading starts at the log's first record, so that both are rebuilt; a single
missing queue is rebuilt when a later message of it is read. In both cases, RocketMQ starts at the beginning of a
segment, which it reads in a second. Unless `messageIndexSafe` is set, it chooses the segment by the queues alone, so it
can lose index entries in a crash. Here the index is completed.

Source: DefaultMessageStore.load, CommitLog.recoverNormally, recoverAbnormally (5.5.0).
"""

from __future__ import annotations

import logging

from commitlake.broker_lite.stores.engine.log_writer import LogProgress, QueueGapError, RecoveryReport
from commitlake.broker_lite.stores.rocketmq.dispatch import DispatchBuilder
from commitlake.broker_lite.stores.rocketmq.store_files import StoreFiles
from commitlake.schemas.layouts.errors import LayoutError

_logger = logging.getLogger(__name__)


class LogRecovery:
    """Recovery of a store when it is opened: makes log, queues and index consistent."""

    def __init__(self, files: StoreFiles, dispatching: DispatchBuilder) -> None:
        self._log = files.log
        self._queues = files.queues
        self._index = files.index
        self._checkpoint = files.checkpoint.value
        self._dispatching = dispatching

    def run(self, *, is_after_crash: bool) -> RecoveryReport:
        """Find the log's end, and make queues and index consistent with the log.

        Args:
            is_after_crash: True if the `abort` file was found.
        """
        if is_after_crash and self._index is not None:
            self._index.drop_newer_than(self._checkpoint.index_msg_timestamp)
        # Without a log, whatever queues and index contain points to nothing.
        if self._log.files.is_empty:
            self._queues.delete_all()
            if self._index is not None:
                self._index.drop_from_offset(0)
            return RecoveryReport(is_after_crash)
        self._queues.truncate_to_log_offset(self._log.files.end)
        self._queues.drop_invalid_tails(self._log)
        report = self._replay_until_consistent(is_after_crash)
        self._queues.truncate_to_log_offset(report.log_end)
        # Queues first, then the log: a process killed in between leaves queues that are too short, which the next
        # recovery completes.
        self._log.files.truncate(report.log_end)
        return report

    def _replay_until_consistent(self, is_after_crash: bool) -> RecoveryReport:
        while True:
            try:
                report = self._replay_log(self._find_start_offset(is_after_crash), is_after_crash)
            except QueueGapError as error:
                _logger.warning("rebuilding all queues: %s", error)
                self._queues.delete_all()
                continue
            # Entries of lost records would prevent new records at the same offset from being indexed.
            if self._index is not None and self._index.drop_from_offset(report.log_end):
                continue
            return report

    def _find_start_offset(self, is_after_crash: bool) -> int:
        """Return the physical offset of a record up to which queues and index are complete, at which reading starts."""
        known = self._queues.last_record
        if self._index is not None:
            known = min(known, self._index.end_physical_offset)
        # A clean stop proves nothing if another program has changed the files since, so the record itself is checked.
        if not is_after_crash and self._log.message_at(known) is not None:
            return known
        starts = self._log.files.file_starts
        for start in reversed(starts):
            first = self._log.message_at(start) if start <= known else None
            if first is not None and 0 < first.store_timestamp <= self._checkpoint.min_timestamp:
                return start
        return starts[0]

    def _replay_log(self, start_offset: int, is_after_crash: bool) -> RecoveryReport:
        from_log_start = start_offset == self._log.start
        records, last = 0, LogProgress(start_offset)
        self._queues.reset_type_evidence()
        while True:
            position = last.log_end
            try:
                message = self._log.parse_at(position)
            except LayoutError as error:
                if (following := self._next_segment(position)) is not None:
                    # The rest of the segment is filled. Without a next segment, the log ends before the BLANK.
                    last = last._replace(log_end=following)
                    continue
                self._queues.decide_queue_types()
                return RecoveryReport(is_after_crash, start_offset, records, last, str(error))
            dispatch = self._dispatching.make_dispatch(message)
            self._queues.dispatch_recovered(dispatch, reads_whole_log=from_log_start)
            if self._index is not None:
                self._index.put_recovered(dispatch)
            last = LogProgress(position + message.size, message.store_timestamp, position)
            records += 1

    def _next_segment(self, position: int) -> int | None:
        """Return the offset of the next segment, if a BLANK is at the position and a next segment exists; else None."""
        files = self._log.files
        if position >= files.end or not self._log.is_blank_at(position):
            return None
        following = files.file_end(position)
        return following if following < files.end else None
