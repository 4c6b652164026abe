"""Durations on a command line."""

from __future__ import annotations

import argparse
import datetime
import re
from collections.abc import Callable

_DURATION = re.compile(r"([0-9]{1,6})([smhdw])")
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LONGEST = datetime.timedelta(days=36_500)  # subtracted from the present, this is still a valid date
_UNIT_SECONDS = (("d", 86400), ("h", 3600), ("min", 60))


def parse_duration(text: str) -> datetime.timedelta:
    """Parse a duration such as `12h` or `90d`: a number and a unit s, m, h, d or w.

    Raises:
        argparse.ArgumentTypeError: if it is not a duration, or longer than a hundred years.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a duration: expected a number and s, m, h, d or w, as in 12h or 90d"
        )
    length = datetime.timedelta(**{UNITS[match[2]]: int(match[1])})
    if length > _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is too long: expected at most {_LONGEST.days}d")
    return length


def make_duration_parser(minimum: str, reason: str = "") -> Callable[[str], datetime.timedelta]:
    """Return a function for argparse's `type` that parses a duration not shorter than a minimum.

    Args:
        reason: why it cannot be shorter, for the error.
    """

    def parse_bounded_duration(text: str) -> datetime.timedelta:
        length = parse_duration(text)
        if length < parse_duration(minimum):
            raise argparse.ArgumentTypeError(f"{text!r}: expected {minimum} or more{reason and ': '}{reason}")
        return length

    return parse_bounded_duration


def duration_text(duration: datetime.timedelta) -> str:
    """Format a duration for people, to about two digits: `3 d`, `9.2 h`, `12 s`."""
    seconds = duration.total_seconds()
    for unit, unit_seconds in _UNIT_SECONDS:
        if seconds >= unit_seconds:
            count = seconds / unit_seconds
            return f"{count:.0f} {unit}" if count >= 10 or count == int(count) else f"{count:.1f} {unit}"
    return f"{seconds:.0f} s"
