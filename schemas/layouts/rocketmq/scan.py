"""Where the records of a segment begin and end, and what lies between them.

A position in a segment holds one of five things. They are told apart by these rules, which the compiled kernel of the
Spark source follows too (a property test holds the two together):

    RECORD     proves itself: a record's magic, its own physical offset, lengths that add up to its size, and the body's
               CRC by the rule of the magic's dialect
    BLANK      a BLANK's magic and exactly the bytes left in the segment: the log goes on in the next one
    UNWRITTEN  zeros, up to the end of the file
    MORE       the window ends within the record: ask again with more bytes
    FAULT      none of these

After a fault the next position that proves itself as a record ends the bad range. A BLANK is eight bytes that anybody
can put into a body, and proves nothing there: the first one that a search meets ends the bad range, and the segment,
only if no record proves itself between it and the end of the file. Where a record should begin it is believed.

A record whose lengths add up but whose body fails its CRC is a bad range of its own: its size is trusted, because five
fields agree on it. A size is never believed before it is compared with the bytes that the file has.

Zeros with data behind them are a hole: the fault HOLE. What no look at one segment can tell is left to the caller:
zeros at the end of a segment that has a successor are a hole too, and a bad range at the end of the newest segment,
with no proven record behind it, is a torn tail, to be read again when the broker has gone on, whether a BLANK seems to
follow it or not.
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

DEFAULT_MAX_RECORD_BYTES = 64 << 20
"""No released broker stores more than 4 MiB and 64 KiB unless told to; a remoting frame ends at 16 MiB. What claims
more is a fault, so that a reader's memory has a bound."""


class SpanKind(StrEnum):
    """What a stretch of a segment is."""

    RECORD = "record"
    BLANK = "blank"
    UNWRITTEN = "unwritten"
    FAULT = "fault"
    MORE = "more"


class Fault(StrEnum):
    """Why a stretch is not what it should be: the column `_corrupt_record.reason`.

    The last four are of a record that proves itself but holds a value that no column can: the row then has the rest.
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


class Finding(NamedTuple):
    """What one position holds; `size` is 0 where it is not known."""

    kind: SpanKind
    size: int = 0
    fault: Fault | None = None
    expected: str = ""
    found: str = ""


class Span(NamedTuple):
    """A stretch of a segment, in physical offsets; the last three are filled in for a FAULT."""

    kind: SpanKind
    start: int
    end: int
    fault: Fault | None = None
    expected: str = ""
    found: str = ""


class Bounds(NamedTuple):
    """What sizes are compared with.

    Attributes:
        segment_end: physical offset behind the segment's last byte, which a BLANK must reach.
        file_end: physical offset behind the last byte that the file has; less than `segment_end` where a file is cut.
        max_record_bytes: a larger size is a fault.
    """

    segment_end: int
    file_end: int
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES


MORE = Finding(SpanKind.MORE)
_MAGIC_NAMES = f"{MESSAGE_MAGIC_NAMES}, CBD43194 or CBD431A4"


def fault_finding(fault: Fault, expected: str, found: str, size: int = 0) -> Finding:
    """Return a finding of what is wrong; `size` where it is beyond doubt all the same."""
    return Finding(SpanKind.FAULT, size, fault, expected, found)


def wrong_size(total_size: int, min_size: int, available: int, offset: int, bounds: Bounds) -> Finding | None:
    """Check the size that a record claims, before anything behind it is looked at.

    Args:
        total_size: what the record says.
        min_size: size of the smallest record.
        available: bytes of the window from the record on.
        offset: where the record begins in the log.
        bounds: what sizes are compared with.

    Returns:
        A fault, or MORE where the record ends behind the window; None where all of the record is there.
    """
    if not min_size <= total_size <= bounds.max_record_bytes:
        return fault_finding(Fault.SIZE, f"{min_size} to {bounds.max_record_bytes} bytes", f"{total_size}")
    left = bounds.file_end - offset
    if total_size > left:
        return fault_finding(Fault.CUT, f"{total_size} bytes", f"{left} bytes left in the file")
    return MORE if total_size > available else None


def examine(  # noqa: PLR0911 (one return for each thing that can stand there)
    window: memoryview, position: int, physical_offset: int, bounds: Bounds
) -> Finding:
    """What stands at a position.

    Args:
        window: bytes of a segment.
        position: where to look in the window.
        physical_offset: the physical offset of that position.
        bounds: what sizes are compared with.

    Returns:
        MORE where the answer needs bytes behind the window that the file still has.
    """
    available = len(window) - position
    left = bounds.file_end - physical_offset
    if available < BLANK.size:
        if left > available:
            return MORE
        rest = bytes(window[position:])
        if not any(rest):
            return Finding(SpanKind.UNWRITTEN, len(rest))
        return fault_finding(
            Fault.CUT, f"a record or a BLANK, {BLANK.size} bytes or more", f"{len(rest)} bytes left in the file"
        )
    total_size, magic = BLANK.unpack(window, position)
    if magic in BLANK_MAGICS:
        return _examine_blank(total_size, bounds.segment_end - physical_offset)
    if total_size == 0 and magic == 0:
        return Finding(SpanKind.UNWRITTEN)
    if magic not in MESSAGE_MAGICS:
        return fault_finding(Fault.MAGIC, _MAGIC_NAMES, f"{magic & 0xFFFFFFFF:08X}")
    return _examine_record(window, position, physical_offset, bounds)


def _examine_blank(total_size: int, expected: int) -> Finding:
    if total_size == expected:
        return Finding(SpanKind.BLANK, total_size)
    return fault_finding(Fault.BLANK_SIZE, f"{expected} bytes left in the segment", f"{total_size}")


def _examine_record(window: memoryview, position: int, physical_offset: int, bounds: Bounds) -> Finding:
    total_size, magic = BLANK.unpack(window, position)
    wrong = wrong_size(total_size, MIN_RECORD_SIZE, len(window) - position, physical_offset, bounds)
    if wrong is not None:
        return wrong
    head = HEAD.unpack(window, position)
    own_offset, sys_flag = head[6], head[7]
    if own_offset != physical_offset:
        return fault_finding(Fault.PHYSICAL_OFFSET, f"{physical_offset}", f"{own_offset}")
    try:
        parts = locate_parts(window, position, magic, sys_flag, total_size)
    except LayoutError as error:
        return fault_finding(Fault.PART_LENGTHS, f"{error.field} {error.expected}", error.found)
    body = window[parts.body : parts.body + parts.body_length]
    if (crc := DIALECT_BY_MAGIC[magic].body_crc(body)) != head[2]:
        return fault_finding(Fault.BODY_CRC, f"{head[2]}", f"{crc} for these {len(body)} bytes", total_size)
    return Finding(SpanKind.RECORD, total_size)


def any_data(view: memoryview) -> bool:
    """Whether a stretch holds a byte that is not zero."""
    step = 1 << 20
    return any(bytes(view[start : start + step]).strip(b"\0") for start in range(0, len(view), step))


class Rules(NamedTuple):
    """What a scanner must know of a format.

    Attributes:
        examine: tells what stands at a position, as the function of that name does.
        landmark: bytes that every record and every BLANK has; a search stops there.
        landmark_position: where they stand in it.
        landmark_size: how many they are.
        proving: the faults that a record may have and prove itself all the same, because its size is beyond doubt.
    """

    examine: Callable[[memoryview, int, int, Bounds], Finding]
    landmark: re.Pattern[bytes]
    landmark_position: int
    landmark_size: int
    proving: frozenset[Fault] = frozenset()


COMMITLOG = Rules(
    examine, re.compile(rb"\xda\xa3\x20[\xa7\xab\xb7]|\xcb\xd4\x31[\x94\xa4]"), BLANK.offset_of("magic"), 4
)


class SegmentScanner:
    """Turns windows of a segment into spans; the spans follow one another without a gap.

        scanner = SegmentScanner(start, Bounds(segment_end, file_end))
        while not scanner.done:
            window = read(scanner.position, size)
            for span in scanner.feed(window): ...
            # no progress: the record at scanner.position is larger than the window

    It touches no file, keeps no bytes, and needs windows no larger than the largest record.
    """

    def __init__(self, start: int, bounds: Bounds, rules: Rules = COMMITLOG) -> None:
        """Begin at the physical offset `start`, which must be where a record should begin."""
        self.position = start
        self.done = start >= bounds.file_end
        self._bounds = bounds
        self._rules = rules
        self._bad: tuple[int, Finding] | None = None
        self._blank: Span | None = None
        self._all_zeros = False

    def feed(self, window: bytes | memoryview) -> Iterator[Span]:
        """The spans that end in this window.

        Args:
            window: the segment's bytes from `self.position` on, as many as the caller likes to read. A window shorter
                than what the file has left is taken for a part; an empty one for a file that has been cut meanwhile.
        """
        view = memoryview(window)
        origin = self.position
        while not self.done:
            span = self._search(view, origin) if self._bad else self._blank or self._step(view, origin)
            if span is None:
                return
            self.done = span.kind is SpanKind.BLANK
            yield span
            self.done = self.done or self.position >= self._bounds.file_end

    def _step(self, view: memoryview, origin: int) -> Span | None:
        start = self.position
        finding = self._rules.examine(view, start - origin, start, self._bounds)
        match finding.kind:
            case SpanKind.MORE:
                return None
            case SpanKind.RECORD:
                self.position += finding.size
                return Span(SpanKind.RECORD, start, self.position)
            case SpanKind.BLANK:
                return Span(SpanKind.BLANK, start, start + finding.size)
            case _ if finding.fault is Fault.BODY_CRC:
                self.position += finding.size
                return Span(SpanKind.FAULT, start, self.position, *finding[2:])
            case _:
                self._bad = (start, finding)
                self._all_zeros = finding.kind is SpanKind.UNWRITTEN
                self.position += 1
                return self._search(view, origin)

    def _search(self, view: memoryview, origin: int) -> Span | None:
        """Go on to the next position that proves itself; None where the window ends first."""
        self._all_zeros = self._all_zeros and not any_data(view[self.position - origin :])
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
                self._blank = None
                return self._end_bad_range(self.position)
            if finding.kind is SpanKind.BLANK and self._blank is None:
                self._blank = Span(SpanKind.BLANK, self.position, self.position + finding.size)
            self.position += 1
        window_end = origin + len(view)
        if window_end >= self._bounds.file_end:
            return self._end_bad_range(self._bounds.file_end if self._blank is None else self._blank.start)
        # A landmark may begin in this window's last bytes: look at them again, with what follows.
        self.position = max(self.position, window_end - rules.landmark_position - rules.landmark_size + 1)
        return None

    def _end_bad_range(self, end: int) -> Span:
        assert self._bad is not None
        start, finding = self._bad
        self._bad = None
        self.position = end
        if finding.kind is SpanKind.UNWRITTEN:
            if self._all_zeros:
                return Span(SpanKind.UNWRITTEN, start, end)
            return Span(
                SpanKind.FAULT, start, end, Fault.HOLE, "a record", f"{end - start} bytes without one, zeros first"
            )
        return Span(SpanKind.FAULT, start, end, *finding[2:])
