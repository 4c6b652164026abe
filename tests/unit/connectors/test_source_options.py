"""Options are declared once: parsing, checks and documentation follow."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pytest

from commitlake.connectors.source_options import (
    NEEDED,
    DeclaredOptions,
    OptionUse,
    byte_count,
    choice_parser,
    integer_parser,
    option,
    parse_flag,
    parse_names,
    parse_number_set,
    parse_time_ms,
)
from commitlake.schemas.errors import UsageError
from docs.generate.spark_options import SECTIONS, Section, page


class Colour(StrEnum):
    """Words of an option."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Paint(DeclaredOptions):
    """Options of this test."""

    wall: str = option("wall", str, NEEDED, "the wall", missing="name a wall")
    colour: Colour = option("colour", choice_parser(Colour), Colour.RED, "its colour")
    coat_bytes: int = option("coatBytes", byte_count, 2 << 20, "size of a coat")
    layers: int | None = option("layers", integer_parser(1, 3), None, "how many coats", use=OptionUse.BATCH)
    is_wet: bool = option("wet", parse_flag, True, "whether it is wet", use=OptionUse.STREAM)


def test_names_are_taken_in_any_case_and_missing_options_have_their_defaults() -> None:
    paint = Paint.parse({"WALL": "north", "coatbytes": "5"})
    assert (paint.wall, paint.colour, paint.coat_bytes, paint.layers, paint.is_wet) == ("north", "red", 5, None, True)
    assert paint.given == {"wall", "coatBytes"}


def test_a_source_may_have_its_own_default() -> None:
    assert Paint.parse({"wall": "north"}, colour=Colour.BLUE).colour is Colour.BLUE
    assert Paint.parse({"wall": "north", "colour": "Red"}, colour=Colour.BLUE).colour is Colour.RED


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "the option 'wall' is missing: name a wall"),
        ({"wall": ""}, "the option 'wall' is missing: name a wall"),
        (
            {"wal": "x"},
            r"there is no option 'wal' \(did you mean 'wall'\?\): expected some of wall, colour, coatBytes, layers",
        ),
        ({"wall": "x", "colour": "green"}, "option colour: expected one of red, blue, found 'green'"),
        ({"wall": "x", "coatBytes": "0"}, "option coatBytes: expected at least 1 byte, found 0"),
        ({"wall": "x", "layers": "4"}, "option layers: expected 1 to 3, found 4"),
        ({"wall": "x", "layers": "two"}, "option layers: expected a whole number, found 'two'"),
        ({"wall": "x", "wet": "yes"}, "option wet: expected true or false, found 'yes'"),
    ],
)
def test_a_wrong_option_is_an_error_of_the_source(given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Paint.parse(given)


def test_batches_refuse_options_of_streams_and_vice_versa() -> None:
    batch, stream = Paint.parse({"wall": "x", "layers": "2"}), Paint.parse({"wall": "x", "wet": "true"})
    assert batch.for_batch() is batch
    assert stream.for_stream() is stream
    with pytest.raises(UsageError, match=r"option layers is only for spark\.read: a stream has no end"):
        batch.for_stream()
    with pytest.raises(UsageError, match=r"option wet is for streams: expected spark\.readStream, found spark\.read"):
        stream.for_batch()


def test_the_documentation_shows_a_default_as_people_write_it() -> None:
    shown = {each.name: each.default_text for each in Paint.declared_options().values()}
    assert shown == {"wall": "(needed)", "colour": "red", "coatBytes": "2 MiB", "layers": "(none)", "wet": "true"}


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.title)
def test_every_option_of_every_source_is_in_the_reference(section: Section) -> None:
    text = page()
    for each in section.options.declared_options().values():
        assert f"| {each.name} | " in text
        assert each.text


def test_lists_and_times_are_parsed() -> None:
    assert parse_names(" a, b,,a") == ("a", "b", "a")
    assert parse_number_set("3, 4") == {3, 4}
    assert parse_time_ms("1970-01-01T00:00:01") == parse_time_ms("1000") == 1000
    assert parse_time_ms("1970-01-01T00:00:00.999001") == 1000  # a bound is rounded up
    assert parse_time_ms("1969-12-31T23:59:59.9999") == 0
    for parse, text in ((parse_names, " ,"), (parse_number_set, "1,x"), (parse_time_ms, "noon")):
        with pytest.raises(ValueError, match="expected"):
            parse(text)
