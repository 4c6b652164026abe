"""Formatting of times in pictures; all are UTC."""

from __future__ import annotations

import datetime


def clock_text(moment: datetime.datetime) -> str:
    """Format the time of day, to the millisecond."""
    utc = moment.astimezone(datetime.UTC)
    return f"{utc:%H:%M:%S}.{utc.microsecond // 1000:03d}"


def day_text(moment: datetime.datetime) -> str:
    """Format the day of a time: `Fri 20 Nov 2026`."""
    utc = moment.astimezone(datetime.UTC)
    return f"{utc:%a} {utc.day} {utc:%b} {utc.year}"


def moment_text(moment: datetime.datetime) -> str:
    """Format a time with its day, to the millisecond."""
    return moment.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")
