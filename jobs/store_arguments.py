"""Argument types that jobs on stores share."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1 or more")
    return int(text)


def delay_levels(text: str) -> tuple[int, ...]:
    """A broker's messageDelayLevel, ms of each level."""
    from connectors.facts.delay_levels import parse_delay_levels

    try:
        return parse_delay_levels(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
