"""Times and lengths of time, as a picture shows them; UTC."""

from __future__ import annotations

import datetime

from commitlake.jobs.cli.durations import duration_text
from commitlake.schemas.times import MILLISECOND

_SECOND = datetime.timedelta(seconds=1)


def length_text(length: datetime.timedelta) -> str:
    """Return a length of time, to two digits or so.

    >>> [length_text(datetime.timedelta(milliseconds=ms)) for ms in (0, 74, 4_230, 90_000, 172_800_000, -500)]
    ['0 ms', '74 ms', '4.2 s', '1.5 min', '2 d', '-500 ms']
    """
    if length < datetime.timedelta():
        return f"-{length_text(-length)}"
    if length < _SECOND:
        return f"{length // MILLISECOND} ms"
    if length < 10 * _SECOND:
        return f"{length / _SECOND:.2g} s"
    return duration_text(length)


def clock_text(moment: datetime.datetime) -> str:
    """Return a time of the day, to the millisecond."""
    utc = moment.astimezone(datetime.UTC)
    return f"{utc:%H:%M:%S}.{utc.microsecond // 1000:03d}"


def day_text(moment: datetime.datetime) -> str:
    """Return a time's day: `Fri 20 Nov 2026`."""
    utc = moment.astimezone(datetime.UTC)
    return f"{utc:%a} {utc.day} {utc:%b} {utc.year}"


def moment_text(moment: datetime.datetime) -> str:
    """Return a time with its day, to the millisecond."""
    return moment.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")
