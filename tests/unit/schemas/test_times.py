"""Tests of times as numbers and as ISO 8601 text, and of time windows."""

from __future__ import annotations

import datetime

import pytest

from commitlake.schemas.times import (
    EPOCH,
    LAST_TIME,
    TimeWindows,
    add_capped,
    epoch_ms,
    epoch_ms_rounded_up,
    epoch_us,
    format_iso_time,
    format_time,
    from_ms,
    from_seconds,
    parse_iso,
    with_time_zone,
)
from tests.support.odd_logs import TIMES


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01", 0),
        ("2026-11-20T14:00", 1_795_183_200_000),  # no offset: UTC
        ("2026-11-20T14:00Z", 1_795_183_200_000),
        ("2026-11-20T16:00+02:00", 1_795_183_200_000),
        ("1969-12-31T23:59:59.9999", -1),  # rounded down, also before 1970
    ],
)
def test_text_is_parsed_to_a_time_in_utc(text: str, ms: int) -> None:
    moment = parse_iso(text)
    assert moment.tzinfo is datetime.UTC
    assert epoch_ms(moment) == ms


@pytest.mark.parametrize(("microseconds", "ms"), [(-1001, -1), (-1000, -1), (-1, 0), (0, 0), (1, 1), (1000, 1)])
def test_a_bound_is_rounded_up(microseconds: int, ms: int) -> None:
    assert epoch_ms_rounded_up(EPOCH + datetime.timedelta(microseconds=microseconds)) == ms


@pytest.mark.parametrize("text", ["", "now", "2026-13-01", "14:00"])
def test_invalid_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"[Ii]nvalid|month"):
        parse_iso(text)


def test_a_time_outside_of_all_years_in_utc_is_refused() -> None:
    with pytest.raises(OverflowError):
        parse_iso("0001-01-01T00:00+02:00")


@pytest.mark.parametrize("moment", [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999)])  # noqa: DTZ001
def test_microseconds_are_exact_at_both_ends_of_time(moment: datetime.datetime) -> None:
    known = with_time_zone(moment)
    assert EPOCH + datetime.timedelta(microseconds=epoch_us(known)) == known


@pytest.mark.parametrize(
    ("text", "iso", "plain"),
    [
        ("2026-11-20T14:00:59.9996Z", "2026-11-20T14:00:59Z", "2026-11-20 14:00:59"),
        ("2026-11-20T16:00+02:00", "2026-11-20T14:00:00Z", "2026-11-20 14:00:00"),
        ("0999-01-01", "0999-01-01T00:00:00Z", "0999-01-01 00:00:00"),
    ],
)
def test_a_time_is_formatted_in_utc(text: str, iso: str, plain: str) -> None:
    moment = parse_iso(text)
    assert (format_iso_time(moment), format_time(moment)) == (iso, plain)
    assert format_iso_time(moment, "milliseconds")[:20] == f"{iso[:-1]}."
    assert format_time(moment, "milliseconds")[:20] == f"{plain}."


def test_times_outside_the_calendar_become_its_first_or_last_one() -> None:
    least, most = -62_135_596_800_000, 253_402_300_799_999
    for ms in (*TIMES, least, most):
        expected = min(max(ms, least), most)
        assert epoch_ms(from_ms(ms)) == expected
        assert abs(epoch_ms(from_seconds(ms / 1000)) - expected) <= 1
    assert add_capped(LAST_TIME, datetime.timedelta(microseconds=1)) == LAST_TIME
    assert add_capped(EPOCH, LAST_TIME - EPOCH) == LAST_TIME


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
    assert [windows.relative_position(START + minutes * MINUTE) for minutes in (-1, 0, 1, 9)] == [0, 0, 0.25, 1]
    assert windows.middle(1) == 0.375
