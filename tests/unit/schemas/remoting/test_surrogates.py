"""Tests of escapes of half surrogate pairs, which become question marks in JSON from outside."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from commitlake.schemas.remoting.fastjson import parse_fastjson
from commitlake.schemas.remoting.frames import HEAD, parse_command
from commitlake.schemas.remoting.json_cursor import JsonCursor
from commitlake.schemas.remoting.json_fields import parse_body
from commitlake.schemas.remoting.surrogates import without_half_pairs


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
    assert without_half_pairs(document) == expected


def test_every_json_reader_returns_text_that_utf_8_can_encode() -> None:
    header = rb'{"code":1,"remark":"\ud800","extFields":{"\udfff":"\ud8ff"}}'
    parsed = parse_command(HEAD.struct.pack(len(header) + 4, len(header)) + header)
    assert parsed is not None
    assert (parsed[0].remark, parsed[0].ext_fields) == ("?", {"?": "?"})
    body = rb'{"name":"\ud800"}'
    assert parse_body(Named, body) == parse_body(Named, body, is_plain=True) == Named("?")
    assert parse_fastjson(rb'{{"a":"\ud800"}:1}') == {(("a", "?"),): 1}
    assert next(JsonCursor(r'{"\ud800":1}').keys()) == "?"
