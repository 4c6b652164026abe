"""Tests of the judge of documents, and of the compiled check, which must not accept what the judge refuses."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest

from commitlake.pipelines.topics.compiled_check import CompiledSchema
from commitlake.pipelines.topics.document_check import MisfitReason, judge_body
from commitlake.pipelines.topics.json_schema import JsonType, parse_json_schema

SCHEMA = {
    "type": "object",
    "required": ["id", "name"],
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["string", "null"]},
        "total": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "ok": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": ["string", "null"]}},
        "lines": {
            "type": "array",
            "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}},
        },
        "any": {},
        "größe": {"type": "string"},
    },
}


@pytest.fixture(scope="module")
def schema() -> JsonType:
    """The schema of the documents."""
    return parse_json_schema(json.dumps(SCHEMA), "test")


def body(more: str) -> bytes:
    """Return a document with the required fields and others."""
    return f'{{"id": 1, "name": "a", {more}}}'.encode()


FIT = [
    b'{"id": 1, "name": null}',
    b' \t\r\n{"name":"\\"\\\\\\/\\b\\f\\n\\r\\t","id":-0}\n',
    b'{"id": 9223372036854775807, "name": "\\u00e9\\ud83d\\ude00"}',
    b'{"id": -9223372036854775808, "name": "a"}',
    body('"total": 0'),
    body('"total": -1.5e300'),
    body('"total": 1e-400'),
    body('"total": null'),  # the field may be missing, so it may be null
    body('"at": "2026-02-28T23:59:59Z"'),
    body('"at": "2026-11-30T00:00:00.123456+18:00"'),
    body('"at": "2024-02-29T00:00:00.1-05:30"'),
    body('"day": "2026-12-31"'),
    body('"ok": true'),
    body('"ok": false'),
    body('"tags": []'),
    body('"tags": ["a", null]'),
    body('"lines": [{"n": 1}, {"n": 2}]'),
    body('"größe": "XL"'),
]
MISFIT = [
    (b"", MisfitReason.NOT_JSON, ""),
    (b"order 5", MisfitReason.NOT_JSON, ""),
    (b'{"id": 1, "name": "a"', MisfitReason.NOT_JSON, ""),
    (b'{"id": 1, "name": "a"} x', MisfitReason.NOT_JSON, ""),
    (b'{"id": 1, "name": "a"}{"id": 1, "name": "a"}', MisfitReason.NOT_JSON, ""),
    (b"{'id': 1, 'name': 'a'}", MisfitReason.NOT_JSON, ""),
    (b'{"id": 1, "name": "a",}', MisfitReason.NOT_JSON, ""),
    (b'{"id": 1 "name": "a"}', MisfitReason.NOT_JSON, ""),
    (b'{,"id": 1, "name": "a"}', MisfitReason.NOT_JSON, ""),
    (b'{"id": 01, "name": "a"}', MisfitReason.NOT_JSON, ""),
    (b'{"id": +1, "name": "a"}', MisfitReason.NOT_JSON, ""),
    (b'{"id": 1, "name": "a\nb"}', MisfitReason.NOT_JSON, ""),
    (b'\xef\xbb\xbf{"id": 1, "name": "a"}', MisfitReason.NOT_JSON, ""),
    (body('"total": NaN'), MisfitReason.NOT_JSON, ""),
    (body('"total": Infinity'), MisfitReason.NOT_JSON, ""),
    (body('"total": 1.'), MisfitReason.NOT_JSON, ""),
    ("{'id': 'größe'}".encode("latin-1"), MisfitReason.NOT_UTF8, ""),
    (b"[" * 100_000, MisfitReason.TOO_DEEP, ""),
    (body('"new": ' + "[" * 10_000 + "]" * 10_000), MisfitReason.TOO_DEEP, ""),
    (b" " * (9 << 20), MisfitReason.TOO_LARGE, ""),
    (b"[]", MisfitReason.WRONG_TYPE, ""),
    (b"null", MisfitReason.WRONG_TYPE, ""),
    (body('"id": 2'), MisfitReason.REPEATED_NAME, "id"),
    (body('"\\u0069d": 2'), MisfitReason.REPEATED_NAME, "id"),
    (body('"new": {"a": 1, "a": 2}'), MisfitReason.REPEATED_NAME, "new.a"),
    (body('"lines": [{"n": 1}, {"n": 1, "n": 2}]'), MisfitReason.REPEATED_NAME, "lines[1].n"),
    (b'{"name": "a"}', MisfitReason.MISSING, "id"),
    (b'{"id": null, "name": "a"}', MisfitReason.MISSING, "id"),
    (b'{"id": 1}', MisfitReason.MISSING, "name"),
    (body('"lines": [{"n": 1}, {}]'), MisfitReason.MISSING, "lines[1].n"),
    (body('"lines": [null]'), MisfitReason.WRONG_TYPE, "lines[0]"),
    (b'{"id": "1", "name": "a"}', MisfitReason.WRONG_TYPE, "id"),
    (b'{"id": 1.0, "name": "a"}', MisfitReason.WRONG_TYPE, "id"),
    (b'{"id": 1e3, "name": "a"}', MisfitReason.WRONG_TYPE, "id"),
    (b'{"id": 1, "name": 5}', MisfitReason.WRONG_TYPE, "name"),
    (b'{"id": 1, "name": {"a": 1}}', MisfitReason.WRONG_TYPE, "name"),
    (body('"total": "5"'), MisfitReason.WRONG_TYPE, "total"),
    (body('"ok": 1'), MisfitReason.WRONG_TYPE, "ok"),
    (body('"tags": "a"'), MisfitReason.WRONG_TYPE, "tags"),
    (body('"tags": {}'), MisfitReason.WRONG_TYPE, "tags"),
    (body('"lines": {"n": 1}'), MisfitReason.WRONG_TYPE, "lines"),
    (body('"at": 1795183200'), MisfitReason.WRONG_TYPE, "at"),
    (body('"at": "2026-11-20 14:00:00Z"'), MisfitReason.WRONG_TYPE, "at"),
    (body('"at": "2026-11-20T14:00:00"'), MisfitReason.WRONG_TYPE, "at"),
    (body('"at": "2026-11-20T14:00:00.1234567Z"'), MisfitReason.WRONG_TYPE, "at"),
    (body('"at": "2026-02-30T14:00:00Z"'), MisfitReason.OUT_OF_RANGE, "at"),
    (body('"at": "2026-11-20T24:00:00Z"'), MisfitReason.OUT_OF_RANGE, "at"),
    (body('"day": "20.11.2026"'), MisfitReason.WRONG_TYPE, "day"),
    (body('"day": "2026-11-31"'), MisfitReason.OUT_OF_RANGE, "day"),
    (b'{"id": 9223372036854775808, "name": "a"}', MisfitReason.OUT_OF_RANGE, "id"),
    (b'{"id": 1' + b"0" * 400 + b', "name": "a"}', MisfitReason.OUT_OF_RANGE, "id"),
    (body('"total": 1e400'), MisfitReason.OUT_OF_RANGE, "total"),
    (body('"total": 1' + "0" * 400), MisfitReason.OUT_OF_RANGE, "total"),
    (body('"total": 0.' + "1" * 2000), MisfitReason.OUT_OF_RANGE, "total"),
    (b'{"id": 1, "name": "\\ud800"}', MisfitReason.OUT_OF_RANGE, "name"),
]


@pytest.mark.parametrize("document", FIT)
def test_documents_that_fit_are_kept_as_they_are(document: bytes, schema: JsonType) -> None:
    judged = judge_body(document, schema)
    assert (judged.text, judged.unknown, judged.misfit) == (document.decode(), {}, None)


@pytest.mark.parametrize(("document", "reason", "field"), MISFIT)
def test_misfits_name_the_field_at_fault(document: bytes, reason: MisfitReason, field: str, schema: JsonType) -> None:
    judged = judge_body(document, schema)
    assert judged.text is None
    assert judged.misfit is not None
    assert (judged.misfit.reason, judged.misfit.field) == (reason, field)


def test_misfits_do_not_show_texts(schema: JsonType) -> None:
    for document in (body('"total": "secret"'), body('"at": "secret"'), b'{"id": "secret"}', b'{"id": 1, secret}'):
        assert "secret" not in str(judge_body(document, schema).misfit)


def test_unknown_fields_are_kept_beside_the_document(schema: JsonType) -> None:
    judged = judge_body(body('"a.b": 1.00, "lines": [{"n": 1, "m": null}], "n": {"x": [1e400, "\\u00e9"]}'), schema)
    assert judged.text == '{"id":1,"name":"a","lines":[{"n":1}]}'
    assert judged.unknown == {"lines[0].m": "null", "a.b": "1.00", "n": '{"x":[1e400,"é"]}'}


@pytest.mark.parametrize("value", ["1.00", '"text"', "null", '{"a":[1,{"b":null}]}', "1e400", "true"])
def test_values_of_any_type_are_kept_as_their_text(value: str, schema: JsonType) -> None:
    text = judge_body(body(f'"any": {value}'), schema).text
    assert text is not None
    assert json.loads(text).get("any") == (None if value == "null" else value)


def test_compiled_check_accepts_what_is_common(schema: JsonType) -> None:
    common = [
        *FIT[:2], *FIT[4:5], *FIT[7:9], *FIT[12:]
    ]  # fmt: skip
    fits = CompiledSchema.compile_schema(schema).find_fitting(pa.array(common, pa.binary()))
    assert fits.all()


def test_compiled_check_accepts_no_misfit(schema: JsonType) -> None:
    texts = [document for document, reason, _ in MISFIT if reason is not MisfitReason.NOT_UTF8]
    fits = CompiledSchema.compile_schema(schema).find_fitting(pa.array([None, *texts], pa.binary()))
    assert not fits.any()


def test_compiled_check_agrees_with_the_judge_on_damaged_documents(schema: JsonType) -> None:
    chance = random.Random(48)
    documents = [damage(chance, chance.choice(FIT)) for _ in range(20_000)]
    fits = CompiledSchema.compile_schema(schema).find_fitting(pa.array(documents, pa.binary()))
    accepted = [document for document, fit in zip(documents, fits.tolist(), strict=True) if fit]
    assert len(accepted) > 1_000
    for document in accepted:
        judged = judge_body(document, schema)
        assert (judged.text, judged.unknown) == (document.decode(), {}), document


def test_compiled_check_reads_slices(schema: JsonType) -> None:
    bodies = pa.array([b"x", FIT[0], b"y", FIT[1]], pa.binary())
    compiled = CompiledSchema.compile_schema(schema)
    assert compiled.find_fitting(bodies.slice(1, 2)).tolist() == [True, False]
    assert compiled.find_fitting(bodies.slice(3)).tolist() == [True]
    assert compiled.find_fitting(bodies.slice(4)).tolist() == []


def damage(chance: random.Random, document: bytes) -> bytes:
    """Return a document with a few bytes deleted, inserted or replaced; it is text in UTF-8."""
    text = list(document.decode())
    for _ in range(chance.choice([0, 1, 1, 2])):
        place = chance.randrange(len(text))
        letter = chance.choice('{}[]",:0159-+.eE \\ntfuaZT')
        match chance.randrange(3):
            case 0:
                del text[place]
            case 1:
                text.insert(place, letter)
            case _:
                text[place] = letter
    return "".join(text).encode()
