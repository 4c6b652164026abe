"""Bodies of answers to pulls as rows of `messages`.

A broker sends records as they are stored, one after another, of one queue. So the compiled decoder of the log decodes
them too, into the same columns with the same values; only their offsets say nothing about where they lie in the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.engine.batches import RowReader
from commitlake.connectors.formats.engine.decoded import DecodedBatch
from commitlake.connectors.formats.engine.errors import DamagedLogError
from commitlake.connectors.formats.engine.kernel.hop import FAULT_BY_CODE, PROPERTIES, START
from commitlake.connectors.formats.engine.kernel.memory import PADDING
from commitlake.connectors.formats.engine.refused import FIRST_BYTES, Refused, bad_rows
from commitlake.connectors.formats.engine.request import Request
from commitlake.connectors.formats.engine.splits import Split
from commitlake.connectors.formats.engine.windows import numbers_at
from commitlake.connectors.formats.rocketmq.decoder import CommitLogDecoder
from commitlake.connectors.formats.rocketmq.format import FORMAT
from commitlake.connectors.formats.rocketmq.kernel.pulled import NO_FAULT, locate_records
from commitlake.connectors.formats.rocketmq.kernel.records import COMMITLOG_PART_COUNT
from commitlake.schemas.layouts.rocketmq.commitlog import HEAD
from commitlake.schemas.layouts.rocketmq.inner_batch import queue_numbers
from commitlake.schemas.layouts.rocketmq.properties import parse_properties
from commitlake.schemas.layouts.rocketmq.scan import Fault
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH

_MAX_RECORDS = 16_384
_AT_OWN_OFFSET = HEAD.offset_of("physical_offset")
_AT_SIZE = HEAD.offset_of("total_size")
_AT_SYS_FLAG = HEAD.offset_of("sys_flag")
_AT_QUEUE_OFFSET = HEAD.offset_of("queue_offset")


class _PulledBatch(DecodedBatch):
    """Records of an answer, which know their own offsets."""

    def extent_of(self, row: int) -> tuple[int, int]:
        """Physical offsets of a record's first byte, and of the byte behind it."""
        return _own_extent(self.window, int(self.parts[START, row]))


class _PulledDecoder(CommitLogDecoder):
    _batch = _PulledBatch


class PulledRecords:
    """Decodes answers of one broker.

    Attributes:
        messages: how many messages the decoded records hold; a record of an inner batch holds several.
        has_inner_batches: whether one of the records holds several.
    """

    def __init__(self, broker: str, request: Request) -> None:
        """Prepare to decode.

        Args:
            broker: its name, for the column.
            request: columns and mode.
        """
        self.messages = 0
        self.has_inner_batches = False
        self._request = request
        # Where a store's split has a path, messages of errors get the broker's name.
        self._split = Split(broker, f"broker {broker}", 0, 0, 0, 0, 0, FORMAT)
        self._refused = Refused(self._split, request)
        self._reader = RowReader(self._split, request, self._refused, _PulledDecoder)
        self._intact = np.empty(_MAX_RECORDS, np.bool_)

    def batches(self, answers: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        """Give the rows of some answers' bodies.

        Raises:
            DamagedLogError: for bytes that are no records, in any mode; in mode FAILFAST also for a record that is
                damaged.
        """
        length = sum(len(answer) for answer in answers)
        window = np.zeros(length + PADDING, np.uint8)
        filled = 0
        for answer in answers:
            window[filled : filled + len(answer)] = np.frombuffer(answer, np.uint8)
            filled += len(answer)
        parts = np.empty((COMMITLOG_PART_COUNT, min(_MAX_RECORDS, length // 64 + 1)), np.int64)
        position = 0
        while position < length:
            position, rows, fault = locate_records(window, position, length, parts, self._intact)
            found, intact = parts[:, :rows], self._intact[:rows]
            self.messages += self._count(window, found)
            if intact.all():
                yield from self._reader.batches_of(window, 0, found)
            else:
                yield from self._damaged(window, found, intact)
            if fault != NO_FAULT:
                raise DamagedLogError(
                    f"{self._split.path}: expected whole records in an answer to a pull, found {FAULT_BY_CODE[fault]} "
                    f"at byte {position} of {length}"
                )

    def log(self) -> None:
        """Log what was dropped."""
        self._refused.log()

    def _damaged(self, window: Array, parts: Array, intact: Array) -> Iterator[pa.RecordBatch]:
        first = int(np.argmin(intact))
        if first:  # in mode FAILFAST, what precedes the damage has been given
            yield from self._reader.batches_of(window, 0, np.ascontiguousarray(parts[:, :first]))
        values = [self._refuse(window, int(start)) for start in parts[START, ~intact]]
        yield from bad_rows(values, self._split, self._request)
        intact = intact.copy()
        intact[:first] = False
        if intact.any():
            yield from self._reader.batches_of(window, 0, np.ascontiguousarray(parts[:, intact]))

    def _refuse(self, window: Array, start: int) -> dict[str, object]:
        begin, end = _own_extent(window, start)
        first = window[start : start + min(FIRST_BYTES, end - begin)].tobytes()
        expected, found = "a body that agrees with its checksum", "another body"
        return self._refused.take(begin, end, Fault.BODY_CRC, expected, found, first)

    def _count(self, window: Array, parts: Array) -> int:
        """Count the messages in some records."""
        flags = numbers_at(window, parts[START] + _AT_SYS_FLAG, ">i4")
        count = int(parts.shape[1])
        for row in np.flatnonzero(flags & INNER_BATCH).tolist():
            self.has_inner_batches = True
            begin = int(parts[PROPERTIES, row])
            raw = window[begin : begin + int(parts[PROPERTIES + 1, row])].tobytes()
            own = int.from_bytes(window[int(parts[START, row]) + _AT_QUEUE_OFFSET :][:8].tobytes())
            count += queue_numbers(dict(parse_properties(raw)), own)[1] - 1
        return count


def _own_extent(window: Array, start: int) -> tuple[int, int]:
    offset = int.from_bytes(window[start + _AT_OWN_OFFSET : start + _AT_OWN_OFFSET + 8].tobytes())
    return offset, offset + int.from_bytes(window[start + _AT_SIZE : start + _AT_SIZE + 4].tobytes())
