"""Windows of time of equal length, one after the other, as charts and histories have them."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from commitlake.schemas.times import EPOCH

_MINUTE = datetime.timedelta(minutes=1)
LENGTHS = (
    *(minutes * _MINUTE for minutes in (1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 360, 720)),
    *(datetime.timedelta(days=days) for days in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)),
)
"""Lengths of windows that people read easily."""


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Some windows of time.

    Attributes:
        start: Of the first one.
        length: Of each.
        count: How many, at least one.
    """

    start: datetime.datetime
    length: datetime.timedelta
    count: int

    @classmethod
    def covering(
        cls, start: datetime.datetime, end: datetime.datetime, most: int, least: datetime.timedelta = _MINUTE
    ) -> TimeWindows:
        """Return the shortest windows of `LENGTHS` that cover a time.

        Args:
            start: The time's beginning.
            end: Its end.
            most: So many windows at most.
            least: A window is so long at least.
        """
        for length in LENGTHS:
            first = EPOCH + (start - EPOCH) // length * length
            count = max(1, -((first - end) // length))
            if length >= least and count <= most:
                break
        return cls(first, length, count)

    @property
    def end(self) -> datetime.datetime:
        """The last one's end."""
        return self.start + self.count * self.length

    def starts(self) -> list[datetime.datetime]:
        """Return the beginning of each."""
        return [self.start + number * self.length for number in range(self.count)]

    def place(self, moment: datetime.datetime) -> float:
        """Return where a moment is: 0 at the beginning, 1 at the end; what is outside is at the nearer one."""
        return min(1.0, max(0.0, (moment - self.start) / (self.end - self.start)))

    def middle(self, number: int) -> float:
        """Return where the middle of a window is, 0 to 1."""
        return (number + 0.5) / self.count

    def label(self, number: int) -> str:
        """Return the beginning of a window as text, UTC."""
        has_seconds = bool(self.length % _MINUTE)
        moment = (self.start + number * self.length).astimezone(datetime.UTC)
        return f"{moment:%Y-%m-%d %H:%M:%S}" if has_seconds else f"{moment:%Y-%m-%d %H:%M}"
