"""Times, as a picture shows them; UTC."""

from __future__ import annotations

import datetime


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
