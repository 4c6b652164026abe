"""UTF-8 and distinct values, as Python sees them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.commitlog.decoder import Interned
from connectors.commitlog.kernel import text
from schemas.layouts.properties import is_utf8, parse_properties
from tests.hypothesis_profiles import load

load()


def window_of(values: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values one behind the other, with their positions and lengths."""
    lengths = np.array([len(value) for value in values], np.int64)
    window = np.frombuffer(b"".join(values) + b"\0", np.uint8)
    return window, np.cumsum(lengths) - lengths, lengths


TEXTS = [
    b"", b"ascii", "ü".encode(), "订单😀".encode(), b"\x80", b"\xc0\x80", b"\xc1\xbf", b"\xc2", b"\xe0\x9f\xbf",
    b"\xe0\xa0\x80", b"\xed\x9f\xbf", b"\xed\xa0\x80", b"\xef\xbf\xbf", b"\xf0\x8f\xbf\xbf", b"\xf0\x90\x80\x80",
    b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff", b"12345678\xe2\x82",
    b"1234567\xe2\x82\xac8",
]  # fmt: skip


@pytest.mark.parametrize("value", TEXTS)
def test_utf8_is_what_python_takes_for_it(value: bytes) -> None:
    assert bad_rows([b"ok", value]) == ([] if is_utf8(value) else [1])


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_any_bytes_are_judged_as_python_judges_them(values: list[bytes]) -> None:
    assert bad_rows(values) == [row for row, value in enumerate(values) if not is_utf8(value)]


def bad_rows(values: list[bytes]) -> list[int]:
    """The rows that the kernel finds not to be UTF-8."""
    window, positions, lengths = window_of(values)
    rows = np.empty(len(values), np.int64)
    found: list[int] = rows[: text.find_not_utf8(window, positions, lengths, rows)].tolist()
    return found


@given(st.lists(st.sampled_from([b"", b"a", b"b", b"ab", b"12345678", b"12345678x", b"x" * 40]), max_size=60))
def test_distinct_values_are_numbered_in_order_of_appearance(values: list[bytes]) -> None:
    interned = Interned(*window_of(values))
    assert interned.values == list(dict.fromkeys(values))
    assert [interned.values[code] for code in interned.codes] == values


@given(
    st.lists(
        st.sampled_from([b"\x01", b"\x02", b"k", b"KEYS", b"TAGS", b"UNIQ_KEY", b"v w", b" ", b"\x00"]), max_size=120
    )
)
def test_properties_are_split_as_the_plain_parser_splits_them(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    pairs = parse_properties(data)
    window, positions, lengths = window_of([data])
    wanted = np.empty((text.WANTED_COUNT, 1), np.int64)
    wanted_lengths = np.empty((text.WANTED_COUNT, 1), np.int64)
    entries = np.empty((4, len(data) + 1), np.int64)
    offsets = np.empty(2, np.int32)
    scratch = np.full(text.SCRATCH_SIZE, -1, np.int32)
    count = text.split_properties(window, positions, lengths, True, wanted, wanted_lengths, entries, offsets, scratch)
    found = {
        data[key : key + key_length].decode(): data[value : value + value_length].decode()
        for key, key_length, value, value_length in entries[:, :count].T.tolist()
    }
    assert found == dict(pairs)
    assert count == len(found) == offsets[1]
    assert not (scratch >= 0).any()
    tags = wanted[text.TAGS, 0], wanted_lengths[text.TAGS, 0]
    assert (None if tags[1] < 0 else data[tags[0] : sum(tags)].decode()) == dict(pairs).get("TAGS")
