"""UTF-8, copies and distinct values, compared with Python's."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlake.connectors.reading.decoding.arrow import Dictionary, span_array
from commitlake.connectors.reading.decoding.columns import DistinctValues, utf8_text
from commitlake.connectors.reading.kernel.columns import intern_spans
from commitlake.connectors.reading.kernel.memory_access import PADDING
from commitlake.connectors.reading.kernel.utf8 import is_utf8
from commitlake.schemas.layouts.rocketmq import properties as layout
from tests.support.hypothesis_profiles import load

load()

SEED = np.uint64(0x1234_5678_9ABC_DEF0)
LENGTHS = st.integers(0, 100)


def window_of(values: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values one after the other, with their positions and lengths."""
    lengths = np.array([len(value) for value in values], np.int64)
    window = np.frombuffer(b"".join(values) + bytes(PADDING), np.uint8)
    return window, np.cumsum(lengths) - lengths, lengths


TEXTS = [
    b"", b"ascii", "ü".encode(), "订单😀".encode(), b"\x80", b"\xc0\x80", b"\xc1\xbf", b"\xc2", b"\xe0\x9f\xbf",
    b"\xe0\xa0\x80", b"\xed\x9f\xbf", b"\xed\xa0\x80", b"\xef\xbf\xbf", b"\xf0\x8f\xbf\xbf", b"\xf0\x90\x80\x80",
    b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff", b"12345678\xe2\x82",
    b"1234567\xe2\x82\xac8",
]  # fmt: skip


@pytest.mark.parametrize("value", TEXTS)
def test_utf8_is_checked_as_by_python(value: bytes) -> None:
    window, _, _ = window_of([b"ok", value])
    assert is_utf8(window, 2, len(value)) == layout.is_utf8(value)


@given(st.binary(max_size=40))
def test_any_bytes_are_checked_as_by_python(value: bytes) -> None:
    assert is_utf8(window_of([value])[0], 0, len(value)) == layout.is_utf8(value)


@given(st.lists(st.sampled_from([b"", b"a", b"b", b"ab", b"a\0", b"12345678", b"12345678x", b"x" * 40]), max_size=60))
def test_distinct_values_are_numbered_in_order_of_appearance(values: list[bytes]) -> None:
    distinct = DistinctValues(SEED, utf8_text)
    codes = np.empty(len(values), np.int32)
    intern_spans(*window_of(values), SEED, distinct.interner, codes)
    assert distinct.values == list(dict.fromkeys(values))
    assert [distinct.values[code] for code in codes] == values


def test_numbers_are_kept_over_batches_and_known_values_are_first() -> None:
    distinct = DistinctValues(SEED, utf8_text, ("known",))
    codes = np.empty(2, np.int32)
    intern_spans(*window_of([b"new", b"known"]), SEED, distinct.interner, codes)
    assert codes.tolist() == [1, 0]
    assert distinct.texts == ["known", "new"]
    intern_spans(*window_of([b"newer", b"new"]), SEED, distinct.interner, codes)
    assert codes.tolist() == [2, 1]
    assert distinct.texts == ["known", "new", "newer"]


def test_values_are_dropped_when_too_many_but_stay_in_the_last_batch() -> None:
    distinct = DistinctValues(SEED, utf8_text, ("known",))
    values = [b"%d" % number for number in range(70_000)]
    codes = np.empty(len(values), np.int32)
    intern_spans(*window_of(values), SEED, distinct.interner, codes)
    fresh = distinct.renew_if_crowded()
    assert fresh is not distinct
    assert fresh.values == [b"known"]
    assert distinct.values[1:] == values
    assert fresh.renew_if_crowded() is fresh


def test_values_that_are_not_utf8_are_named() -> None:
    distinct = DistinctValues(SEED, utf8_text)
    values = [b"good", b"\xff", "\ufffd".encode()]
    intern_spans(*window_of(values), SEED, distinct.interner, np.empty(3, np.int32))
    assert distinct.invalid_value_numbers == [1]
    assert distinct.texts == ["good", "\ufffd", "\ufffd"]


@given(st.lists(st.none() | st.binary(max_size=100), max_size=40))
def test_copied_values_equal_those_of_the_window(values: list[bytes | None]) -> None:
    window, positions, _ = window_of([value or b"" for value in values])
    lengths = np.array([-1 if value is None else len(value) for value in values], np.int64)
    copied = span_array(window, positions, lengths, pa.binary())
    copied.validate(full=True)
    assert copied.to_pylist() == values


@given(st.lists(st.text(max_size=40), min_size=1, max_size=5), st.lists(st.integers(-1, 4), max_size=40))
def test_rows_by_number_are_strings_either_way(texts: list[str], numbers: list[int]) -> None:
    codes = np.array([number % len(texts) if number >= 0 else -1 for number in numbers], np.int32)
    expected = [texts[code] if code >= 0 else None for code in codes]
    for column in (Dictionary(texts).to_dictionary_array(codes), Dictionary(texts).to_string_array(codes)):
        column.validate(full=True)
        assert column.to_pylist() == expected
