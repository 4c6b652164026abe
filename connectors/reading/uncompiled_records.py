"""Iteration over all spans of a store's log in plain Python, for tools that must start quickly.

It shares only the formats and the scanner's rules with the compiled reader, so the two can be used to check each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from commitlake.connectors.log_format.files import Segment, SegmentFile
from commitlake.connectors.log_format.format import Format
from commitlake.connectors.reading.errors import no_progress_error
from commitlake.connectors.reading.files.segment_files import LocalFile, OpenSegment
from commitlake.connectors.reading.stores import Store, full_segment_size
from commitlake.schemas.layouts.rocketmq.scan import Fault, SegmentSpan, SizeLimits, SpanKind
from commitlake.schemas.layouts.segment_names import segment_name

_WINDOW_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """Range of a store's log: a record, with its message, or other bytes, such as a bad range."""

    segment: str
    span: SegmentSpan
    message: Any = None


def walk_store(store: Store, segment_bytes: int) -> Iterator[FoundRecord]:
    """Yield all records and other byte ranges of a store's log, in order and without gaps between them.

    Zeros before a later segment are the fault HOLE, and a missing segment is the fault MISSING_SEGMENT. The last span
    has the position and the reason of the log's end.

    Args:
        store: from `find_stores`.
        segment_bytes: the usual size of the store's segments; see `stores.segment_size`.
    """
    zeros: FoundRecord | None = None
    torn = False
    reached = expected = store.segments[0].base_offset
    later_bases = [segment.base_offset for segment in store.segments[1:]]
    for segment, following in zip(store.segments, [*later_bases, None], strict=True):
        base = segment.base_offset
        name = segment_name(base)
        size = full_segment_size(segment, following, segment_bytes)
        for found in _walk_segment(store.format, segment, name, size):
            if found.span.kind is SpanKind.UNWRITTEN:
                if not (torn and found.span.start == base):  # a preallocated segment may follow a torn end
                    zeros = zeros or found
                continue
            torn = found.span.kind is SpanKind.FAULT
            if found.span.start == base or zeros is not None:
                yield from _find_gap_faults(zeros, reached, expected, base)
            zeros = None
            reached = found.span.end
            expected = base + size
            yield found
    if zeros is not None:
        yield zeros


def _find_gap_faults(
    zero_span: FoundRecord | None, end_offset: int, expected_end: int, next_base_offset: int
) -> Iterator[FoundRecord]:
    """Yield faults for the bytes without records between the last data and the next segment."""
    if zero_span is not None:
        start = zero_span.span.start
        end = min(next_base_offset, max(expected_end, zero_span.span.end))
        yield _fault_record(
            zero_span.segment,
            start,
            end,
            Fault.HOLE,
            "a record or a BLANK",
            f"{end - start} bytes without one, zeros first",
        )
        end_offset = end
    elif end_offset < expected_end:
        yield _fault_record(
            segment_name(end_offset),
            end_offset,
            expected_end,
            Fault.CUT,
            f"{expected_end - end_offset} bytes",
            "the end of the file",
        )
        end_offset = expected_end
    if end_offset < next_base_offset:
        name = segment_name(end_offset)
        yield _fault_record(
            name, end_offset, next_base_offset, Fault.MISSING_SEGMENT, f"the segment {name}", "no such file"
        )


def _fault_record(segment: str, start: int, end: int, fault: Fault, expected: str, found: str) -> FoundRecord:
    return FoundRecord(segment, SegmentSpan(SpanKind.FAULT, start, end, fault, expected, found))


def _walk_segment(log_format: Format, segment: Segment, name: str, segment_bytes: int) -> Iterator[FoundRecord]:
    with OpenSegment(segment.path) as file:
        base = segment.base_offset
        file_end = base + segment.file_size
        if isinstance(file, LocalFile) and file.next_data(0) is None:
            yield FoundRecord(name, SegmentSpan(SpanKind.UNWRITTEN, base, file_end))
            return
        rules = log_format.record_rules
        scanner = rules.scanner(base, SizeLimits(base + segment_bytes, file_end))
        size = _WINDOW_BYTES
        while not scanner.done:
            origin = scanner.position
            window = _read_bytes(file, origin - base, min(size, file_end - origin))
            for span in scanner.feed(window):
                is_record = span.kind is SpanKind.RECORD
                parsed = rules.parse(window[span.start - origin :]) if is_record else None
                yield FoundRecord(name, span, parsed[0] if parsed else None)
            if scanner.position == origin:
                if len(window) < min(size, file_end - origin):
                    yield _fault_record(
                        name,
                        origin,
                        file_end,
                        Fault.CUT,
                        f"{file_end - base} bytes",
                        "a file that was truncated during the read",
                    )
                    return
                if size >= file_end - origin:
                    expected = "bytes of a record, or other bytes, in the rest of the file"
                    raise no_progress_error(segment.path, base, origin, expected, "neither")
                size *= 2


def _read_bytes(file: SegmentFile, position: int, size: int) -> memoryview:
    window = np.empty(size, np.uint8)
    return window.data[: file.read_into(window, position)]
