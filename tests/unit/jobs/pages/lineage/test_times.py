"""Times of pictures: lengths to two digits, at every border and beyond what a calendar has."""

from __future__ import annotations

import datetime

import pytest

from commitlake.jobs.pages.lineage.times import clock_text, day_text, moment_text
from commitlake.pipelines.lineage.words import length_text

BEGIN = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0 ms"), (999, "999 ms"), (1_000, "1 s"), (4_230, "4.2 s"), (10_000, "10 s"), (59_000, "59 s"),
     (90_000, "1.5 min"), (3_600_000, "1 h"), (172_800_000, "2 d"), (-500, "-500 ms"), (-90_000, "-1.5 min")],
)  # fmt: skip
def test_a_length_has_two_digits(milliseconds: int, text: str) -> None:
    assert length_text(datetime.timedelta(milliseconds=milliseconds)) == text


def test_the_longest_lengths_have_a_text() -> None:
    assert length_text(datetime.timedelta.max) == "1000000000 d"
    assert length_text(datetime.timedelta.min) == "-999999999 d"


def test_times_are_in_utc() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=2))
    moment = datetime.datetime(2026, 11, 21, 1, 30, 0, 7_999, tzinfo=zone)
    assert clock_text(moment) == "23:30:00.007"
    assert day_text(moment) == "Fri 20 Nov 2026"
    assert moment_text(moment) == "2026-11-20 23:30:00.007"
    assert (day_text(BEGIN), moment_text(BEGIN)) == ("Mon 1 Jan 1", "0001-01-01 00:00:00.000")
