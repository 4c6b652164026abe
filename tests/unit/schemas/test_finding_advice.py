"""Advice: its sentence and its commands are made from one declaration."""

from __future__ import annotations

import pytest

from commitlake.schemas.finding_advice import Advice

ADVICE = Advice("{} makes it, and {} shows it", ("rebuild {store} {into} --local", "verify {store} --lake {lake}"))


def test_known_places_are_filled_in_and_make_commands_complete() -> None:
    filled = ADVICE.fill_placeholders({"store": "/a", "into": ["--out", "b c"]})
    assert filled.sentence == (
        "\"commitlake rebuild /a --out 'b c' --local\" makes it, and 'commitlake verify /a --lake LAKE' shows it"
    )
    assert [command.to_shell_line for command in filled.commands] == ["commitlake rebuild /a --out 'b c' --local"]


def test_a_place_of_no_words_vanishes() -> None:
    (command,) = ADVICE.fill_placeholders({"store": "/a", "into": []}).commands
    assert command.words == ("commitlake", "rebuild", "/a", "--local")


def test_a_value_is_one_word_whatever_it_holds() -> None:
    advice = Advice("{}", ("query --where 'queue_offset >= {offset}' {topic}",))
    (command,) = advice.fill_placeholders({"offset": "7", "topic": "it's {offset}"}).commands
    assert command.words == ("commitlake", "query", "--where", "queue_offset >= 7", "it's {offset}")


def test_several_places_have_the_sentence_of_the_first_and_all_commands() -> None:
    filled = ADVICE.fill_for_each_place([{"store": name, "into": [], "lake": "l"} for name in "ab"])
    assert "/b" not in filled.sentence
    assert [command.words[2] for command in filled.commands] == ["a", "a", "b", "b"]
    assert ADVICE.fill_for_each_place([]).commands == ()


def test_a_sentence_without_its_command_is_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        Advice("nothing", ("verify",)).fill_placeholders()
