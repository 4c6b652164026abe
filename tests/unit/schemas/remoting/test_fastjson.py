"""fastjson's dialect in bodies: keys of any kind, and nothing between tokens."""

from __future__ import annotations

import pytest

from commitlake.schemas.remoting.fastjson import parse_fastjson, serialize_compact, serialize_fastjson

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
