"""Records in the answers to pull requests, decoded as rows of `messages`.

A broker sends the records of one queue as they are stored, one after the other. The compiled decoder of the log
therefore decodes them into the same columns with the same values. Only their physical offsets are unrelated to their
positions in the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from commitlake.connectors.formats.rocketmq.decoder import CommitLogDecoder
from commitlake.connectors.formats.rocketmq.format import FORMAT
from commitlake.connectors.formats.rocketmq.kernel.pulled_records import NO_FAULT, locate_records
from commitlake.connectors.formats.rocketmq.kernel.records import COMMITLOG_PART_COUNT
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.batches import BatchInspector, RowReader
from commitlake.connectors.reading.damage import FIRST_BYTES, BadRangeCounter, bad_range_rows
from commitlake.connectors.reading.decoding.columns import DecodedBatch
from commitlake.connectors.reading.errors import DamagedLogError
from commitlake.connectors.reading.files.segment_windows import read_numbers_at
from commitlake.connectors.reading.kernel.memory_access import PADDING
from commitlake.connectors.reading.kernel.record_walk import FAULT_BY_CODE, PROPERTIES, START
from commitlake.connectors.reading.read_request import Request
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.store_identity_check import compute_record_digest
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import base_offset_and_count
from commitlake.schemas.layouts.rocketmq.commitlog import HEAD
from commitlake.schemas.layouts.rocketmq.properties import parse_properties
from commitlake.schemas.layouts.rocketmq.scan import Fault
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH
from commitlake.schemas.layouts.segment_names import MAX_START_OFFSET

_MAX_RECORDS = 16_384
_AT_OWN_OFFSET = HEAD.offset_of("physical_offset")
_AT_SIZE = HEAD.offset_of("total_size")
_AT_SYS_FLAG = HEAD.offset_of("sys_flag")
_AT_QUEUE_OFFSET = HEAD.offset_of("queue_offset")


class _PulledBatch(DecodedBatch):
    """Batch of decoded records from the answer to a pull; each record contains its own physical offset."""

    def record_extent(self, row: int) -> tuple[int, int]:
        """Return the physical offsets of a record's first byte and of its end."""
        return _record_extent(self.window, int(self.parts[START, row]))


class _PulledDecoder(CommitLogDecoder):
    _batch = _PulledBatch


@dataclass(frozen=True, slots=True)
class PulledRange:
    """Range of physical and of queue offsets; records outside it are skipped when answers to pulls are decoded.

    Attributes:
        first_byte: physical offset; records before it are skipped.
        end_byte: physical offset; the first record at or after it, and all following ones, are skipped.
        queue_offsets: queue offsets of the wanted records. They are compared only if the answers may have other
            records. An inner batch is wanted if its first message is.
        may_exceed: whether the answers may have records outside `queue_offsets`, besides inner batches.
    """

    first_byte: int
    end_byte: int
    queue_offsets: range
    may_exceed: bool = False


class CutPosition(NamedTuple):
    """Position, in the answers to pulls, of the first record after the wanted range.

    Attributes:
        answer: index of the answer that contains it.
        records: number of records before it in that answer.
        all_records: number of all records in that answer.
        queue_offset: queue offset of the record.
    """

    answer: int
    records: int
    all_records: int
    queue_offset: int


class RecordDigest(NamedTuple):
    """Physical offset, size and digest of the last record that was taken from a broker's answers."""

    physical_offset: int
    size: int
    digest: str


class PulledRecords:
    """Decoder of the records in one broker's answers to pulls.

    Attributes:
        messages: number of messages in the records of the answers; a record of an inner batch holds several.
        has_inner_batches: whether one of the records holds several.
        taken: number of wanted, intact records. This and the following are only set if `PulledRange` were given.
        last_taken: the last wanted record.
        cut: the first record after the wanted ones in the last answers.
    """

    def __init__(self, broker: str, request: Request, inspect: BatchInspector | None = None) -> None:
        """Prepare to decode the answers of one broker.

        Args:
            broker: the broker's name, for the column.
            request: the requested columns, and the mode.
            inspect: receives the records of each batch, as by `read_split`.
        """
        self.messages = 0
        self.has_inner_batches = False
        self.taken = 0
        self.last_taken: RecordDigest | None = None
        self.cut: CutPosition | None = None
        self._inspect = inspect
        self._request = request
        # Error messages contain the broker's name in place of a path.
        self._split = Split(broker, f"broker {broker}", 0, 0, 0, 0, 0, FORMAT)
        self._refused = BadRangeCounter(self._split, request)
        self._reader = RowReader(self._split, request, self._refused, _PulledDecoder)
        self._intact = np.empty(_MAX_RECORDS, np.bool_)

    def decode_answers(
        self, answers: Sequence[bytes], wanted_range: PulledRange | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the records in the answers to pulls that are in the wanted range.

        Args:
            answers: the bodies, in the order of the queue.
            wanted_range: the wanted records; by default all.

        Raises:
            DamagedLogError: for bytes that are not records, in any mode; in mode FAILFAST also for a record that is
                damaged.
        """
        length = sum(len(answer) for answer in answers)
        # The decoder may read some bytes beyond a record.
        window = np.zeros(length + PADDING, np.uint8)
        filled = 0
        for answer in answers:
            window[filled : filled + len(answer)] = np.frombuffer(answer, np.uint8)
            filled += len(answer)
        parts = np.empty((COMMITLOG_PART_COUNT, min(_MAX_RECORDS, length // 64 + 1)), np.int64)
        position = 0
        starts: list[Array] = []
        cut_at: int | None = None
        while position < length:
            position, rows, fault = locate_records(window, position, length, parts, self._intact)
            found, intact = parts[:, :rows], self._intact[:rows]
            self._check_offsets(window, found)
            self.messages += self._count_messages(window, found)
            if wanted_range is not None:
                starts.append(found[START].copy())
                if cut_at is None:
                    # Answers may exceed the range, and inner batches have several queue offsets in a record.
                    by_number = wanted_range.may_exceed or self.has_inner_batches
                    chosen, cut_at = _wanted_record_mask(window, found, wanted_range, is_by_queue_offset=by_number)
                    found, intact = found[:, chosen], intact[chosen]
                    self._count_and_note_last_record(window, found, intact)
                else:  # records after the wanted ones are only counted
                    found, intact = found[:, :0], intact[:0]
            if intact.all():
                yield from self._reader.decode_located_records(window, 0, found, self._inspect)
            else:
                yield from self._make_rows_with_damage(window, found, intact)
            if fault != NO_FAULT:
                raise DamagedLogError(
                    f"{self._split.path}: expected whole records in the broker's answer to a pull, found "
                    f"{FAULT_BY_CODE[fault]} at byte {position} of {length}"
                )
        self.cut = None if cut_at is None else _locate_cut_position(window, answers, np.concatenate(starts), cut_at)

    def _check_offsets(self, window: Array, record_parts: Array) -> None:
        """Refuse records with impossible offsets, which would otherwise be skipped like records outside the range."""
        offsets = read_numbers_at(window, record_parts[START] + _AT_OWN_OFFSET, ">i8")
        wrong = offsets[(offsets < 0) | (offsets > MAX_START_OFFSET)]
        if len(wrong):
            raise DamagedLogError(
                f"{self._split.path}: expected records with valid offsets in the broker's answer to a pull, found one "
                f"with physical offset {wrong[0]}"
            )

    def log_dropped_records(self) -> None:
        """Log the number of damaged records that were left out of the rows."""
        self._refused.log_counts()

    def _make_rows_with_damage(
        self, window: Array, record_parts: Array, intact_mask: Array
    ) -> Iterator[pa.RecordBatch]:
        # The first damaged record.
        first = int(np.argmin(intact_mask))
        if first:  # in mode FAILFAST, rows before the damage are returned
            yield from self._reader.decode_located_records(
                window, 0, np.ascontiguousarray(record_parts[:, :first]), self._inspect
            )
        values = [self._report_damage(window, int(start)) for start in record_parts[START, ~intact_mask]]
        yield from bad_range_rows(values, self._split, self._request)
        intact_mask = intact_mask.copy()
        intact_mask[:first] = False
        if intact_mask.any():
            yield from self._reader.decode_located_records(
                window, 0, np.ascontiguousarray(record_parts[:, intact_mask]), self._inspect
            )

    def _count_and_note_last_record(self, window: Array, record_parts: Array, intact_mask: Array) -> None:
        """Count the intact records, and remember the position and digest of the last record, even if it is damaged."""
        self.taken += int(intact_mask.sum())
        if record_parts.shape[1]:
            start = int(record_parts[START, -1])
            begin, end = _record_extent(window, start)
            record = window[start : start + end - begin].tobytes()
            self.last_taken = RecordDigest(begin, end - begin, compute_record_digest(record))

    def _report_damage(self, window: Array, record_start: int) -> dict[str, object]:
        begin, end = _record_extent(window, record_start)
        first = window[record_start : record_start + min(FIRST_BYTES, end - begin)].tobytes()
        expected, found = "a body that matches its checksum", "another body"
        return self._refused.count_bad_range(begin, end, Fault.BODY_CRC, expected, found, first)

    def _count_messages(self, window: Array, record_parts: Array) -> int:
        """Return the number of messages in records."""
        flags = read_numbers_at(window, record_parts[START] + _AT_SYS_FLAG, ">i4")
        count = int(record_parts.shape[1])
        for row in np.flatnonzero(flags & INNER_BATCH).tolist():
            self.has_inner_batches = True
            begin = int(record_parts[PROPERTIES, row])
            raw = window[begin : begin + int(record_parts[PROPERTIES + 1, row])].tobytes()
            own = int.from_bytes(window[int(record_parts[START, row]) + _AT_QUEUE_OFFSET :][:8].tobytes())
            count += base_offset_and_count(dict(parse_properties(raw)), own)[1] - 1
        return count


def parse_first_record(answer: bytes) -> tuple[RecordDigest, int] | None:
    """Return the first record of an answer and its queue offset; None if the answer has no complete record."""
    if len(answer) < HEAD.size:
        return None
    size = int.from_bytes(answer[_AT_SIZE : _AT_SIZE + 4])
    if not HEAD.size <= size <= len(answer):
        return None
    offset = int.from_bytes(answer[_AT_OWN_OFFSET : _AT_OWN_OFFSET + 8])
    number = int.from_bytes(answer[_AT_QUEUE_OFFSET : _AT_QUEUE_OFFSET + 8])
    return RecordDigest(offset, size, compute_record_digest(answer[:size])), number


def _wanted_record_mask(
    window: Array, record_parts: Array, wanted_range: PulledRange, *, is_by_queue_offset: bool
) -> tuple[Array, int | None]:
    """Return a mask of the wanted records, and the window position of the first record after them (None if none)."""
    offsets = read_numbers_at(window, record_parts[START] + _AT_OWN_OFFSET, ">i8")
    chosen: Array = offsets >= wanted_range.first_byte
    if is_by_queue_offset:
        own = read_numbers_at(window, record_parts[START] + _AT_QUEUE_OFFSET, ">i8")
        chosen &= (own >= wanted_range.queue_offsets.start) & (own < wanted_range.queue_offsets.stop)
    past = np.flatnonzero(offsets >= wanted_range.end_byte)
    if not len(past):
        return chosen, None
    chosen[past[0] :] = False
    return chosen, int(record_parts[START, past[0]])


def _locate_cut_position(window: Array, answers: Sequence[bytes], record_starts: Array, position: int) -> CutPosition:
    ends = np.cumsum([len(answer) for answer in answers])
    number = int(np.searchsorted(ends, position, "right"))
    begin, end = int(ends[number]) - len(answers[number]), int(ends[number])
    in_answer = record_starts[(record_starts >= begin) & (record_starts < end)]
    own = int.from_bytes(window[position + _AT_QUEUE_OFFSET :][:8].tobytes())
    return CutPosition(number, int((in_answer < position).sum()), len(in_answer), own)


def _record_extent(window: Array, record_start: int) -> tuple[int, int]:
    offset = int.from_bytes(window[record_start + _AT_OWN_OFFSET : record_start + _AT_OWN_OFFSET + 8].tobytes())
    return offset, offset + int.from_bytes(window[record_start + _AT_SIZE : record_start + _AT_SIZE + 4].tobytes())
