"""Scanner that finds the records in a segment, and the gaps and damage between them.

A position in a segment has one of six states. They are determined by these rules, which the compiled kernel of the
Spark source also follows (a property test compares the two):

    RECORD     valid: a record's magic, its own physical offset, lengths that add up to its size, and the body's CRC
               by the rule of the magic's dialect
    FRAME      the header of a DLedger entry, with its own physical offset, before the head of a record of that size
    BLANK      a BLANK's magic and exactly the bytes left in the segment: the log continues in the next one
    UNWRITTEN  zeros, up to the end of the file
    MORE       the window ends within the record; a larger window is needed
    FAULT      none of these

After a fault, the next valid record ends the bad range. A BLANK is only eight bytes, which a body may contain, so it
proves nothing there: the first one that a search finds ends the bad range, and the segment, only if no valid record
lies between it and the end of the file. At a position where a record should begin, a BLANK is trusted.

A record whose lengths add up but whose body fails its CRC is a separate bad range: its size is trusted, because five
fields agree on it. A size is always compared with the bytes of the file before it is used.

Zeros with data after them are a hole: the fault HOLE. Decisions that need more than one segment are left to the caller:
zeros at the end of a segment that has a successor are also a hole. And a bad range at the end of the newest segment,
with no valid record after it, is a torn tail, even if a BLANK seems to follow: it must be read again when the broker
has written more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

from commitlake.schemas.layouts.boltmq.dialect import (
    BLANK_MAGICS,
    DIALECT_BY_MAGIC,
    MESSAGE_MAGIC_NAMES,
    MESSAGE_MAGICS,
)
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.commitlog import BLANK, HEAD, MIN_RECORD_SIZE, locate_parts
from commitlake.schemas.layouts.rocketmq.dledger import BLANK_MAGIC as ENTRY_BLANK_MAGIC
from commitlake.schemas.layouts.rocketmq.dledger import ENTRY_HEADER, ENTRY_MAGIC

DEFAULT_MAX_RECORD_BYTES = 64 << 20
"""No released broker stores more than 4 MiB and 64 KiB by default; a remoting frame ends at 16 MiB. Larger sizes are
faults, so that a reader's memory is bounded."""


class SpanKind(StrEnum):
    """Kind of a contiguous range of bytes in a segment."""

    RECORD = "record"
    FRAME = "frame"
    BLANK = "blank"
    UNWRITTEN = "unwritten"
    FAULT = "fault"
    MORE = "more"


class Fault(StrEnum):
    """Reason why a range of bytes is damaged: the column `_corrupt_record.reason`.

    The last four are for a valid record with a value that its column cannot store; the row then has the other values.
    """

    MAGIC = "magic"
    SIZE = "total_size"
    PHYSICAL_OFFSET = "physical_offset"
    PART_LENGTHS = "part_lengths"
    BODY_CRC = "body_crc"
    BLANK_SIZE = "blank_size"
    HOLE = "hole"
    CUT = "cut"
    MISSING_SEGMENT = "missing_segment"
    TOPIC_ENCODING = "topic_encoding"
    PROPERTIES_ENCODING = "properties_encoding"
    TIMESTAMP = "timestamp"
    BODY_COMPRESSION = "body_compression"


class ScanFinding(NamedTuple):
    """Classification of the bytes at one position of a segment; `size` is 0 if it is unknown."""

    kind: SpanKind
    size: int = 0
    fault: Fault | None = None
    expected: str = ""
    found: str = ""


class SegmentSpan(NamedTuple):
    """Byte range of a segment with its kind.

    `start` and `end` are physical offsets; the fields after them describe a FAULT.
    """

    kind: SpanKind
    start: int
    end: int
    fault: Fault | None = None
    expected: str = ""
    found: str = ""


class SizeLimits(NamedTuple):
    """Limits that the size fields in a segment must respect.

    Attributes:
        segment_end: physical offset of the end of the segment, which a BLANK must reach.
        file_end: physical offset of the end of the file; less than `segment_end` if the file is truncated.
        max_record_bytes: maximum size of a record.
    """

    segment_end: int
    file_end: int
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES


MORE = ScanFinding(SpanKind.MORE)
_MAGIC_NAMES = f"{MESSAGE_MAGIC_NAMES}, CBD43194 or CBD431A4"


def make_fault_finding(fault: Fault, expected: str, found: str, size: int = 0) -> ScanFinding:
    """Return a `ScanFinding` for damaged bytes, with the size of the damaged range if it is certain."""
    return ScanFinding(SpanKind.FAULT, size, fault, expected, found)


def find_size_fault(
    total_size: int, min_size: int, available: int, offset: int, bounds: SizeLimits
) -> ScanFinding | None:
    """Check the size that a record claims, before any byte after it is examined.

    Args:
        total_size: size in the record.
        min_size: size of the smallest record.
        available: number of bytes in the window from the record on.
        offset: offset of the record in the log.

    Returns:
        A fault, or MORE if the record ends after the window; None if the record is complete.
    """
    if not min_size <= total_size <= bounds.max_record_bytes:
        return make_fault_finding(Fault.SIZE, f"{min_size} to {bounds.max_record_bytes} bytes", f"{total_size}")
    left = bounds.file_end - offset
    if total_size > left:
        return make_fault_finding(Fault.CUT, f"{total_size} bytes", f"{left} bytes left in the file")
    return MORE if total_size > available else None


def classify_span(  # noqa: PLR0911 (one return for each state)
    window: memoryview, position: int, physical_offset: int, bounds: SizeLimits
) -> ScanFinding:
    """Classify the bytes at a position: record, BLANK, unwritten, or fault.

    Args:
        window: bytes of a segment.
        position: position in the window.
        physical_offset: physical offset of that position.

    Returns:
        The finding; MORE if it depends on bytes of the file after the window.
    """
    available = len(window) - position
    left = bounds.file_end - physical_offset
    # The file ends here, unless the window does.
    if available < BLANK.size:
        if left > available:
            return MORE
        rest = bytes(window[position:])
        if not any(rest):
            return ScanFinding(SpanKind.UNWRITTEN, len(rest))
        return make_fault_finding(
            Fault.CUT, f"a record or a BLANK, {BLANK.size} bytes or more", f"{len(rest)} bytes left in the file"
        )
    total_size, magic = BLANK.unpack(window, position)
    if magic in BLANK_MAGICS:
        return _examine_blank(total_size, bounds.segment_end - physical_offset)
    if total_size == 0 and magic == 0:
        return ScanFinding(SpanKind.UNWRITTEN)
    if total_size == ENTRY_BLANK_MAGIC and magic == bounds.segment_end - physical_offset:
        return ScanFinding(SpanKind.BLANK, magic)
    if magic not in MESSAGE_MAGICS:
        if total_size == ENTRY_MAGIC:
            return _examine_frame(window, position, physical_offset, magic, bounds)
        return _make_magic_fault(magic)
    return _examine_record(window, position, physical_offset, bounds)


def _make_magic_fault(magic: int) -> ScanFinding:
    return make_fault_finding(Fault.MAGIC, _MAGIC_NAMES, f"{magic & 0xFFFFFFFF:08X}")


def _examine_frame(
    window: memoryview, position: int, physical_offset: int, size: int, bounds: SizeLimits
) -> ScanFinding:
    """Classify bytes that begin like the header of a DLedger entry: it counts only before the record that it claims."""
    available = len(window) - position
    record = position + ENTRY_HEADER.size
    if available < ENTRY_HEADER.size + HEAD.size:
        if bounds.file_end - physical_offset > available:
            return MORE
        return _make_magic_fault(size)
    *_, own_offset, _, _, _, body_size = ENTRY_HEADER.unpack(window, position)
    head = HEAD.unpack(window, record)
    is_entry = (
        own_offset == physical_offset
        and size == ENTRY_HEADER.size + body_size
        and head[1] in MESSAGE_MAGICS
        and head[0] == body_size
        and head[6] == physical_offset + ENTRY_HEADER.size
    )
    return ScanFinding(SpanKind.FRAME, ENTRY_HEADER.size) if is_entry else _make_magic_fault(size)


def _examine_blank(total_size: int, expected: int) -> ScanFinding:
    if total_size == expected:
        return ScanFinding(SpanKind.BLANK, total_size)
    return make_fault_finding(Fault.BLANK_SIZE, f"{expected} bytes left in the segment", f"{total_size}")


def _examine_record(window: memoryview, position: int, physical_offset: int, bounds: SizeLimits) -> ScanFinding:
    total_size, magic = BLANK.unpack(window, position)
    # Before anything else is read, because the size of a damaged record may exceed the window.
    wrong = find_size_fault(total_size, MIN_RECORD_SIZE, len(window) - position, physical_offset, bounds)
    if wrong is not None:
        return wrong
    head = HEAD.unpack(window, position)
    own_offset, sys_flag = head[6], head[7]
    if own_offset != physical_offset:
        return make_fault_finding(Fault.PHYSICAL_OFFSET, f"{physical_offset}", f"{own_offset}")
    try:
        parts = locate_parts(window, position, magic, sys_flag, total_size)
    except LayoutError as error:
        return make_fault_finding(Fault.PART_LENGTHS, f"{error.field} {error.expected}", error.found)
    body = window[parts.body : parts.body + parts.body_length]
    if (crc := DIALECT_BY_MAGIC[magic].body_crc(body)) != head[2]:
        return make_fault_finding(Fault.BODY_CRC, f"{head[2]}", f"{crc} for these {len(body)} bytes", total_size)
    return ScanFinding(SpanKind.RECORD, total_size)


def has_nonzero_bytes(view: memoryview) -> bool:
    """Return whether a range contains a byte that is not zero."""
    step = 1 << 20
    return any(bytes(view[start : start + step]).strip(b"\0") for start in range(0, len(view), step))


class ScanRules(NamedTuple):
    """Rules by which a scanner recognizes the records of one format.

    Attributes:
        examine: function that classifies the bytes at a position, see `classify_span`.
        landmark: byte pattern that every record and every BLANK contains; after damage, the scanner searches for it.
        landmark_position: position of these bytes in a record.
        landmark_size: size of the pattern in bytes.
        proving: faults despite which the bytes are certainly a record, because its size is valid.
    """

    examine: Callable[[memoryview, int, int, SizeLimits], ScanFinding]
    landmark: re.Pattern[bytes]
    landmark_position: int
    landmark_size: int
    proving: frozenset[Fault] = frozenset()


COMMITLOG = ScanRules(
    classify_span, re.compile(rb"\xda\xa3\x20[\xa7\xab\xb7]|\xcb\xd4\x31[\x94\xa4]"), BLANK.offset_of("magic"), 4
)


class SegmentScanner:
    """Scanner that divides a segment, given piece by piece, into records, BLANKs, unwritten and damaged ranges.

        scanner = SegmentScanner(start, Bounds(segment_end, file_end))
        while not scanner.done:
            window = read(scanner.position, size)
            for span in scanner.feed(window): ...
            # no progress: the record at scanner.position is larger than the window

    It opens no files, stores no bytes, and needs windows no larger than the largest record.
    """

    def __init__(self, start: int, bounds: SizeLimits, rules: ScanRules = COMMITLOG) -> None:
        """Start scanning at the physical offset `start`, at which a record should begin."""
        self.position = start
        self.done = start >= bounds.file_end
        self._bounds = bounds
        self._rules = rules
        self._bad: tuple[int, ScanFinding] | None = None
        self._blank: SegmentSpan | None = None
        self._all_zeros = False

    def feed(self, window: bytes | memoryview) -> Iterator[SegmentSpan]:
        """Read the next bytes of the segment, and yield each record or other byte range that ends in them.

        Args:
            window: bytes of the segment from `self.position` on, of any length. A window shorter than the rest of the
                file is taken for a part of it; an empty one for a file that has been truncated meanwhile.
        """
        view = memoryview(window)
        origin = self.position
        while not self.done:
            span = (
                self._search_next_record(view, origin)
                if self._bad
                else self._blank or self._scan_next_span(view, origin)
            )
            if span is None:
                return
            self.done = span.kind is SpanKind.BLANK
            yield span
            self.done = self.done or self.position >= self._bounds.file_end

    def _scan_next_span(self, view: memoryview, origin: int) -> SegmentSpan | None:
        start = self.position
        finding = self._rules.examine(view, start - origin, start, self._bounds)
        match finding.kind:
            case SpanKind.MORE:
                return None
            case SpanKind.RECORD:
                self.position += finding.size
                return SegmentSpan(SpanKind.RECORD, start, self.position)
            case SpanKind.FRAME:  # no data of a message; the record follows
                self.position += finding.size
                return self._scan_next_span(view, origin)
            case SpanKind.BLANK:
                return SegmentSpan(SpanKind.BLANK, start, start + finding.size)
            case _ if finding.fault is Fault.BODY_CRC:
                self.position += finding.size
                return SegmentSpan(SpanKind.FAULT, start, self.position, *finding[2:])
            case _:
                self._bad = (start, finding)
                self._all_zeros = finding.kind is SpanKind.UNWRITTEN
                self.position += 1
                return self._search_next_record(view, origin)

    def _search_next_record(self, view: memoryview, origin: int) -> SegmentSpan | None:
        """Search for the next valid record; return None if the window ends first."""
        # Unwritten space has no landmarks, so it is only compared with zero, which is much faster.
        self._all_zeros = self._all_zeros and not has_nonzero_bytes(view[self.position - origin :])
        rules = self._rules
        while not self._all_zeros and (
            found := rules.landmark.search(view, self.position - origin + rules.landmark_position)
        ):
            candidate = found.start() - rules.landmark_position
            finding = rules.examine(view, candidate, origin + candidate, self._bounds)
            self.position = origin + candidate
            if finding.kind is SpanKind.MORE:
                return None
            if finding.kind is SpanKind.RECORD or finding.fault in rules.proving:
                # A record follows, so the eight bytes were part of damaged bytes.
                self._blank = None
                return self._end_bad_range(self.position)
            if finding.kind is SpanKind.BLANK and self._blank is None:
                self._blank = SegmentSpan(SpanKind.BLANK, self.position, self.position + finding.size)
            self.position += 1
        window_end = origin + len(view)
        if window_end >= self._bounds.file_end:
            return self._end_bad_range(self._bounds.file_end if self._blank is None else self._blank.start)
        # A landmark may begin in this window's last bytes: search them again with the next window.
        self.position = max(self.position, window_end - rules.landmark_position - rules.landmark_size + 1)
        return None

    def _end_bad_range(self, end: int) -> SegmentSpan:
        assert self._bad is not None
        start, finding = self._bad
        self._bad = None
        self.position = end
        if finding.kind is SpanKind.UNWRITTEN:
            if self._all_zeros:
                return SegmentSpan(SpanKind.UNWRITTEN, start, end)
            return SegmentSpan(
                SpanKind.FAULT, start, end, Fault.HOLE, "a record", f"{end - start} bytes without one, zeros first"
            )
        return SegmentSpan(SpanKind.FAULT, start, end, *finding[2:])
