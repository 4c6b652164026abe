"""Masks: fields of a message that must not leave the lake."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlake.pipelines.masking.masks import (
    JsonError,
    Mask,
    MaskableMessage,
    MaskError,
    apply_masks,
    check_hash_key,
    parse_mask,
    replace_values,
)
from commitlake.schemas.errors import UsageError

KEY = b"a secret of the tests"
ORDER = MaskableMessage(
    b'{"id": 4711, "customer": {"email": "ada@example.org", "phone": "555-0199"}}',
    ("order-4711", "ada"),
    "paid",
    {"phone": "555-0199", "region": "EU"},
)


def masked(*masks: str, message: MaskableMessage = ORDER) -> MaskableMessage:
    return apply_masks(message, [parse_mask(mask) for mask in masks], KEY)


@pytest.mark.parametrize(
    ("text", "mask"),
    [
        ("body=text:gone", Mask("body", (), "text", "gone")),
        ("body.customer.email=hash", Mask("body", ("customer", "email"), "hash")),
        ("property.my-phone=last:4", Mask("property", ("my-phone",), "last", "4")),
        ("property.a.b=null", Mask("property", ("a.b",), "null")),
        ("keys=null", Mask("keys", (), "null")),
        ("tags=text:", Mask("tags", (), "text", "")),
        ("body.note=text:a=b:c", Mask("body", ("note",), "text", "a=b:c")),
    ],
)
def test_a_mask_has_a_field_and_a_rule(text: str, mask: Mask) -> None:
    assert parse_mask(text) == mask


@pytest.mark.parametrize(
    "text",
    [
        "", "body", "body=", "=hash", "body=null", "body.=hash", "body..a=hash", "property=hash", "topic=hash",
        "keys=last", "keys=last:", "keys=last:-1", "keys=last:1001", "keys=last:" + "9" * 5000, "keys=hash:1",
        "tags=no",
    ],
)  # fmt: skip
def test_an_invalid_mask_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="mask"):
        parse_mask(text)


def test_only_values_at_the_paths_of_a_json_body_are_masked() -> None:
    found = masked("body.customer.email=text:removed", "body.customer.phone=last:4")
    assert found.body == b'{"id": 4711, "customer": {"email": "removed", "phone": "****0199"}}'
    assert replace(found, body=ORDER.body) == ORDER


def test_a_hash_needs_the_key_and_is_the_same_for_the_same_value() -> None:
    found = masked("property.phone=hash", "body.customer.phone=hash")
    digest = hmac.new(KEY, b"555-0199", hashlib.sha256).hexdigest()
    assert found.properties["phone"] == digest
    assert digest.encode() in found.body
    other = apply_masks(ORDER, [parse_mask("property.phone=hash")], b"another key")
    assert other.properties["phone"] != digest


def test_null_leaves_a_field_out() -> None:
    found = masked("property.phone=null", "keys=null", "tags=null", "body.customer=null")
    assert (found.properties, found.keys, found.tags) == ({"region": "EU"}, [], None)
    assert found.body == b'{"id": 4711, "customer": null}'


def test_a_missing_field_is_not_added() -> None:
    bare = MaskableMessage(b"{}", (), None, {})
    assert masked("body.a.b=hash", "property.phone=hash", "keys=hash", "tags=text:x", message=bare) == replace(
        bare, keys=[]
    )


def test_the_whole_body_may_be_replaced() -> None:
    assert masked("body=text:gone").body == b"gone"
    assert masked("body=last:2", message=replace(ORDER, body=b"secret")).body == b"****et"


@pytest.mark.parametrize("body", [b"\xff\xfe", b"not JSON", b"", b"[" * 100_000, b'{"a": NaN'])
def test_a_body_that_cannot_be_masked_is_an_error(body: bytes) -> None:
    with pytest.raises(MaskError, match="body"):
        masked("body.email=hash", message=replace(ORDER, body=body))


def test_a_mask_that_makes_two_keys_is_an_error() -> None:
    with pytest.raises(MaskError, match="blank"):
        masked("keys=text:two words")


def test_a_hash_without_a_key_is_refused() -> None:
    check_hash_key([parse_mask("keys=null")], b"")
    check_hash_key([parse_mask("keys=hash")], KEY)
    with pytest.raises(UsageError, match="COMMITLAKE_MASK_KEY"):
        check_hash_key([parse_mask("keys=hash")], b"")


def starred(body: str, *path: str) -> str:
    return replace_values(body.encode(), path, lambda value: f"<{value}>").decode()


@pytest.mark.parametrize(
    ("body", "path", "changed"),
    [
        ('{"a": "x", "b": "y"}', ("a",), '{"a": "<x>", "b": "y"}'),
        (
            '{"a": {"b": [{"c": 1}, {"c": 2.50}, {}]}}',
            ("a", "b", "c"),
            '{"a": {"b": [{"c": "<1>"}, {"c": "<2.50>"}, {}]}}',
        ),
        ('[["x", 1e400], null]', (), '[["<x>", "<1e400>"], null]'),
        ('{"a": [1, "x"]}', ("a",), '{"a": ["<1>", "<x>"]}'),
        ('{"a": {"b": true}}', ("a",), '{"a": "<{\\"b\\":true}>"}'),
        ('{"a": "x", "a": "y"}', ("a",), '{"a": "<x>", "a": "<y>"}'),
        ('"whole"', (), '"<whole>"'),
    ],
)
def test_the_value_at_the_path_is_replaced(body: str, path: tuple[str, ...], changed: str) -> None:
    assert starred(body, *path) == changed


def test_numbers_keep_their_digits_and_names_their_order() -> None:
    body = '{"z": 1.10, "long": %s, "e": 1E+2, "n": -0, "a": "x"}' % ("9" * 5000)
    assert starred(body, "a") == body.replace('"x"', '"<x>"')


@pytest.mark.parametrize("body", ['{"a" : 1}', "null", '{"b": null, "a": null}', "[ ]", '{"a": {"b": 1}}'])
def test_a_text_without_the_path_is_unchanged(body: str) -> None:
    assert replace_values(body.encode(), ("a", "c"), lambda _: "new") == body.encode()


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"\xff", b"{'a': 1}", b'{"a": 1} x', b"[1,]", b"[1 2]", b'{"a" 1}', b'{"a":1,}', b'{"a":}', b"{1:2}",
        b"tru", b'"a', b"[", b"[" * 100_000, b'{"a":' * 50_000,
    ],
)  # fmt: skip
def test_text_that_is_not_json_is_an_error(body: bytes) -> None:
    with pytest.raises(JsonError, match="expected JSON"):
        replace_values(body, ("a",), lambda _: None)


@given(
    st.recursive(
        st.none() | st.booleans() | st.text() | st.integers(),
        lambda inner: st.dictionaries(st.sampled_from("abc"), inner) | st.lists(inner),
    )
)
def test_everything_else_is_read_as_before(value: object) -> None:
    body = json.dumps({"mask me": "x", "rest": value}).encode()
    changed = replace_values(body, ("mask me",), lambda _: None)
    assert json.loads(changed) == {"mask me": None, "rest": value}


JSON = st.recursive(
    st.none() | st.booleans() | st.text() | st.integers() | st.floats(),
    lambda inner: st.dictionaries(st.sampled_from(["a", "b", 'q"', "ä"]), inner) | st.lists(inner, max_size=4),
)


def _expected(value: object, path: list[str]) -> object:
    """Return a value in which everything at a path is replaced by its type."""
    if isinstance(value, list):
        return [_expected(each, path) for each in value]
    if isinstance(value, dict) and path:
        return {name: _expected(each, path[1:]) if name == path[0] else each for name, each in value.items()}
    return value if path or value is None else "new"


@given(JSON, st.lists(st.sampled_from(["a", "b", 'q"', "ä"]), max_size=3), st.sampled_from([None, 1]), st.booleans())
def test_the_values_at_the_path_change_and_no_others(
    value: object, path: list[str], indent: int | None, is_ascii: bool
) -> None:
    body = json.dumps(value, indent=indent, ensure_ascii=is_ascii).encode()
    changed = json.loads(replace_values(body, path, lambda _: "new"))
    assert repr(changed) == repr(_expected(value, path))


@given(st.text(st.sampled_from('{}[]",:\\ \n01.eEnulltrfas-+aZ'), max_size=12))
def test_exactly_the_texts_that_python_accepts_are_accepted(text: str) -> None:
    try:
        json.loads(text)
    except ValueError:
        with pytest.raises(JsonError):
            replace_values(text.encode(), ("a",), lambda _: "new")
    else:
        replace_values(text.encode(), ("a",), lambda _: "new")
