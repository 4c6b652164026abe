"""SQL92 expressions over properties."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from commitlake.schemas.remoting.sql92 import (
    MAX_DEPTH,
    MAX_LENGTH,
    PausableProperties,
    PausedError,
    SqlError,
    compile_sql92,
)
from tests.support.machine_speed import longest_step_is_at_most

PROPERTIES = {"a": "5", "b": "abc", "c": "-2.5", "d": "true", "it's": "x", "e": "it's"}


@pytest.mark.parametrize(
    "expression",
    [
        "a = 5",
        "a = 5.0",
        "a <> 6",
        "a > 4 AND a < 6",
        "a >= 5 and a <= 5L",
        "a BETWEEN 5 AND 7",
        "a NOT BETWEEN 6 AND 7",
        "b = 'abc'",
        "b <> 'abd'",
        "b IN ('x', 'abc')",
        "b NOT IN ('x', 'y')",
        "e = 'it''s'",
        "c < 0",
        "c = -2.5",
        "c = -.25e1",
        "c > -3",
        "d = TRUE",
        "d <> FALSE",
        "TRUE",
        "NOT FALSE",
        "z IS NULL",
        "a IS NOT NULL",
        "NOT (z IS NOT NULL)",
        "a = 6 OR b = 'abc'",
        "(a = 6 OR a = 5) AND NOT b = 'x'",
        "b CONTAINS 'bc'",
        "b STARTSWITH 'ab'",
        "b ENDSWITH 'c'",
        "b NOT CONTAINS 'z'",
        "z > 1 OR a = 5",
        "5 = a",
        "a > -9223372036854775808",
        "a < 9223372036854775807",
        "a\n=\t5",
        # AND binds more tightly than OR.
        "a = 5 OR a = 6 AND a = 7",
    ],
)
def test_expression_is_true(expression: str) -> None:
    assert compile_sql92(expression)(PROPERTIES) is True


@pytest.mark.parametrize(
    "expression",
    [
        "a = 6",
        "b > 3",
        "b = 5",
        "b BETWEEN 1 AND 2",
        "d = FALSE",
        "FALSE",
        # Unknown is not true, and NOT unknown is unknown.
        "z = 5",
        "NOT z = 5",
        "z <> 5",
        "z > 1 AND a = 5",
        "z IN ('x')",
        "z NOT IN ('x')",
        "z BETWEEN 1 AND 2",
        "NOT z CONTAINS 'x'",
    ],
)
def test_expression_is_not_true(expression: str) -> None:
    assert compile_sql92(expression)(PROPERTIES) is False


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "a",
        "a =",
        "= 5",
        "a = 5 b",
        "a = 5 AND",
        "(a = 5",
        "a = 5)",
        "a IN ()",
        "a IN (5)",
        "a IN ('x'",
        "a > 'x'",
        "a BETWEEN 1",
        "a BETWEEN 'x' AND 'y'",
        "a IS 5",
        "a = 'x",
        "a ! 5",
        "a NOT 5",
        "5",
        "a > TRUE",
        "NOT",
        "a CONTAINS 5",
        "a = 5; DROP",
        "a == 5",
        "'x'",
        "- a = 5",
        "a = " + "9" * 5000,
        "a = -9223372036854775809",
        "a = 9223372036854775808",
        "a = 1e999",
        "a = \u0661",
        "NOT " * (MAX_DEPTH + 1) + "TRUE",
        "(" * (MAX_DEPTH + 1) + "TRUE" + ")" * (MAX_DEPTH + 1),
        "a" * (MAX_LENGTH + 1),
    ],
)
def test_invalid_expression_is_refused(expression: str) -> None:
    with pytest.raises(SqlError, match="expected"):
        compile_sql92(expression)


@pytest.mark.parametrize("text", ["9" * 5000, "1_0", " 5", "\u0665", "nan", "inf", "0x5", "--5", ""])
def test_a_comparison_with_a_property_that_is_not_a_number_is_false(text: str) -> None:
    for sign in ("<", "=", ">"):
        assert compile_sql92(f"a {sign} 5")({"a": text}) is False


@pytest.mark.parametrize("text", ["9" * 20, "1e300", "+6", "0006", "5.5"])
def test_a_property_may_be_any_number_that_fits_a_double(text: str) -> None:
    assert compile_sql92("a > 5")({"a": text}) is True


@pytest.mark.usefixtures("without_collection")
def test_a_long_evaluation_pauses_and_continues() -> None:
    text = "a" * 29_000
    parts = [f"p CONTAINS '{'a' * 40}b{number:03d}'" for number in range(255)]
    condition = compile_sql92(" OR ".join([*parts, "q = 'x'"]))

    def evaluate() -> Iterator[bool | None]:
        """Yield None for each pause, and then the value."""
        properties = PausableProperties({"p": text, "q": "x"})
        found = None
        while found is None:
            with suppress(PausedError):
                found = condition(properties)
            yield found

    *pauses, found = evaluate()
    assert found is True
    assert 10 < len(pauses) < 40
    assert longest_step_is_at_most(0.05, evaluate)
    assert compile_sql92(" OR ".join(parts))(PausableProperties({"p": "a"})) is False


@pytest.mark.parametrize(
    "expression", ["p CONTAINS 'b'", "NOT p CONTAINS 'z'", "'abc' CONTAINS 'bc'", "z CONTAINS 'a'"]
)
def test_an_evaluation_that_can_pause_has_the_same_result(expression: str) -> None:
    properties = {"p": "abc"}
    condition = compile_sql92(expression)
    assert condition(PausableProperties(properties)) is condition(properties)
