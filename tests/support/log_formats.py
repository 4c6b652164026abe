"""Log formats for tests that apply to all of them: writing, parsing and scanning of small segments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from commitlake.schemas.layouts.jmq import journal
from commitlake.schemas.layouts.jmq.scan import JournalScanner
from commitlake.schemas.layouts.rocketmq import commitlog
from commitlake.schemas.layouts.rocketmq.scan import SegmentScanner, SegmentSpan, SizeLimits
from tests.support import journal_vectors, journals, logs, record_vectors


@dataclass(frozen=True)
class LogFormat:
    """Functions with which tests write and read logs of one format.

    Attributes:
        name: the format's name.
        new_message: returns a message that differs by its number.
        records: serializes messages, from a physical offset on.
        serialize_filler: returns the filler that closes a segment, for the bytes left in it.
        scanner: returns a scanner for the records of a segment.
        body_start: first byte of a record's body.
        min_record_size: size of a record whose parts are all empty.
        parse: reads a record.
        vectors: whole records, each with the function that serializes it.
    """

    name: str
    new_message: Callable[..., Any]
    records: Callable[..., list[bytes]]
    serialize_filler: Callable[[int], bytes]
    scanner: Callable[[int, SizeLimits], SegmentScanner]
    body_start: int
    min_record_size: int
    parse: Callable[..., tuple[Any, int] | None]
    vectors: dict[str, tuple[bytes, Callable[[], bytes]]]

    def opened(self, messages: Iterable[Any], size: int, start: int = 0) -> bytes:
        """Return a segment that the broker is still writing: records, zeros."""
        return b"".join(self.records(messages, start)).ljust(size, b"\0")

    def closed(self, messages: Iterable[Any], size: int, start: int = 0) -> bytes:
        """Return a segment that the broker has finished: records, filler, zeros."""
        data = b"".join(self.records(messages, start))
        return (data + self.serialize_filler(size - len(data))).ljust(size, b"\0")

    def place(self, messages: Sequence[Any], number: int) -> tuple[int, int]:
        """Return the start and the end of the record of one of these messages."""
        sizes = [len(record) for record in self.records(messages)]
        return sum(sizes[:number]), sum(sizes[: number + 1])

    def scan(
        self, data: bytes, window: int = 1 << 20, start: int = 0, segment_end: int | None = None, **bounds: int
    ) -> list[SegmentSpan]:
        """Return all spans of a segment; if no span ends in a window, its size is doubled."""
        limits = SizeLimits(start + len(data) if segment_end is None else segment_end, start + len(data), **bounds)
        scanner, spans, size = self.scanner(start, limits), [], window
        while not scanner.done:
            position = scanner.position
            spans += list(scanner.feed(data[position - start : position - start + size]))
            if scanner.position == position:
                size *= 2
        return spans


def kinds(spans: list[SegmentSpan]) -> list[str]:
    """Return the kind of each span, or its fault."""
    return [str(span.fault or span.kind) for span in spans]


LOG_FORMATS = {
    known.name: known
    for known in (
        LogFormat(
            name="rocketmq",
            new_message=logs.new_message,
            records=logs.records,
            serialize_filler=commitlog.serialize_blank,
            scanner=SegmentScanner,
            body_start=88,
            min_record_size=commitlog.MIN_RECORD_SIZE,
            parse=commitlog.parse_message,
            vectors={
                name: (record, partial(record_vectors.serialize, message, **place))
                for name, (record, message, place, _) in record_vectors.VECTORS.items()
            },
        ),
        LogFormat(
            name="jmq",
            new_message=journals.new_message,
            records=journals.records,
            serialize_filler=journal.serialize_filler,
            scanner=JournalScanner,
            body_start=journal.BODY_START,
            min_record_size=journal.MIN_RECORD_SIZE,
            parse=journal.parse_message,
            vectors={
                name: (record, partial(journal_vectors.serialize, message, *times, **place))
                for name, (record, message, place, times) in journal_vectors.VECTORS.items()
            },
        ),
    )
}
"""All formats, by name."""
