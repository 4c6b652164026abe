"""Tests of times on a command line: accepted texts, and the times that they stand for."""

from __future__ import annotations

import argparse
import datetime
import time

import pytest

from commitlake.jobs.arguments.times import parse_time, to_local_times

UTC = datetime.UTC
HOUR = datetime.timedelta(hours=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-20", datetime.datetime(2026, 11, 20, tzinfo=UTC)),
        ("2026-11-20T14:00", datetime.datetime(2026, 11, 20, 14, tzinfo=UTC)),
        ("2026-11-20 14:00:05", datetime.datetime(2026, 11, 20, 14, 0, 5, tzinfo=UTC)),
        ("2026-11-20T14:00:05.123", datetime.datetime(2026, 11, 20, 14, 0, 5, 123000, tzinfo=UTC)),
        ("2026-11-20T14:00Z", datetime.datetime(2026, 11, 20, 14, tzinfo=UTC)),
        ("2026-11-20T14:00+08:00", datetime.datetime(2026, 11, 20, 6, tzinfo=UTC)),
        ("2026-11-20T14:00-02:30", datetime.datetime(2026, 11, 20, 16, 30, tzinfo=UTC)),
        ("20261120T140000", datetime.datetime(2026, 11, 20, 14, tzinfo=UTC)),
        ("1700000000000", datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        ("1700000000001", datetime.datetime(2023, 11, 14, 22, 13, 20, 1000, tzinfo=UTC)),
    ],
)
def test_an_absolute_time_is_parsed(text: str, expected: datetime.datetime) -> None:
    assert parse_time(text) == expected
    assert parse_time(text).tzinfo is not None


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("now", 0 * HOUR),
        ("-0s", 0 * HOUR),
        ("-90s", HOUR / 40),
        ("-30m", HOUR / 2),
        ("-2h", 2 * HOUR),
        ("now-2h", 2 * HOUR),
        ("-3d", 72 * HOUR),
        ("-1w", 168 * HOUR),
    ],
)
def test_a_relative_time_is_counted_back_from_now(text: str, ago: datetime.timedelta) -> None:
    before = datetime.datetime.now(UTC) - ago
    moment = parse_time(text)
    assert before <= moment <= datetime.datetime.now(UTC) - ago


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "yesterday", "-2", "-2y", "2h", "--2h", "-2.5h", "+2h", "now+2h", "2026-13-01", "2026-02-30", "14:00",
        "20:61", "1700000000", "17000000000000000", "2026-11-20T25:00", "' or 1=1 --", "٣-11-20",
        "-99999999999d", "-999999999999999999999s", "-900000w",
        "0001-01-01T00:00+08:00", "9999-12-31T23:00-08:00",
    ],
)  # fmt: skip
def test_an_invalid_time_is_refused_with_the_accepted_forms(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"is not a time: expected 2026-11-20T14:00, .* or -2h"):
        parse_time(text)


def test_times_in_sentences_are_shown_in_the_local_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        assert to_local_times("from 2026-11-20 14:00:00 UTC on") == "from 2026-11-20T19:30:00+05:30 on"
        text = "from 2026-11-20T14:00:00Z to 2026-11-20T23:59:59.999Z, in 9999-12-31T23:59:59Z and 2026-13-40T99:00:00Z"
        assert to_local_times(text) == (
            "from 2026-11-20T19:30:00+05:30 to 2026-11-21T05:29:59.999+05:30, in 9999-12-31T23:59:59Z and "
            "2026-13-40T99:00:00Z"
        )
    finally:
        monkeypatch.undo()
        time.tzset()
