"""Literals in SQL, as each engine reads them."""

from __future__ import annotations

import datetime

import pytest

from commitlake.connectors.lake.sql import (
    Engine,
    date_literal,
    quote_column_name,
    selection_conditions,
    text_literal,
    timestamp_literal,
)
from commitlake.schemas.errors import UsageError
from commitlake.schemas.selection import Selection


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
    assert (quote_column_name("body"), quote_column_name("body", Engine.SPARK)) == ('"body"', "`body`")


@pytest.mark.parametrize(
    "where", ["a) OR (b", "')' = a) OR (b", "a -- (\n) OR (b", "/* ( */ a) OR (b", '"(" = a) OR (b']
)
@pytest.mark.parametrize("engine", Engine)
def test_a_predicate_with_a_parenthesis_too_many_is_refused(where: str, engine: Engine) -> None:
    with pytest.raises(UsageError, match=r"found a '\)' without its '\('"):
        selection_conditions(Selection(where=where), engine)


@pytest.mark.parametrize("where", ["a = ')' OR (b)", "a -- )", "/* ) */ a", "`)` = a", "a = 'it''s )'"])
@pytest.mark.parametrize("engine", Engine)
def test_parentheses_in_texts_names_and_comments_do_not_count(where: str, engine: Engine) -> None:
    assert selection_conditions(Selection(where=where), engine) == [f"({where}\n)"]


def test_a_backslash_escapes_a_quote_in_spark_only() -> None:
    where = r"a = 'it\') OR (' OR b = ''"
    assert selection_conditions(Selection(where=where), Engine.SPARK)
    with pytest.raises(UsageError):
        selection_conditions(Selection(where=where))
