"""Scanner of the records of a JMQ journal file, with the rules of RocketMQ's `scan` module.

    RECORD     valid: magic, its own journal offset, lengths that add up to its size, a topic, body CRC
    BLANK      FILLER magic and exactly the bytes left in the file, or less than 6 bytes, all zero, at its end
    UNWRITTEN  zeros, up to the end of the file
    MORE       the window ends within the record; a larger window is needed
    FAULT      none of these

After a fault, the next valid record ends the bad range, even if its body fails the CRC, because its size, offset and
five lengths agree, so that the bytes after the body can be read. Faults have the names of `scan.Fault`;
`physical_offset` is the journal offset, and a record without a topic has invalid part lengths.
"""

from __future__ import annotations

import re

from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.jmq.journal import FILLER, HEAD, MIN_RECORD_SIZE, Magic, body_crc, locate_parts
from commitlake.schemas.layouts.rocketmq.scan import (
    MORE,
    Fault,
    ScanFinding,
    ScanRules,
    SegmentScanner,
    SizeLimits,
    SpanKind,
    find_size_fault,
    make_fault_finding,
)

_AT_OFFSET = HEAD.offset_of("journal_offset")
_AT_MAGIC = HEAD.offset_of("magic")
_HIGH_BYTES = 4
_LANDMARK_SIZE = _AT_OFFSET + _HIGH_BYTES - _AT_MAGIC


def classify_span(window: memoryview, position: int, journal_offset: int, bounds: SizeLimits) -> ScanFinding:
    """Classify the bytes at a position of a journal file: record, FILLER, unwritten, or fault.

    Args:
        window: bytes of a journal file.
        position: position in the window.
        journal_offset: journal offset of that position.

    Returns:
        The finding; MORE if it depends on bytes of the file after the window.
    """
    available = len(window) - position
    left = bounds.file_end - journal_offset
    if available < FILLER.size:
        return MORE if left > available else _examine_file_tail(window[position:], journal_offset, bounds)
    total_size, magic = FILLER.unpack(window, position)
    if magic == Magic.FILLER:
        if total_size == (expected := bounds.segment_end - journal_offset):
            return ScanFinding(SpanKind.BLANK, total_size)
        return make_fault_finding(Fault.BLANK_SIZE, f"{expected} bytes left in the file", f"{total_size}")
    if total_size == 0 and magic == 0:
        return ScanFinding(SpanKind.UNWRITTEN)
    if magic != Magic.MESSAGE:
        return make_fault_finding(Fault.MAGIC, "1234 or BBBB", f"{magic:04X}")
    return _examine_record(window, position, journal_offset, bounds)


def _examine_file_tail(tail: memoryview, journal_offset: int, bounds: SizeLimits) -> ScanFinding:
    """Classify the last bytes of a journal file, which are too few to hold even a FILLER's header."""
    if any(tail):
        expected = f"a record or a FILLER, {FILLER.size} bytes or more, or zeros"
        return make_fault_finding(Fault.CUT, expected, f"{len(tail)} bytes left in the file")
    closes_file = journal_offset + len(tail) == bounds.segment_end
    return ScanFinding(SpanKind.BLANK if closes_file and len(tail) else SpanKind.UNWRITTEN, len(tail))


def _examine_record(window: memoryview, position: int, journal_offset: int, bounds: SizeLimits) -> ScanFinding:
    total_size, _ = FILLER.unpack(window, position)
    wrong = find_size_fault(total_size, MIN_RECORD_SIZE, len(window) - position, journal_offset, bounds)
    if wrong is not None:
        return wrong
    head = HEAD.unpack(window, position)
    own_offset, stored_crc = head[5], head[-1]
    if own_offset != journal_offset:
        return make_fault_finding(Fault.PHYSICAL_OFFSET, f"{journal_offset}", f"{own_offset}")
    try:
        parts = locate_parts(window, position, total_size)
    except LayoutError as error:
        return make_fault_finding(Fault.PART_LENGTHS, f"{error.field} {error.expected}", error.found)
    if not parts.topic_length:
        return make_fault_finding(Fault.PART_LENGTHS, "topic_length 1 to 255", "0")
    body = window[parts.body : parts.body + parts.body_length]
    if (crc := body_crc(body)) != stored_crc:
        return make_fault_finding(Fault.BODY_CRC, f"{stored_crc}", f"{crc} for these {len(body)} bytes", total_size)
    return ScanFinding(SpanKind.RECORD, total_size)


def _make_scan_rules(file_end: int, start: int) -> ScanRules:
    """Return the rules by which a scanner recognizes records in a range of journal offsets.

    A magic of two bytes occurs everywhere in a large file. But the upper half of a record's own offset is known: it is
    the same in the whole file, or one of two values.
    """
    highs = {offset >> 8 * _HIGH_BYTES for offset in (start, file_end)}
    high = b"|".join(re.escape(value.to_bytes(_HIGH_BYTES, "big")) for value in sorted(highs))
    message = re.escape(Magic.MESSAGE.to_bytes(2, "big"))
    filler = re.escape(Magic.FILLER.to_bytes(2, "big"))
    # The bytes between the magic and the offset may have any value.
    between = _AT_OFFSET - _AT_MAGIC - 2
    landmark = re.compile(b"%b(?=.{%d}(?:%b))|%b" % (message, between, high, filler), re.DOTALL)
    return ScanRules(classify_span, landmark, _AT_MAGIC, _LANDMARK_SIZE, frozenset({Fault.BODY_CRC}))


class JournalScanner(SegmentScanner):
    """Scanner that divides a journal file, given in pieces, into records, FILLERs, unwritten and damaged ranges."""

    def __init__(self, start: int, bounds: SizeLimits) -> None:
        """Start scanning at the journal offset `start`, at which a record should begin."""
        super().__init__(start, bounds, _make_scan_rules(bounds.file_end, start))
