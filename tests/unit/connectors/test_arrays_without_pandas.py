"""Arrow arrays built from buffers equal those that Arrow builds from values."""

from __future__ import annotations

import datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from commitlake.connectors.arrays_without_pandas import (
    join_chunks,
    repeat_string,
    repeat_value,
    rows_to_dicts,
    string_bytes_and_offsets,
    to_boolean_array,
    to_numpy_numbers,
    to_uint8_array,
    to_utc_times,
)
from commitlake.schemas.times import EPOCH


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_arrays_equal_those_made_of_the_values(count: int) -> None:
    chosen = np.arange(count) % 3 == 0
    assert to_boolean_array(chosen).equals(pa.array(chosen.tolist(), pa.bool_()))
    for value, data_type in ((5, pa.int64()), (-1, pa.int32()), (True, pa.bool_()), (False, pa.bool_())):
        found = repeat_value(value, data_type, count)
        found.validate(full=True)
        assert found.equals(pa.array([value] * count, data_type))
    for text in ("", "orders", "订单"):
        texts = repeat_string(text, count)
        texts.validate(full=True)
        assert texts.dictionary_decode().equals(pa.array([text] * count, pa.string()))


@pytest.mark.parametrize(
    ("data_type", "values"),
    [
        (pa.int64(), [1, None, -(1 << 62), 4, 5]),
        (pa.int32(), [1, 2, 3, -4, 5]),
        (pa.timestamp("us", "UTC"), [1, None, 3, 4, 5]),
        (pa.bool_(), [True, None, False, True, True]),
    ],
)
def test_numbers_equal_those_of_the_array(data_type: pa.DataType, values: list[int | None]) -> None:
    array = pa.array(values * 5, data_type)
    expected = [9 if value is None else value for value in values * 5]
    assert to_numpy_numbers(array, null_value=9).tolist() == expected
    assert to_numpy_numbers(array.slice(7, 11), null_value=9).tolist() == expected[7:18]
    assert to_numpy_numbers(pa.chunked_array([array.slice(0, 3), array.slice(3)]), null_value=9).tolist() == expected
    assert to_numpy_numbers(array.slice(0, 0)).tolist() == []
    assert to_numpy_numbers(pa.chunked_array([], data_type)).tolist() == []


def test_an_array_of_no_chunks_is_empty() -> None:
    for data_type in (pa.int64(), pa.string(), pa.dictionary(pa.int32(), pa.string()), pa.timestamp("us", "UTC")):
        assert join_chunks(pa.chunked_array([], data_type)).equals(pa.chunked_array([], data_type).combine_chunks())
        assert join_chunks(pa.chunked_array([pa.nulls(2, data_type)] * 2)).equals(pa.nulls(4, data_type))


def test_times_outside_the_calendar_are_none() -> None:
    known = datetime.datetime(2026, 11, 24, 15, 0, 0, 1, datetime.UTC)
    column = pa.array([known, None], pa.timestamp("us", "UTC"))
    beyond = pa.array([2**63 - 1, -(2**63), 0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    assert to_utc_times(column) == [known, None]
    assert to_utc_times(pa.chunked_array([column, beyond])) == [known, None, None, None, EPOCH]


def test_rows_have_none_for_values_that_python_cannot_represent() -> None:
    times = pa.array([0, 2**63 - 1, -(2**63), None]).cast(pa.timestamp("us", "UTC"))
    texts = pa.Array.from_buffers(
        pa.string(), 4, [None, pa.py_buffer(np.array([0, 1, 2, 3, 4], np.int32)), pa.py_buffer(b"a\xffbc")]
    )
    dates = pa.array([0, 2**31 - 1, 1, 2], pa.int32()).cast(pa.date32())
    rows = rows_to_dicts(pa.table({"at": times, "text": texts, "date": dates, "number": [1, 2, 3, 4]}))
    assert [row["at"] for row in rows] == [EPOCH, None, None, None]
    assert [row["text"] for row in rows] == ["a", None, "b", "c"]
    assert [row["date"] is None for row in rows] == [False, True, False, False]
    assert [row["number"] for row in rows] == [1, 2, 3, 4]


@pytest.mark.parametrize("data", [None, b"", pa.py_buffer(b""), b"ab", bytearray(b"ab"), pa.py_buffer(b"ab")])
def test_bytes_cannot_be_written_whoever_holds_them(data: pa.Buffer | bytes | bytearray | None) -> None:
    found = to_uint8_array(data)
    assert found.tobytes() == (bytes(data) if data else b"")
    assert found.dtype == np.uint8
    assert not found.flags.writeable


@pytest.mark.parametrize("values", [[], [""], ["", "a", "订单", "b"]])
def test_spans_of_texts_are_those_of_a_slice(values: list[str]) -> None:
    for texts in (pa.array(values, pa.string()), pa.array(["skipped", *values], pa.string())[1:]):
        data, offsets = string_bytes_and_offsets(texts)
        found = [data[begin:end].tobytes().decode() for begin, end in pairwise(offsets.tolist())]
        assert found == values
        assert not data.flags.writeable
        assert not offsets.flags.writeable
