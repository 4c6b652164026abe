"""Counts of the parts of a broker's log that could not be read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RefusalCounts:
    """The counts of one broker's log.

    Attributes:
        bad_ranges: number of ranges without an intact record.
        marked_rows: number of messages with a value that no column can hold.
        missing_ranges: number of ranges whose segment is missing.
    """

    bad_ranges: int = 0
    marked_rows: int = 0
    missing_ranges: int = 0

    @property
    def quarantined(self) -> int:
        """Return the number of rows for `quarantine`."""
        return self.bad_ranges + self.marked_rows

    def __add__(self, other: RefusalCounts) -> RefusalCounts:
        """Return the sum of two counts."""
        return RefusalCounts(
            self.bad_ranges + other.bad_ranges,
            self.marked_rows + other.marked_rows,
            self.missing_ranges + other.missing_ranges,
        )
