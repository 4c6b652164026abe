"""Tests of times in pictures: they are in UTC, from the year 1 on."""

from __future__ import annotations

import datetime

from commitlake.jobs.lineage.picture.times import clock_text, day_text, moment_text

BEGIN = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


def test_times_are_in_utc() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=2))
    moment = datetime.datetime(2026, 11, 21, 1, 30, 0, 7_999, tzinfo=zone)
    assert clock_text(moment) == "23:30:00.007"
    assert day_text(moment) == "Fri 20 Nov 2026"
    assert moment_text(moment) == "2026-11-20 23:30:00.007"
    assert (day_text(BEGIN), moment_text(BEGIN)) == ("Mon 1 Jan 1", "0001-01-01 00:00:00.000")
