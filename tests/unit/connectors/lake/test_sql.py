"""Literals in SQL, as each engine reads them."""

from __future__ import annotations

import datetime

import pytest

from commitlake.connectors.lake.sql import Engine, column_name, date_literal, text_literal, timestamp_literal


@pytest.mark.parametrize(
    ("text", "deltalake", "spark"),
    [
        ("orders", "'orders'", "'orders'"),
        ("it's", "'it''s'", r"'it\'s'"),
        ("a\\b", "'a\\b'", r"'a\\b'"),  # a backslash is itself for one engine, an escape for the other
    ],
)
def test_a_text_is_quoted_for_its_engine(text: str, deltalake: str, spark: str) -> None:
    assert text_literal(text) == deltalake
    assert text_literal(text, Engine.SPARK) == spark


def test_times_are_numbers_of_microseconds() -> None:
    moment = datetime.datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=datetime.UTC)
    assert timestamp_literal(moment) == "arrow_cast(1000005, 'Timestamp(Microsecond, Some(\"UTC\"))')"
    assert timestamp_literal(moment, Engine.SPARK) == "timestamp_micros(1000005)"


def test_the_date_of_a_time_is_that_in_utc() -> None:
    east = datetime.timezone(datetime.timedelta(hours=8))
    assert date_literal(datetime.datetime(2026, 11, 20, 7, tzinfo=east)) == "DATE '2026-11-19'"
    assert date_literal(datetime.date(2026, 11, 20)) == "DATE '2026-11-20'"


def test_a_column_is_quoted_for_its_engine() -> None:
    assert (column_name("body"), column_name("body", Engine.SPARK)) == ('"body"', "`body`")
