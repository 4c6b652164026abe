"""Shapes of bodies."""

from __future__ import annotations

import json

import pytest

from commitlake.pipelines.dead_letters.shape import MAX_BODY_BYTES, MAX_PATHS, body_shape


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ({"b": 1, "a": "x"}, "a:string, b:number"),
        ({"b": 2.5, "a": "y"}, "a:string, b:number"),
        ({"customer": {"name": "A", "id": None}}, "customer.id:null, customer.name:string"),
        ({"items": [{"sku": "x"}, {"sku": None}]}, "items[].sku:null|string"),
        ({"a": True, "b": [], "c": {}}, "a:boolean, b:array, c:object"),
        ({"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}}, "a.b.c.d.e:object"),  # no deeper
        ([[1, "x"]], "[][]:number|string"),
        (7, "number"),
        ("x", "string"),
        # Names that are ids are one name.
        ({"4711": {"n": 1}, "4712": {"n": 2}}, "*.n:number"),
        ({"0f8fad5b-d9cb-469f-a165-70867728950e": 1, "deadbeef00112233": 1}, "*:number"),
        ({"deadbeef": 1}, "deadbeef:number"),
        ({"x" * 60: 1}, "x" * 40 + "…:number"),
        ({"\ud800": 1}, "\\ud800:number"),
    ],
)  # fmt: skip
def test_a_shape_has_sorted_paths_with_types(value: object, shape: str) -> None:
    assert body_shape(json.dumps(value).encode()) == shape


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        (None, "(none)"),
        (b"", "(empty)"),
        (b"hello", "(text)"),
        (b'{"a": 1', "(text)"),
        (b"\xff\x00\x01", "(binary)"),
        (b"a\x00b", "(binary)"),
        (b"[" * 100_000, "(text)"),
        (b'{"n": ' + b"9" * 5000 + b"}", "n:number"),
        (b" " * (MAX_BODY_BYTES + 1), "(large)"),
    ],
)
def test_bodies_that_are_not_json_have_the_shape_of_their_kind(body: bytes | None, shape: str) -> None:
    assert body_shape(body) == shape


def test_a_shape_is_bounded() -> None:
    many = {f"name{chr(97 + number // 26)}{chr(97 + number % 26)}": 1 for number in range(100)}
    shape = body_shape(json.dumps(many).encode())
    assert shape.endswith(f", and {100 - MAX_PATHS} more")
    wide: object = 1
    for _ in range(5):
        wide = [wide] * 16
    assert body_shape(json.dumps(wide).encode()) in {"[][][][][]:number", "(large)"}
