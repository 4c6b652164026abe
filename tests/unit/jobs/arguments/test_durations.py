"""Lengths of time on a command line."""

from __future__ import annotations

import argparse
import datetime

import pytest

from commitlake.jobs.arguments.durations import parse_duration


@pytest.mark.parametrize(("text", "hours"), [("12h", 12), ("90d", 2160), ("2w", 336), ("36500d", 876_000)])
def test_a_number_and_a_unit_are_a_length(text: str, hours: int) -> None:
    assert parse_duration(text) == datetime.timedelta(hours=hours)


@pytest.mark.parametrize("text", ["999999w", "36501d", "876001h"])
def test_more_than_a_hundred_years_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="too long: expected at most 36500d"):
        parse_duration(text)
