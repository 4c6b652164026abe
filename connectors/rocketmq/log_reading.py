"""Reading of queue ranges for an archive: every message up to a position in the log, each exactly once.

`source.range_reader` reads for Spark, with filters. This reader is for an archive: it ends where the log ended when the
run was planned, reports its position in each queue, and passes on the bodies while they are in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from commitlake.connectors.formats.rocketmq.pulled_records import (
    CutPosition,
    PulledRange,
    PulledRecords,
    RecordDigest,
    parse_first_record,
)
from commitlake.connectors.reading.batches import BatchInspector
from commitlake.connectors.reading.errors import DamagedLogError
from commitlake.connectors.reading.read_request import Request
from commitlake.connectors.rocketmq.errors import RocketMQError
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.connectors.rocketmq.queue_reading import LogPart, PulledAnswer, QueueRange, format_queue, read_range
from commitlake.connectors.rocketmq.throttle import Throttle
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.remoting.routes import MessageQueue

_MAX_BATCH_BYTES = 4 << 20


@dataclass(slots=True)
class ReadRange:
    """Result of reading a range of a queue: the offsets that were read, and the numbers of read and of lost messages.

    Attributes:
        wanted: the requested range.
        begin: the offset at which it begins; earlier than requested if the topic was recreated.
        end: the queue offset after the last one that was read.
        taken: number of messages that were yielded.
        lost: number of messages that the broker has deleted or does not send.
        lost_where: description of the first of them.
        is_new_queue: whether the topic was recreated since the previous run.
        last_taken: the last returned message.
    """

    wanted: QueueRange
    begin: int
    end: int
    taken: int = 0
    lost: int = 0
    lost_where: str = ""
    is_new_queue: bool = False
    last_taken: RecordDigest | None = None

    def add_lost_messages(self, count: int, location: str) -> None:
        """Count messages that cannot be read, and remember where the first of them are."""
        self.lost += count
        self.lost_where = self.lost_where or location


class LogReader:
    """A reader that pulls ranges of queues from brokers, as batches of rows for an archive.

    Args:
        puller: client for the brokers.
        request: columns and mode.
        inspect: called with the records of each batch, as by `read_split`.
        throttle: notified of all data read.
        retry_seconds: time for which an unresponsive broker is retried.
    """

    def __init__(
        self, puller: Puller, request: Request, inspect: BatchInspector | None, throttle: Throttle, retry_seconds: float
    ) -> None:
        self._puller = puller
        self._request = request
        self._inspect = inspect
        self._throttle = throttle
        self._retry_seconds = retry_seconds

    def read(
        self, queue_range: QueueRange, log_part: LogPart, on_end: Callable[[ReadRange], None], *, is_resumed: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a queue range as rows.

        Args:
            log_part: the part of the log to read.
            on_end: called at the end with what was read.
            is_resumed: whether an earlier run has read up to the start of the range.

        Raises:
            RocketMQError: if the queue ends before the range, so the broker has lost messages, or if a request to the
                broker fails.
            DamagedLogError: if an answer contains bytes that are not records.
        """
        read = ReadRange(queue_range, queue_range.begin, queue_range.end)
        if is_resumed and self._was_queue_recreated(queue_range, log_part):
            first = self._puller.offsets.first(queue_range.queue)
            read.is_new_queue, read.begin = True, first
            queue_range = QueueRange(queue_range.queue, first, queue_range.end)
        records = PulledRecords(queue_range.queue.broker_name, self._request, self._inspect)

        def report_lost(lost_range: QueueRange, reason: str) -> None:
            if self._puller.offsets.next(queue_range.queue) < queue_range.end:
                raise RocketMQError(
                    f"{format_queue(queue_range.queue)}: expected messages up to queue offset {queue_range.end}, "
                    f"where the queue ended when the run began, found {reason}: the broker has lost messages. Run the "
                    "command again",
                    exit_code=ExitCode.USAGE,
                )
            read.add_lost_messages(lost_range.size, f"{lost_range}: {reason}")

        waiting: list[PulledAnswer] = []
        covered = size = 0
        for answer in read_range(self._puller, queue_range, report_lost, retry_seconds=self._retry_seconds):
            covered += min(answer.end, queue_range.end) - answer.begin
            waiting.append(answer)
            size += len(answer.body)
            self._throttle.record_and_wait(answer.end - answer.begin, len(answer.body))
            if size >= _MAX_BATCH_BYTES:
                yield from self._read_wanted_rows(records, waiting, queue_range, log_part)
                if records.cut is not None:
                    break
                waiting, size = [], 0
        else:
            yield from self._read_wanted_rows(records, waiting, queue_range, log_part)
        if records.cut is not None:
            read.end = _queue_offset_at(records.cut, waiting)
        elif records.messages < covered:
            read.add_lost_messages(covered - records.messages, f"{queue_range}: the broker has not sent all of them")
        read.taken, read.last_taken = records.taken, records.last_taken
        on_end(read)

    def _read_wanted_rows(
        self, records: PulledRecords, answers: Sequence[PulledAnswer], queue_range: QueueRange, log_part: LogPart
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of pulled messages that are in a range of queue offsets and in a part of the log."""
        may_exceed = any(answer.may_exceed for answer in answers)
        chosen = PulledRange(
            log_part.first_byte, log_part.end_byte, range(queue_range.begin, queue_range.end), may_exceed
        )
        try:
            yield from records.decode_answers([answer.body for answer in answers], chosen)
        except DamagedLogError as error:
            raise DamagedLogError(
                f"{format_queue(queue_range.queue)}, queue offsets {answers[0].begin} to {answers[-1].end}: {error}. "
                "The broker's log or its queue is damaged there: 'archive --store' reads its files and keeps what is "
                "intact, or leave this topic out by naming the others with --topic"
            ) from None

    def _was_queue_recreated(self, queue_range: QueueRange, log_part: LogPart) -> bool:
        """Return True if the queue was recreated since an earlier run, as the message before the range differs.

        The queue of a recreated topic counts from 0 again. Its message at that offset is then newer than all messages
        that the earlier run could have read.
        """
        before = record_at(self._puller, queue_range.queue, queue_range.begin - 1, self._retry_seconds)
        return before is not None and before.physical_offset >= log_part.known_end


def record_at(puller: Puller, queue: MessageQueue, offset: int, retry_seconds: float) -> RecordDigest | None:
    """Return physical offset, size and digest of the record at a queue offset; None if the broker has none there.

    Raises:
        RocketMQError: if a request to the broker fails.
    """
    if offset < 0:
        return None
    for answer in read_range(
        puller, QueueRange(queue, offset, offset + 1), _ignore_missing, retry_seconds=retry_seconds
    ):
        found = parse_first_record(answer.body)
        if found is not None and found[1] <= offset:
            return found[0]
    return None


def _ignore_missing(_lost_range: QueueRange, _reason: str) -> None:
    """Do nothing about missing offsets; used as a callback for lost messages."""


def _queue_offset_at(cut_position: CutPosition, answers: Sequence[PulledAnswer]) -> int:
    """Return the queue offset of the first record after the wanted ones.

    If a log has lost messages, offsets in the queue differ from those in the records. So if an answer has a record for
    each of its offsets, the position of the record in the answer determines the offset.
    """
    answer = answers[cut_position.answer]
    if cut_position.all_records == answer.end - answer.begin:
        return answer.begin + cut_position.records
    return cut_position.queue_offset
