"""Times as numbers and as text, and time windows: ms or microseconds since 1970, ISO 8601; UTC unless stated otherwise.

    >>> moment = parse_iso("2026-11-20T14:00")
    >>> moment
    datetime.datetime(2026, 11, 20, 14, 0, tzinfo=datetime.timezone.utc)
    >>> epoch_ms(moment), epoch_us(moment)
    (1795183200000, 1795183200000000)

Differences are divided as integers, because `timestamp()` is a float without enough digits for microseconds.
"""

from __future__ import annotations

import datetime
from contextvars import ContextVar
from dataclasses import dataclass

SHOWN_ZONE: ContextVar[datetime.tzinfo | None] = ContextVar("shown_zone", default=datetime.UTC)
"""The time zone of times in texts for people; None for the local one. Tables, files and pages are in UTC."""
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
LAST_TIME = datetime.datetime.max.replace(tzinfo=datetime.UTC)
"""The calendar's last time. Messages and files can have later ones, of which the conversions here return this one."""
FIRST_USUAL_TIME = datetime.datetime(2010, 1, 1, tzinfo=datetime.UTC)
"""A time before the first RocketMQ: earlier store times are of clocks that were not set."""
MILLISECOND = datetime.timedelta(milliseconds=1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_FIRST_TIME = datetime.datetime.min.replace(tzinfo=datetime.UTC)
_TOLERATED = datetime.timedelta(days=1)
_MINUTE = datetime.timedelta(minutes=1)
LENGTHS = (
    *(minutes * _MINUTE for minutes in (1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 360, 720)),
    *(datetime.timedelta(days=days) for days in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)),
)
"""Lengths of windows that are easy to read."""


def with_time_zone(moment: datetime.datetime) -> datetime.datetime:
    """Return a time with a time zone: its own, or UTC if it has none."""
    return moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)


def parse_iso(text: str) -> datetime.datetime:
    """Parse a time or date in ISO 8601, and return it in UTC; without an offset it is taken as UTC.

    Raises:
        ValueError: if the text is invalid.
        OverflowError: if it is before the year 1 or after 9999 in UTC.
    """
    return with_time_zone(datetime.datetime.fromisoformat(text)).astimezone(datetime.UTC)


def format_iso_time(moment: datetime.datetime, timespec: str = "seconds") -> str:
    """Format a time with a time zone as ISO 8601 in UTC: `2026-11-20T14:00:00Z`.

    Args:
        moment: the time.
        timespec: precision, as for `datetime.isoformat`.
    """
    return moment.astimezone(datetime.UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def format_time(moment: datetime.datetime, timespec: str = "seconds") -> str:
    """Format a time with a time zone in UTC, by default to the second, for people: `2026-11-20 14:00:00`."""
    return moment.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(sep=" ", timespec=timespec)


def to_display_zone(moment: datetime.datetime) -> datetime.datetime:
    """Return a time in the time zone in which the running job displays times."""
    return moment.astimezone(SHOWN_ZONE.get())


def epoch_ms(moment: datetime.datetime) -> int:
    """Return the whole milliseconds since 1970 of a time with a time zone."""
    return (moment - EPOCH) // MILLISECOND


def epoch_ms_rounded_up(moment: datetime.datetime) -> int:
    """Return the first millisecond since 1970 that is not before a time with a time zone.

    Times in logs are whole milliseconds. So one is at or after this bound if, and only if, it is at or after the time.
    """
    return -((EPOCH - moment) // MILLISECOND)


def epoch_us(moment: datetime.datetime) -> int:
    """Return the microseconds since 1970 of a time with a time zone."""
    return (moment - EPOCH) // _MICROSECOND


def from_ms(milliseconds: int) -> datetime.datetime:
    """Convert milliseconds since 1970 to a UTC time, limited to the first and last time that Python can represent."""
    try:
        return EPOCH + milliseconds * MILLISECOND
    except OverflowError:
        return _FIRST_TIME if milliseconds < 0 else LAST_TIME


def from_seconds(seconds: float) -> datetime.datetime:
    """Convert seconds since 1970 to a UTC time, limited to the first and last time that Python can represent."""
    try:
        return EPOCH + datetime.timedelta(seconds=seconds)
    except OverflowError:
        return _FIRST_TIME if seconds < 0 else LAST_TIME


def add_capped(moment: datetime.datetime, duration: datetime.timedelta) -> datetime.datetime:
    """Return `moment` plus a positive duration, limited to the last time that Python can represent."""
    return moment + duration if duration <= LAST_TIME - moment else LAST_TIME


def latest_plausible_time() -> datetime.datetime:
    """Return the latest plausible time of a broker's clock: one day from now."""
    return datetime.datetime.now(datetime.UTC) + _TOLERATED


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Consecutive time windows of equal length, for charts and histories.

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
        """Return windows that cover a time range, of the shortest length that needs at most `max_count` windows.

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
        """End of the last window, limited to the last time that Python can represent."""
        return add_capped(self.start, self.count * self.length)

    def starts(self) -> list[datetime.datetime]:
        """Return the start of each window."""
        return [self.start + number * self.length for number in range(self.count)]

    def relative_position(self, moment: datetime.datetime) -> float:
        """Return the position of a time within all windows, from 0 (start) to 1 (end); times outside are clamped."""
        return min(1.0, max(0.0, (moment - self.start) / (self.end - self.start)))

    def middle(self, window_number: int) -> float:
        """Return the position of the middle of a window within all windows, from 0 to 1."""
        return (window_number + 0.5) / self.count

    def label(self, window_number: int) -> str:
        """Return the start of a window as text, UTC."""
        has_seconds = bool(self.length % _MINUTE)
        moment = (self.start + window_number * self.length).astimezone(datetime.UTC)
        return f"{moment:%Y-%m-%d %H:%M:%S}" if has_seconds else f"{moment:%Y-%m-%d %H:%M}"
