"""Tests of the text about rates and capacity."""

from __future__ import annotations

import datetime

import pytest

from commitlake.jobs.notebooks import tps_words as words
from commitlake.pipelines.tps.coverage import Coverage, TimeSpan
from commitlake.pipelines.tps.overview import Capacity
from commitlake.pipelines.tps.question import RatesQuestion

START = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
QUESTION = RatesQuestion(("topic",), START, START + 24 * HOUR)


def test_missing_parts_of_the_log_and_of_the_table_are_described() -> None:
    gap = TimeSpan(START + HOUR, START + 2 * HOUR)
    coverage = Coverage(
        {"a": TimeSpan(START, START + 24 * HOUR)}, {"a": [gap, TimeSpan(START - 2 * HOUR, START - HOUR)]}
    )
    assert list(words.answer(QUESTION, [], None, coverage, Capacity(0, 0, 0), lacking_runs=1)) == [
        (
            "topic_minutes lacks 1 archive run, so these figures are too small: 'commitlake archive --lake LAKE "
            "--backfill topic_minutes' adds them."
        ),
        "From 2026-11-20 00:00:00 to 2026-11-21 00:00:00 UTC no message is archived.",
        "Of a a part of the log from 2026-11-20 01:00:00 to 2026-11-20 02:00:00 is missing.",
    ]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (Capacity(0, 0, 0), "Nothing was stored, so how long a disk of 1.0 GiB lasts is not known."),
        (Capacity(3, 1 << 28, 1 << 29), "A disk of 1.0 GiB holds the log of 2 d, if each day is like the largest one."),
        (
            Capacity(3, 1, 1),
            "A disk of 1.0 GiB holds the log of more than ten years, if each day is like the largest one.",
        ),
    ],
)
def test_the_time_that_a_disk_lasts_is_described(found: Capacity, expected: str) -> None:
    assert words.disk_answer(found, 1) == expected


def test_a_series_has_a_place_for_each_window_and_begins_with_the_largest() -> None:
    windows = [
        {"topic": "few", "window_start": START, "messages": 1, "bytes": 10},
        {"topic": "many", "window_start": START + HOUR, "messages": 5, "bytes": 50},
        {"topic": "many", "window_start": START, "messages": None, "bytes": None},
    ]
    assert (words.rate_text(1), words.rate_text(0.5)) == ("1 message a second", "0.5 messages a second")
    found = words.series(windows, "bytes", [START, START + HOUR])
    assert list(found.items()) == [("many", [None, 50]), ("few", [10, None])]
