"""Handling of bad ranges, depending on the read mode: raised as errors, returned as rows, or only counted."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa

from commitlake.connectors.log_format.files import SegmentFile
from commitlake.connectors.log_format.kernel import BadRange
from commitlake.connectors.reading.errors import DamagedLogError
from commitlake.connectors.reading.options import Mode
from commitlake.connectors.reading.read_request import Request
from commitlake.connectors.reading.single_records import scan_at_offset
from commitlake.connectors.reading.splits import Split
from commitlake.schemas.layouts.rocketmq.scan import Fault

logger = logging.getLogger(__name__)

CORRUPT_RECORD = "_corrupt_record"
FIRST_BYTES = 256


class BadRangeCounter:
    """Counter of the bad ranges of a read; in mode FAILFAST, the first bad range raises an error."""

    def __init__(self, split: Split, request: Request) -> None:
        self._split = split
        self._request = request
        self.counts: dict[Fault, int] = {}

    def count_bad_range(
        self, start: int, end: int, fault: Fault, expected: str, found: str, first_bytes: bytes
    ) -> dict[str, object]:
        """Count a bad range, and return the value of its column `_corrupt_record`.

        Raises:
            DamagedLogError: in mode FAILFAST.
        """
        if self._request.mode is Mode.FAILFAST:
            raise DamagedLogError(
                f"{self._split.path}, byte {start - self._split.base_offset} (physical offset {start}, to {end}): "
                f"{fault}: expected {expected}, found {found}. Mode PERMISSIVE returns such ranges as rows, "
                "DROPMALFORMED counts them in the log"
            )
        self.counts[fault] = self.counts.get(fault, 0) + 1
        return {
            "segment": self._split.path,
            "start": start,
            "end": end,
            "reason": str(fault),
            "expected": expected,
            "found": found,
            "first_bytes": first_bytes,
        }

    def log_counts(self) -> None:
        """Log one line with the number of bad ranges that the read did not return as rows."""
        if self.counts and not self._request.returns_bad_ranges:
            counts = ", ".join(f"{count} {fault}" for fault, count in sorted(self.counts.items()))
            logger.warning(
                "%s, offsets %d to %d: dropped %s", self._split.path, self._split.start, self._split.end, counts
            )


def count_and_describe_bad_range(
    file: SegmentFile, split: Split, bad_range: BadRange, request: Request, bad_range_counter: BadRangeCounter
) -> dict[str, object]:
    """Count a bad range, examine its first bytes again, and return the value of its column `_corrupt_record`."""
    finding, view = scan_at_offset(file, split, bad_range.start, request.max_record_bytes)
    first = bytes(view[: min(FIRST_BYTES, bad_range.end - bad_range.start)])
    if bad_range.fault is Fault.HOLE:
        expected, found = "a record or a BLANK", f"{bad_range.end - bad_range.start} bytes without one, zeros first"
    elif finding.fault is bad_range.fault:
        expected, found = finding.expected, finding.found
    else:
        expected, found = (
            f"{bad_range.end - bad_range.start} bytes",
            f"the file truncated to {len(view)} bytes after this offset",
        )
    return bad_range_counter.count_bad_range(bad_range.start, bad_range.end, bad_range.fault, expected, found, first)


def bad_range_rows(bad_ranges: list[dict[str, object]], split: Split, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield a batch of bad ranges, each with its broker and offset, if the read returns them as rows."""
    if not request.returns_bad_ranges:
        return
    rows = len(bad_ranges)
    starts = pa.array([value["start"] for value in bad_ranges], pa.int64())
    columns = []
    for field in request.schema:
        if field.name == CORRUPT_RECORD:
            columns.append(pa.array(bad_ranges, field.type))
        elif field.name == "broker":
            columns.append(pa.array([split.broker] * rows, field.type))
        elif field.name == "physical_offset":
            columns.append(starts)
        else:
            columns.append(pa.nulls(rows, field.type))
    yield pa.RecordBatch.from_arrays(columns, schema=request.schema)
