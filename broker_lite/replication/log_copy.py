"""A slave's log, which has the same bytes at the same offsets as the master's, with queues and index built from it.

Bytes arrive in arbitrary pieces. A record is added to its queue and the index when it is complete; an incomplete
one already belongs to the log, and recovery drops it if the process ends before the rest arrives. Source:
DefaultMessageStore.appendToCommitLog, ReputMessageService (5.5.0), which enters records in a separate thread.
"""

from __future__ import annotations

import logging

from commitlake.broker_lite.errors import DiskFullError, ReplicationError, StoreUnusableError
from commitlake.broker_lite.stores.engine.log_writer import LogProgress
from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.broker_lite.stores.rocketmq.dispatch import Dispatch, DispatchBuilder
from commitlake.broker_lite.stores.rocketmq.queues import AnyQueue
from commitlake.schemas.layouts.boltmq.dialect import BLANK_MAGICS, MESSAGE_MAGICS
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.commitlog import BLANK, MIN_RECORD_SIZE, Message

_logger = logging.getLogger(__name__)


class LogCopy:
    """Writer that appends the master's log to a slave's store; nothing else may write to that store."""

    def __init__(self, store: MessageStore) -> None:
        """Continue at the end of the log in the slave's store.

        Args:
            store: an open store that has no other writer.
        """
        self._store = store
        self._files = store.files
        self._log = store.files.log
        self._writer = store.writer
        self._dispatches = DispatchBuilder(store.options)
        self._known = store.recovery.progress

    @property
    def segment_size(self) -> int:
        """Size of the log's segment files, bytes."""
        return self._log.files.file_size

    @property
    def end_offset(self) -> int | None:
        """Physical offset of the end of the log; None for an empty store, whose log may start at any segment."""
        with self._writer.lock:
            return None if self._log.files.is_empty else self._log.end

    def append(self, physical_offset: int, data: bytes) -> None:
        """Append received bytes, all within one segment, and add complete records to queues and index.

        Raises:
            ReplicationError: if the bytes are not valid records; the log then ends before them.
            DiskFullError: if the disk is full; the log then ends before the first record that was not indexed.
            StoreUnusableError: if the store was closed, or a write failed half-way.
        """
        is_first = not self._known.store_timestamp
        try:
            with self._writer.lock:
                self._append_and_index(physical_offset, data)
        except (LayoutError, DiskFullError) as error:
            # Outside the lock: flushes and file deletion take another lock first.
            self._store.truncate_log(self._known)
            if isinstance(error, DiskFullError):
                raise
            raise ReplicationError(
                f"expected records of the master's log, found bytes that are no records: {error}"
            ) from error
        if is_first and self._known.store_timestamp:
            # Without this flush, a crash would leave an empty copy, which would start with another segment.
            self._store.flush()

    def _append_and_index(self, physical_offset: int, data: bytes) -> None:
        if self._writer.is_closed:
            raise StoreUnusableError("the store is closed: open it again to use it")
        self._writer.check_usable()
        if self._log.files.is_empty:
            self._known = LogProgress(physical_offset)
        self._log.append_copy(physical_offset, data)
        try:
            self._index_complete_records()
        except (LayoutError, DiskFullError):
            raise
        except BaseException as error:
            self._writer.failure = error
            raise
        self._writer.last = self._known._replace(log_end=self._log.end)

    def _index_complete_records(self) -> None:
        while (found := self._next_record()) is not None:
            size, message = found
            if message is None:
                self._known = self._known._replace(log_end=self._known.log_end + size)
                continue
            self._index_record(self._dispatches.make_dispatch(message))
            self._known = LogProgress(message.physical_offset + size, message.store_timestamp, message.physical_offset)

    def _next_record(self) -> tuple[int, Message | None] | None:
        """Return the next received record's size and message (None for filler), or None if it is incomplete."""
        position = self._known.log_end
        here = self._log.end - position
        if here < BLANK.size:
            return None
        size, magic = BLANK.unpack(*self._log.files.locate(position))
        room = self.segment_size - position % self.segment_size
        if magic in BLANK_MAGICS:
            return (room, None) if here >= room else None
        if magic in MESSAGE_MAGICS and not MIN_RECORD_SIZE <= size <= room:
            raise LayoutError("total_size", position, f"{MIN_RECORD_SIZE} to {room} bytes", f"{size}")
        # A record may arrive in several pieces. Anything with another magic is checked at once, and is an error.
        if magic in MESSAGE_MAGICS and here < size:
            return None
        return size, self._log.parse_at(position)

    def _index_record(self, record: Dispatch) -> None:
        queues, index = self._files.queues, self._files.index
        if record.is_queued:
            queue = queues.find(record.topic, record.queue_id)
            if queue is not None and _restarts_queue(queue, record):
                _logger.info("%s/%d restarts at %d, as on the master", queue.topic, queue.queue_id, record.queue_offset)
                queue.clear()
            queues.create_batch_topic_if_needed(record)
            # All records since the log's start are here: a gap in this queue is also in the master's queue.
            queues.dispatch_recovered(record, reads_whole_log=True)
            if queues.find(record.topic, record.queue_id) is not None:
                self._files.config.topics.ensure_queue(record.topic, record.queue_id)
                self._writer.arrived.add((record.topic, record.queue_id))
        if index is not None:
            index.put_recovered(record)


def _restarts_queue(queue: AnyQueue, dispatch: Dispatch) -> bool:
    """Return whether a record is the first of a recreated topic's queue, which the master had deleted."""
    return dispatch.queue_offset < queue.max_offset and dispatch.physical_offset > queue.last_record
