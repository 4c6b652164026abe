"""Tests of TOML texts that `tomllib` parses very slowly, or not at all."""

from __future__ import annotations

import pytest

from commitlake.schemas.toml_text import MAX_BYTES, MAX_KEY_PARTS, TomlError, parse_toml
from tests.support.machine_speed import takes_at_most

DEEPEST = ".".join("a" * MAX_KEY_PARTS)


def test_a_document_of_usual_depth_is_parsed() -> None:
    address = ".".join(map(str, range(50)))
    assert parse_toml(f'[a.b."c.d"]\ne = "{address}"') == {"a": {"b": {"c.d": {"e": address}}}}
    assert list(parse_toml(f"{DEEPEST} = 1")) == ["a"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{DEEPEST}.b = 1", "keys of at most"),
        ("a" + ".a" * 20_000 + " = 1", "keys of at most"),
        ("[x]\n['a' . " + '"b" .' * 20_000 + "c]", "keys of at most"),
        ("a = {b" + ".é" * 20_000 + " = 1}", "keys of at most"),
        ("a = " + "[" * 50_000, "nested too deeply"),
        ("a = " + "1" * 5_000, "integer string conversion"),
        ("a = 1\na = 2", "Cannot overwrite"),
        ("a" * MAX_BYTES, "Expected '='"),
        ('"' * MAX_BYTES, "Expected '='"),
        ("#" * (MAX_BYTES + 1), "at most 1,048,576 characters"),
    ],
)
def test_other_texts_are_refused_at_once(text: str, expected: str) -> None:
    def parse() -> None:
        with pytest.raises(TomlError, match=expected):
            parse_toml(text)

    assert takes_at_most(2, parse)
