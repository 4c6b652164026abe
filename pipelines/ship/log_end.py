"""Finds the end of the complete records in the segment that a broker is writing.

A part never changes once a manifest names it, so an agent ships a record of the newest segment only if it is complete.
A record's CRC covers only its body, so a valid record may lack some bytes of its properties. A record is complete

    - if the broker has written something after it, because records are written one after the other, or
    - if its last byte is not zero, and it has been unchanged for some time, or
    - if the broker's checkpoint confirms that it was flushed to disk.

A damaged range is shipped unchanged once a valid record follows it, or once the broker begins the next segment.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from commitlake.connectors.log_format.format import Format
from commitlake.pipelines.ship.source_store import SourceFile
from commitlake.schemas.layouts.rocketmq.scan import ScanFinding, SizeLimits, SpanKind

UNCHANGED_SECONDS = 0.3
"""Time for which the last record must be unchanged. A broker writes a record in microseconds."""
_WINDOW_BYTES = 1 << 20
_SEARCHED_BYTES = 8 << 20
"""Range after a damaged record that is searched for a valid one: twice the largest body of a default broker."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Offset after the last complete record of a segment, and whether bytes follow it.

    Attributes:
        offset: physical offset after the last complete record.
        is_waiting: whether a record follows that looks complete, but has not been unchanged for `UNCHANGED_SECONDS`.
        is_closed: whether the segment has its filler, after which the broker writes to the next one.
        damaged_at: physical offset of bytes that are not a valid record; None if there are none.
    """

    offset: int
    is_waiting: bool = False
    is_closed: bool = False
    damaged_at: int | None = None


@dataclass(frozen=True, slots=True)
class _LastRecord:
    start: int
    end: int
    crc: int
    at: float


class LogEndSearch:
    """Search for the end of the complete records in the newest segment, which uses the result of the search before.

    Args:
        log_format: format of the log.
        clock: a clock that never goes back, in seconds.
    """

    def __init__(self, log_format: Format, clock: Callable[[], float] = time.monotonic) -> None:
        self._rules = log_format.record_rules
        self._clock = clock
        self._last: _LastRecord | None = None

    def find_log_end(
        self,
        file: SourceFile,
        base_offset: int,
        size: int,
        start: int,
        read_checkpoint: Callable[[], tuple[bytes, bool]],
        max_bytes: int,
    ) -> LogEnd:
        """Return the offset after the last complete record, or after an earlier record if `max_bytes` are reached.

        Args:
            file: the open segment.
            base_offset: physical offset of its first byte.
            size: size of the segment.
            start: physical offset from which the segment is not shipped yet; a record begins there.
            read_checkpoint: returns the broker's checkpoint, and whether a broker has closed the store since.
            max_bytes: end the search at a record this far from `start`.
        """
        windows = _Windows(self._rules.examine, file, base_offset, size)
        position, last_start = start, start
        while True:
            finding = windows.scan_at_offset(position)
            if position - start >= max_bytes and finding.kind is SpanKind.RECORD:
                return LogEnd(position)
            if finding.kind is SpanKind.RECORD:
                last_start, position = position, position + finding.size
                continue
            if finding.kind is SpanKind.FRAME:
                position += finding.size
                continue
            if finding.kind is SpanKind.BLANK:
                return LogEnd(base_offset + size, is_closed=True)
            if finding.kind is not SpanKind.FAULT:
                break
            following = windows.find_next_record(position, self._rules.scanner)
            if following is None:
                break
            position = last_start = following
        damaged_at = position if finding.kind is SpanKind.FAULT else None
        if position == last_start:  # no record
            return LogEnd(start if damaged_at is None else position, damaged_at=damaged_at)
        if windows.has_bytes(position):
            return LogEnd(position, damaged_at=damaged_at)
        is_complete, is_waiting = self._is_last_record_complete(windows, last_start, position, read_checkpoint)
        return LogEnd(position if is_complete else last_start, is_waiting=is_waiting)

    def _is_last_record_complete(
        self, windows: _Windows, start: int, end: int, read_checkpoint: Callable[[], tuple[bytes, bool]]
    ) -> tuple[bool, bool]:
        """Return whether the last record is complete, and whether it would be if it stayed unchanged."""
        record = windows.read_range(start, end - start)
        record_now = _LastRecord(start, end, zlib.crc32(record), self._clock())
        before = self._last
        is_same = before is not None and (before.start, before.end, before.crc) == (start, end, record_now.crc)
        if not is_same:
            self._last = record_now
        if record.endswith(b"\0"):
            parsed = self._rules.parse(memoryview(record))
            data, was_closed = read_checkpoint()
            return parsed is not None and self._rules.vouches(data, parsed[0], was_closed), False
        is_old = is_same and before is not None and record_now.at - before.at >= UNCHANGED_SECONDS
        return is_old, not is_old


class _Windows:
    """Reader of a segment by physical offset, which keeps a window of bytes in memory."""

    def __init__(
        self, examine: Callable[[memoryview, int, int, SizeLimits], ScanFinding], file: SourceFile, base: int, size: int
    ) -> None:
        self._examine, self._file, self._base = examine, file, base
        self._limits = SizeLimits(base + size, base + max(0, min(size, file.size)))
        self._window = memoryview(b"")
        self._origin = base

    def read_range(self, offset: int, size: int) -> bytes:
        """Read a range of the segment, given by physical offset."""
        return self._file.read_range(offset - self._base, size)

    def has_bytes(self, offset: int) -> bool:
        """Return whether any of the first 64 bytes at an offset is not zero."""
        return any(self.read_range(offset, min(64, max(0, self._limits.file_end - offset))))

    def scan_at_offset(self, offset: int) -> ScanFinding:
        """Return what begins at a physical offset, such as a record; `MORE` if the file was truncated."""
        size = _WINDOW_BYTES
        while True:
            position = offset - self._origin
            if 0 <= position <= len(self._window):
                finding = self._examine(self._window, position, offset, self._limits)
                if finding.kind is not SpanKind.MORE:
                    return finding
            if position == 0 and len(self._window):
                size = 2 * max(size, len(self._window))
            data = self.read_range(offset, min(size, max(0, self._limits.file_end - offset)))
            if self._origin == offset and len(data) <= len(self._window):
                return ScanFinding(SpanKind.MORE)
            self._window, self._origin = memoryview(data), offset

    def find_next_record(self, offset: int, scanner: Callable[..., object]) -> int | None:
        """Return the offset of the next valid record after damage; None if there is none nearby."""
        end = min(self._limits.file_end, offset + _SEARCHED_BYTES)
        found = scanner(offset, self._limits._replace(file_end=end))
        data = self.read_range(offset, end - offset)
        for span in found.feed(data):  # type: ignore[attr-defined]
            if span.kind is SpanKind.RECORD:
                return int(span.start)
        return None
