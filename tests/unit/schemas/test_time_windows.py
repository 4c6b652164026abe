"""Tests of time windows: they cover the requested time, and their number is limited."""

from __future__ import annotations

import datetime

import pytest

from commitlake.schemas.time_windows import TimeWindows

START = datetime.datetime(2026, 11, 20, 14, 7, 30, tzinfo=datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)


@pytest.mark.parametrize(
    ("minutes", "length", "count"), [(1, 1, 2), (120, 2, 61), (1440, 15, 97), (525_600, 7200, 74), (0, 1, 1)]
)
def test_windows_cover_a_time(minutes: int, length: int, count: int) -> None:
    end = START + minutes * MINUTE
    windows = TimeWindows.covering(START, end, 120)
    assert (windows.length / MINUTE, windows.count) == (length, count)
    assert windows.start <= START
    assert end <= windows.end < end + windows.length
    assert len(windows.starts()) == windows.count


def test_windows_have_the_requested_length() -> None:
    windows = TimeWindows.covering(START, START + 60 * MINUTE, 120, min_length=9 * MINUTE)
    assert (windows.length, windows.label(0)) == (10 * MINUTE, "2026-11-20 14:00")


def test_places_are_fractions_of_the_covered_time() -> None:
    windows = TimeWindows(START, MINUTE, 4)
    assert [windows.place(START + minutes * MINUTE) for minutes in (-1, 0, 1, 9)] == [0, 0, 0.25, 1]
    assert windows.middle(1) == 0.375
