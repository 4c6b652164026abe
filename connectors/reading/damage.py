"""Handling of bad ranges, by the mode: raised as errors, returned as rows, or only counted."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa

from commitlake.connectors.log_format.files import SegmentFile
from commitlake.connectors.log_format.kernel import BadRange
from commitlake.connectors.reading.errors import DamagedLogError
from commitlake.connectors.reading.options import Mode
from commitlake.connectors.reading.request import Request
from commitlake.connectors.reading.single_records import examine_at
from commitlake.connectors.reading.splits import Split
from commitlake.schemas.layouts.rocketmq.scan import Fault

logger = logging.getLogger(__name__)

CORRUPT_RECORD = "_corrupt_record"
FIRST_BYTES = 256


class BadRangeCounter:
    """Counter of the bad ranges of a read; in mode FAILFAST, counting one raises an error."""

    def __init__(self, split: Split, request: Request) -> None:
        self._split = split
        self._request = request
        self.counts: dict[Fault, int] = {}

    def take(self, start: int, end: int, fault: Fault, expected: str, found: str, first: bytes) -> dict[str, object]:
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
            "first_bytes": first,
        }

    def log(self) -> None:
        """Log one line with the number of bad ranges that were not returned as rows."""
        if self.counts and not self._request.returns_bad_ranges:
            counts = ", ".join(f"{count} {fault}" for fault, count in sorted(self.counts.items()))
            logger.warning(
                "%s, from %d to %d: dropped %s", self._split.path, self._split.start, self._split.end, counts
            )


def describe_bad_range(
    file: SegmentFile, split: Split, bad: BadRange, request: Request, refused: BadRangeCounter
) -> dict[str, object]:
    """Count a bad range, examine its first bytes again, and return the value of its column `_corrupt_record`."""
    finding, view = examine_at(file, split, bad.start, request.max_record_bytes)
    first = bytes(view[: min(FIRST_BYTES, bad.end - bad.start)])
    if bad.fault is Fault.HOLE:
        expected, found = "a record or a BLANK", f"{bad.end - bad.start} bytes without one, zeros first"
    elif finding.fault is bad.fault:
        expected, found = finding.expected, finding.found
    else:
        expected, found = f"{bad.end - bad.start} bytes", f"the file truncated to {len(view)} bytes after this offset"
    return refused.take(bad.start, bad.end, bad.fault, expected, found, first)


def bad_range_rows(values: list[dict[str, object]], split: Split, request: Request) -> Iterator[pa.RecordBatch]:
    """Return bad ranges as a batch in which other columns are null; no rows if the read does not return them."""
    if not request.returns_bad_ranges:
        return
    rows = len(values)
    starts = pa.array([value["start"] for value in values], pa.int64())
    columns = []
    for field in request.schema:
        if field.name == CORRUPT_RECORD:
            columns.append(pa.array(values, field.type))
        elif field.name == "broker":
            columns.append(pa.array([split.broker] * rows, field.type))
        elif field.name == "physical_offset":
            columns.append(starts)
        else:
            columns.append(pa.nulls(rows, field.type))
    yield pa.RecordBatch.from_arrays(columns, schema=request.schema)
