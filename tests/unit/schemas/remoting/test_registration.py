"""Tests of large JSON documents that are read in pieces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from commitlake.schemas.remoting.errors import BodyError
from commitlake.schemas.remoting.registration import STEP_CHARACTERS, JsonCursor, decode_utf8_in_steps


def read(text: str, skipped: str = "skip") -> Iterator[tuple[str, Any]]:
    """Yield the entries of an object but one, which is skipped."""
    cursor = JsonCursor(text)
    for key in cursor.read_keys():
        if key == skipped:
            list(cursor.skip_value())
        else:
            yield key, cursor.read_value()
    cursor.check_end()


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"a": 1},
        {"a": -1.5e3, "b": None, "c": True, "d": "x"},
        {"a": {"b": [1, {"c": "]}"}], "d": {}}, "": []},
        {'a"b\\': 'a "quoted" {text} \\', "é\u2028": "\U0001f600"},
        {"skip": [{"a": '\\"]'}, "}"], "b": 1},
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_entries_are_read_one_by_one(document: dict[str, Any], indent: int | None) -> None:
    expected = {key: value for key, value in document.items() if key != "skip"}
    for is_ascii in (True, False):
        text = json.dumps(document, indent=indent, ensure_ascii=is_ascii)
        assert dict(read(f" {text}\n")) == expected
        for cut in range(len(text)):
            with pytest.raises(BodyError):
                dict(read(text[:cut]))


def test_objects_inside_are_read_in_turn() -> None:
    cursor = JsonCursor('{"a":{"b":1,"c":null},"d":null,"e":{}}')
    found = [(key, [(name, cursor.read_value()) for name in cursor.read_keys()]) for key in cursor.read_keys()]
    assert found == [("a", [("b", 1), ("c", None)]), ("d", []), ("e", [])]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "1", "{", '{"a"}', '{"a":}', '{"a":1,}', '{"a":1 "b":2}', '{1:2}', '{"a":1}}', '{"a":1}x', '{"a":]}',
     '{"a":{]}', '{"a":tru}', '{"\\x":1}', '{"skip":[[]}', '{"skip":"a}'],
)  # fmt: skip
def test_invalid_json_is_an_error(text: str) -> None:
    with pytest.raises(BodyError):
        dict(read(text))


def test_values_of_rocketmq_are_read() -> None:
    assert dict(read('{"a":{0:"x"}}')) == {"a": {0: "x"}}


def test_a_large_value_is_skipped_in_small_steps() -> None:
    pieces = STEP_CHARACTERS // 4
    for inside in ("[],", '"",', "1, ", "   "):
        text = '{"a":[' + inside * (8 * pieces) + "0]}"
        cursor = JsonCursor(text)
        assert next(cursor.read_keys()) == "a"
        assert len(list(cursor.skip_value())) >= len(text) // STEP_CHARACTERS - 1


@pytest.mark.parametrize(
    "text",
    [
        '{"a":"' + "x" * STEP_CHARACTERS + '"}',
        '{"a":[' + "1," * STEP_CHARACTERS + "1]}",
        '{"skip":["' + "x" * STEP_CHARACTERS + '"]}',
        '{"skip":["' + "\\u0001" * STEP_CHARACTERS + '"]}',
        '{"' + "x" * STEP_CHARACTERS + '":1}',
        '{"a":' + " " * (2 * STEP_CHARACTERS + 1) + "1}",
        '{"a":' + "1" * STEP_CHARACTERS + "}",
        '{"a":' + "[" * STEP_CHARACTERS,
        '{"skip":' + "[" * (3 * STEP_CHARACTERS),
    ],
)
def test_a_token_larger_than_a_step_is_an_error(text: str) -> None:
    with pytest.raises(BodyError):
        dict(read(text))


def test_a_string_at_the_end_of_a_step_is_not_split() -> None:
    for size in range(STEP_CHARACTERS - 8, STEP_CHARACTERS + 1):
        for text in ('"a{\\"["', '"\\\\"'):
            cursor = JsonCursor('{"a":[' + "1" * size + "," + text + "]}")
            assert next(cursor.read_keys()) == "a"
            list(cursor.skip_value())
            cursor._expect_token("}")
            cursor.check_end()


def test_text_is_decoded_in_pieces() -> None:
    text = "aé\u20ac\U0001f600" * 50_000
    body = text.encode()
    pieces = list(decode_utf8_in_steps(body))
    assert "".join(pieces) == text
    assert len(pieces) > 2
    assert "".join(decode_utf8_in_steps(memoryview(b"a\xff\xe2\x82"))) == "a\ufffd\ufffd"
