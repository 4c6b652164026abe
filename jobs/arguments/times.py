"""Parsing and formatting of times on a command line."""

from __future__ import annotations

import argparse
import datetime
import re
from collections.abc import Sequence

from commitlake.jobs.arguments.durations import UNITS
from commitlake.schemas.times import EPOCH, MILLISECOND, format_iso_time, parse_iso

_AGO = re.compile(r"(?:now)?-([0-9]{1,12})([smhdw])")
_EPOCH_MS = re.compile(r"[0-9]{12,14}")
TIME_TEXT = re.compile(
    r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z| [0-9]{2}:[0-9]{2}:[0-9]{2} UTC)"
)
"""A time in UTC, as `time_text` and `format_iso_time` write it, or as reports do."""


def parse_time(text: str) -> datetime.datetime:
    """Parse a time: ISO 8601 (UTC unless it has an offset), a date, ms since 1970, `now`, or `-2h` for two hours ago.

    Raises:
        argparse.ArgumentTypeError: if it is none of these.
    """
    now = datetime.datetime.now(datetime.UTC)
    if text == "now":
        return now
    try:
        if match := _AGO.fullmatch(text):
            return now - datetime.timedelta(**{UNITS[match[2]]: int(match[1])})
        if _EPOCH_MS.fullmatch(text):
            return EPOCH + int(text) * MILLISECOND
        return parse_iso(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time: expected 2026-11-20T14:00, 2026-11-20, ms since 1970, now, or -2h (two hours ago)"
        ) from None


def join_options_and_times(arguments: Sequence[str], *options: str) -> list[str]:
    """Join `--from -2h` to `--from=-2h`, because argparse would take `-2h` for an option."""
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1] in options and _AGO.fullmatch(argument):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


def time_text(moment: datetime.datetime) -> str:
    """Format a time as ISO 8601 in UTC, with milliseconds if it has any."""
    return format_iso_time(moment, "milliseconds" if moment.microsecond else "seconds")


def to_local_times(text: str) -> str:
    """Convert the UTC times in a text to the local time zone, with its offset from UTC."""
    return TIME_TEXT.sub(_to_local_time, text)


def _to_local_time(match: re.Match[str]) -> str:
    try:
        moment = parse_iso(match[0].replace(" UTC", "Z")).astimezone()
    except (ValueError, OverflowError):  # it only looks like a time, or is at the end of the calendar
        return match[0]
    return moment.isoformat(timespec="milliseconds" if "." in match[0] else "seconds")
