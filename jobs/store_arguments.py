"""Argument types that jobs on stores share."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def at_least(least: int) -> Callable[[str], int]:
    """The type of an option whose whole number has a lower limit."""

    def number(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number, {least} or more")
        return int(text)

    return number


positive = at_least(1)
"""A whole number from 1 on."""


def delay_levels(text: str) -> tuple[int, ...]:
    """A broker's messageDelayLevel, ms of each level."""
    from connectors.facts.delay_levels import parse_delay_levels

    try:
        return parse_delay_levels(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
