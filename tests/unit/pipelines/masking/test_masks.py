"""Masks: fields of a message that must not leave the lake."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace

import pytest

from commitlake.pipelines.masking.errors import MaskError, MaskRuleError
from commitlake.pipelines.masking.masks import Mask, Message, apply_masks, check_key, parse_mask

KEY = b"a secret of the tests"
ORDER = Message(
    b'{"id": 4711, "customer": {"email": "ada@example.org", "phone": "555-0199"}}',
    ("order-4711", "ada"),
    "paid",
    {"phone": "555-0199", "region": "EU"},
)


def masked(*masks: str, message: Message = ORDER) -> Message:
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
    with pytest.raises(MaskRuleError, match="mask"):
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
    bare = Message(b"{}", (), None, {})
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
    check_key([parse_mask("keys=null")], b"")
    check_key([parse_mask("keys=hash")], KEY)
    with pytest.raises(MaskRuleError, match="COMMITLAKE_MASK_KEY"):
        check_key([parse_mask("keys=hash")], b"")
