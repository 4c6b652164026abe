"""Tests of whole numbers in text from outside."""

from __future__ import annotations

import pytest

from commitlake.schemas.layouts.integer_parsing import (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    NumberError,
    int_in_range,
    parse_int,
    parse_int32,
    parse_int64,
    require_int,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("7", 7),
        ("-7", -7),
        ("+7", 7),
        ("-0", 0),
        ("007", 7),
        ("0" * 5000 + "7", 7),  # Java's parseInt has no limit of leading zeros
        ("-" + "0" * 5000, 0),
        (str(INT32_MAX), INT32_MAX),
        (str(INT32_MIN), INT32_MIN),
        (str(INT64_MAX), INT64_MAX),
        (str(INT64_MIN), INT64_MIN),
    ],
)
def test_numbers_are_read_as_java_reads_them(text: str, number: int) -> None:
    assert parse_int64(text) == number
    assert parse_int32(text) == (number if INT32_MIN <= number <= INT32_MAX else None)
    assert require_int(text, "field", INT64_MIN, INT64_MAX) == number


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "-",
        "+",
        "--1",
        "+-1",
        " 1",
        "1 ",
        "1\n",
        "1_000",
        "0x10",
        "1.0",
        "1e3",
        "1L",
        "1\x00",
        "١٢",  # Arabic digits, decimal for str.isdecimal
        "²",
        "\uff11",  # fullwidth 1
        "9" * 5000,
        "-" + "9" * 5000,
        "9" * 20,
        str(INT64_MAX + 1),
        str(INT64_MIN - 1),
    ],
)
def test_other_text_is_not_a_number(text: str | None) -> None:
    assert parse_int64(text) is None
    assert parse_int32(text) is None


def test_a_range_includes_both_ends() -> None:
    assert [parse_int(text, -1, 2) for text in ("-2", "-1", "2", "3")] == [None, -1, 2, None]


def test_error_names_the_field_and_shows_a_short_piece_of_the_text() -> None:
    with pytest.raises(NumberError, match=r"^queueId: expected a whole number from 0 to 255, found '7x'$"):
        require_int("7x", "queueId", 0, 255)
    with pytest.raises(NumberError, match=r"found '9{40}' and 4960 more characters$"):
        require_int("9" * 5000, "queueId", 0, 255)


@pytest.mark.parametrize(("value", "number"), [(0, 0), (255, 255), (256, None), (-1, None), (True, None), ("1", None)])
def test_a_json_value_must_be_a_whole_number_within_its_range(value: object, number: int | None) -> None:
    assert int_in_range(value, 0, 255) == number
