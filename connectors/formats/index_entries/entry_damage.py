"""Bad ranges of index files: raised as errors, returned as rows, or only counted, depending on the mode."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from commitlake.connectors.reading.errors import CommitLogError
from commitlake.connectors.reading.options import Mode

logger = logging.getLogger(__name__)

CORRUPT_ENTRY = "_corrupt_record"
FIRST_BYTES = 256


class Reason(StrEnum):
    """Reason why a range of an index file contains no valid entry."""

    ENTRY = "entry"
    """Bytes that no broker writes as an entry, or zeros with entries after them."""
    CUT = "cut"
    """The file ends before its range does."""
    MISSING = "missing"
    """A file of the queue, or a part of it, is missing, and a later one exists."""
    OVERLAP = "overlap"
    """The file is longer than the distance to the next one's name."""
    NAME = "name"
    """The file's name is not a position at which an entry can begin, or its topic's name is not UTF-8."""
    SIZE = "size"
    """The file has a size that a broker's file cannot have."""
    HEADER = "header"
    """The header of an IndexFile contradicts the file."""


@dataclass(frozen=True, slots=True)
class BadEntries:
    """Range of an index file in which no entry is valid.

    Attributes:
        start: position of the first byte in the file.
        end: position after the last byte.
        reason: the reason.
        expected: the bytes that the format requires, in words.
        found: the bytes in the file, in words.
        first_bytes: up to 256 bytes from its start.
    """

    start: int
    end: int
    reason: Reason
    expected: str
    found: str
    first_bytes: bytes = b""


@dataclass(slots=True)
class DamageCounter:
    """Counter of the bad ranges that a task finds; in mode FAILFAST, the first bad range raises an error.

    Attributes:
        mode: the handling of bad ranges.
        counts: number of ranges, by reason.
    """

    mode: Mode
    counts: Counter[Reason] = field(default_factory=Counter)

    def count_bad_range(self, path: str, bad_range: BadEntries) -> dict[str, Any]:
        """Count a bad range, and return the value of its column `_corrupt_record`.

        Args:
            path: path of the file; bytes that are not UTF-8 become question marks.
            bad_range: the range.

        Raises:
            CommitLogError: in mode FAILFAST.
        """
        path = path.encode("utf-8", "replace").decode()
        if self.mode is Mode.FAILFAST:
            raise CommitLogError(
                f"{path}, bytes {bad_range.start} to {bad_range.end}: {bad_range.reason}: expected "
                f"{bad_range.expected}, found {bad_range.found}. "
                "'commitlake rebuild' rebuilds a stopped broker's indexes from its log. Mode PERMISSIVE returns such "
                "ranges as rows, DROPMALFORMED counts them in the log"
            )
        self.counts[bad_range.reason] += 1
        return {
            "file": path,
            "start": bad_range.start,
            "end": bad_range.end,
            "reason": str(bad_range.reason),
            "expected": bad_range.expected,
            "found": bad_range.found,
            "first_bytes": bad_range.first_bytes,
        }

    def log_counts(self) -> None:
        """Log one line with the number of bad ranges that were not returned as rows."""
        if self.counts and self.mode is Mode.DROPMALFORMED:
            counts = ", ".join(f"{count} {reason}" for reason, count in sorted(self.counts.items()))
            logger.warning("dropped bad ranges of the broker's indexes: %s", counts)
