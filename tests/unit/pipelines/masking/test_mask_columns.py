"""Masks over columns give the same result as for each value alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlake.pipelines.masking.archive_masks import (
    add_entries,
    join_lists,
    mask_entries,
    mask_lists,
    mask_texts,
    set_entries,
)
from commitlake.pipelines.masking.masks import Mask, parse_mask

KEY = b"a key"
RULES = ["hash", "null", "last:0", "last:2", "last:9", "truncate:0", "truncate:3", "text:x", "text:"]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
MAPS = pa.map_(pa.string(), pa.string())


def mask_of(rule: str) -> Mask:
    """Return a mask of keys."""
    return parse_mask(f"keys={rule}")


@pytest.mark.parametrize("rule", RULES)
@given(texts=st.lists(st.none() | TEXTS, max_size=8))
def test_texts_are_masked_like_single_values(rule: str, texts: list[str | None]) -> None:
    mask = mask_of(rule)
    expected = [None if text is None else mask.mask_value(text, KEY) for text in texts]
    plain = pa.array(texts, pa.string())
    assert mask_texts(plain, mask, KEY).to_pylist() == expected
    assert mask_texts(plain.dictionary_encode(), mask, KEY).to_pylist() == expected


@pytest.mark.parametrize("rule", RULES)
@given(lists=st.lists(st.none() | st.lists(TEXTS, max_size=3), min_size=2, max_size=6))
def test_lists_are_masked_like_single_values(rule: str, lists: list[list[str] | None]) -> None:
    mask = mask_of(rule)
    expected = [[new for text in each or () if (new := mask.mask_value(text, KEY))] or None for each in lists]
    column = pa.array([["before"], *lists], pa.list_(pa.string()))
    assert mask_lists(column.slice(1), mask, KEY).to_pylist() == expected
    masked = mask_lists(column, mask, KEY)
    masked.validate(full=True)
    assert masked.to_pylist()[1:] == expected


@pytest.mark.parametrize("rule", RULES)
@given(maps=st.lists(st.none() | st.dictionaries(st.sampled_from("abc"), TEXTS), min_size=1, max_size=6))
def test_entries_are_masked_like_single_values(rule: str, maps: list[dict[str, str] | None]) -> None:
    mask = mask_of(rule)

    def expected(found: dict[str, str] | None) -> list[tuple[str, str]] | None:
        if found is None:
            return None
        values = [(name, mask.mask_value(text, KEY) if name == "b" else text) for name, text in found.items()]
        return [(name, text) for name, text in values if text is not None]

    rows: list[Any] = [[("b", "first")], *(None if each is None else list(each.items()) for each in maps)]
    masked = mask_entries(pa.array(rows, MAPS).slice(1), "b", mask, KEY)
    masked.validate(full=True)
    assert masked.to_pylist() == [expected(each) for each in maps]


def test_entries_are_replaced_by_one_text_for_each_row() -> None:
    maps = pa.array([[("K", "a b"), ("x", "1")], [("x", "2")], None, [("K", "c")], [("K", "d")]], MAPS)
    joined = join_lists(pa.array([["A", "B"], None, None, None, ["D"]], pa.list_(pa.string())), " ")
    assert set_entries(maps, "K", joined).to_pylist() == [
        [("K", "A B"), ("x", "1")],
        [("x", "2")],
        None,
        [],
        [("K", "D")],
    ]


def test_entries_are_added_to_rows_with_a_text() -> None:
    maps = pa.array([[("x", "1")], None, [("x", "2")]], MAPS)
    added = add_entries(maps, "m", pa.array(["body", "body", None], pa.string()))
    assert added.to_pylist() == [[("x", "1"), ("m", "body")], [("m", "body")], [("x", "2")]]
