"""Consecutive time windows of equal length, for charts and histories."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from commitlake.schemas.times import EPOCH, after

_MINUTE = datetime.timedelta(minutes=1)
LENGTHS = (
    *(minutes * _MINUTE for minutes in (1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 360, 720)),
    *(datetime.timedelta(days=days) for days in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)),
)
"""Lengths of windows that are easy to read."""


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Consecutive time windows.

    Attributes:
        start: start of the first window.
        length: length of each window.
        count: number of windows, at least one.
    """

    start: datetime.datetime
    length: datetime.timedelta
    count: int

    @classmethod
    def covering(
        cls, start: datetime.datetime, end: datetime.datetime, max_count: int, min_length: datetime.timedelta = _MINUTE
    ) -> TimeWindows:
        """Return the shortest windows of `LENGTHS` that cover a time range.

        Args:
            start: start of the range.
            end: end of the range.
            max_count: maximum number of windows.
            min_length: minimum length of a window.
        """
        for length in LENGTHS:
            first = EPOCH + (start - EPOCH) // length * length
            count = max(1, -((first - end) // length))
            if length >= min_length and count <= max_count:
                break
        return cls(first, length, count)

    @property
    def end(self) -> datetime.datetime:
        """End of the last window, at most the calendar's last time."""
        return after(self.start, self.count * self.length)

    def starts(self) -> list[datetime.datetime]:
        """Return the start of each window."""
        return [self.start + number * self.length for number in range(self.count)]

    def place(self, moment: datetime.datetime) -> float:
        """Return the position of a moment: 0 at the start, 1 at the end; moments outside count as the nearer end."""
        return min(1.0, max(0.0, (moment - self.start) / (self.end - self.start)))

    def middle(self, number: int) -> float:
        """Return the position of a window's middle, 0 to 1."""
        return (number + 0.5) / self.count

    def label(self, number: int) -> str:
        """Return the start of a window as text, UTC."""
        has_seconds = bool(self.length % _MINUTE)
        moment = (self.start + number * self.length).astimezone(datetime.UTC)
        return f"{moment:%Y-%m-%d %H:%M:%S}" if has_seconds else f"{moment:%Y-%m-%d %H:%M}"
