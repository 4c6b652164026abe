"""Tests of fastjson's dialect: keys of any kind, nothing between tokens, and half surrogate pairs."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from commitlake.schemas.remoting.fastjson import (
    parse_fastjson,
    replace_lone_surrogates,
    serialize_compact,
    serialize_fastjson,
)
from commitlake.schemas.remoting.frames import HEAD, parse_command
from commitlake.schemas.remoting.json_fields import parse_body
from commitlake.schemas.remoting.registration import JsonCursor

QUEUE = (("brokerName", "lab-a"), ("queueId", 1), ("topic", "T"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"{}", {}),
        (b"[]", []),
        (b'{0:"a",1:"b"}', {0: "a", 1: "b"}),
        (b'{"a":{-1:[true,null,1.5]}}', {"a": {-1: [True, None, 1.5]}}),
        (b'{{"brokerName":"lab-a","queueId":1,"topic":"T"}:{"maxOffset":1}}', {QUEUE: {"maxOffset": 1}}),
        (
            b'{"t":{{"a":1}:{{"b":2}:3},{"a":2}:[{"c":4}]}}',
            {"t": {(("a", 1),): {(("b", 2),): 3}, (("a", 2),): [{"c": 4}]}},
        ),
        ('{"é":"北京"}'.encode(), {"é": "北京"}),
        (b"{{}:1}", {(): 1}),
        (b'{{"a":"}\\":{"}:1}', {(("a", '}":{'),): 1}),
    ],
)  # fmt: skip
def test_parsed_values_are_serialized_to_the_same_text(text: bytes, value: object) -> None:
    assert parse_fastjson(text) == parse_fastjson(memoryview(text)) == value
    assert serialize_compact(value) == text


def test_blanks_are_allowed_between_all_tokens() -> None:
    text = '{ "t" : { { "a" : 1 } : 2 , 3 : { } } }'
    assert parse_fastjson(text) == {"t": {(("a", 1),): 2, 3: {}}}


@pytest.mark.parametrize(
    "text",
    [
        '{{"a":{}}:1}', '{{"a":[1]}:1}', "{[1]:1}", "{{:1}", '{{"a":1}}', '{{"a":1}:}', "{1 2:3}", "{--1:2}", '{"a:1}',
        '{"a\\', "{{}:" * 1000, "[" * 100_000, "{" + "9" * 5000 + ":1}",
    ],
)  # fmt: skip
def test_an_invalid_document_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_fastjson(text)


def test_config_files_may_have_objects_as_keys() -> None:
    text = '{\n\t"t":{\n\t\t{"a":1}:2\n\t}\n}'
    assert parse_fastjson(text) == {"t": {(("a", 1),): 2}}
    assert serialize_fastjson(parse_fastjson(text)) == text


def test_half_a_surrogate_pair_becomes_a_question_mark() -> None:
    assert serialize_compact({"a": "\ud800"}) == b'{"a":"?"}'


class Named(NamedTuple):
    """A body with a name."""

    name: str


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (r'"\ud800"', '"?"'),
        (r'"\uDFFFx"', '"?x"'),
        (r'"\udc00\ud800"', '"??"'),  # a pair the wrong way round
        (r'"\ud800\ud83d\ude00"', r'"?\ud83d\ude00"'),
        (r'"\\ud800"', r'"\\ud800"'),  # a backslash, and five letters
        (r'"\\\ud800"', r'"\\?"'),
        (r'"\u001b\ud7ff"', r'"\u001b\ud7ff"'),
        ('"\\ud80', '"\\ud80'),  # cut
    ],
)
def test_half_pairs_become_question_marks_and_other_text_is_unchanged(document: str, expected: str) -> None:
    assert replace_lone_surrogates(document) == expected


def test_every_json_reader_returns_text_that_utf_8_can_encode() -> None:
    header = rb'{"code":1,"remark":"\ud800","extFields":{"\udfff":"\ud8ff"}}'
    parsed = parse_command(HEAD.struct.pack(len(header) + 4, len(header)) + header)
    assert parsed is not None
    assert (parsed[0].remark, parsed[0].ext_fields) == ("?", {"?": "?"})
    body = rb'{"name":"\ud800"}'
    assert parse_body(Named, body) == parse_body(Named, body, is_plain_json=True) == Named("?")
    assert parse_fastjson(rb'{{"a":"\ud800"}:1}') == {(("a", "?"),): 1}
    assert next(JsonCursor(r'{"\ud800":1}').read_keys()) == "?"
