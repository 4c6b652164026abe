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
