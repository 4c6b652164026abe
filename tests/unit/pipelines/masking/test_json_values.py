"""Values in a JSON text, replaced by other ones."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlake.pipelines.masking.json_values import JsonError, replace_values


def starred(body: str, *path: str) -> str:
    return replace_values(body.encode(), path, lambda value: f"<{value}>").decode()


@pytest.mark.parametrize(
    ("body", "path", "changed"),
    [
        ('{"a": "x", "b": "y"}', ("a",), '{"a":"<x>","b":"y"}'),
        ('{"a": {"b": [{"c": 1}, {"c": 2.50}, {}]}}', ("a", "b", "c"), '{"a":{"b":[{"c":"<1>"},{"c":"<2.50>"},{}]}}'),
        ('[["x", 1e400], null]', (), '[["<x>","<1e400>"],null]'),
        ('{"a": [1, "x"]}', ("a",), '{"a":["<1>","<x>"]}'),
        ('{"a": {"b": true}}', ("a",), '{"a":"<{\\"b\\":true}>"}'),
        ('{"a": "x", "a": "y"}', ("a",), '{"a":"<x>","a":"<y>"}'),
        ('"whole"', (), '"<whole>"'),
    ],
)
def test_what_is_at_the_path_is_replaced(body: str, path: tuple[str, ...], changed: str) -> None:
    assert starred(body, *path) == changed


def test_numbers_keep_their_digits_and_names_their_order() -> None:
    body = '{"z": 1.10, "long": %s, "e": 1E+2, "n": -0, "a": "x"}' % ("9" * 5000)
    assert starred(body, "a") == body.replace('": ', '":').replace(", ", ",").replace('"x"', '"<x>"')


@pytest.mark.parametrize("body", ['{"a" : 1}', "null", '{"b": null, "a": null}', "[ ]", '{"a": {"b": 1}}'])
def test_a_text_without_the_path_stays_byte_for_byte(body: str) -> None:
    assert replace_values(body.encode(), ("a", "c"), lambda _: "new") == body.encode()


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"{'a': 1}", b'{"a": 1} x', b"[" * 100_000, b'{"a":' * 50_000])
def test_what_is_no_json_is_an_error(body: bytes) -> None:
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
