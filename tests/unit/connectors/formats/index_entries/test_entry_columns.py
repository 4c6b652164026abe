"""Columns and batches of entries."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from commitlake.connectors.formats.index_entries.entry_columns import (
    join_short_batches,
    make_entry_batch,
    to_timestamp_column,
)

_SCHEMA = pa.schema([("topic", pa.string()), ("size", pa.int32()), ("flag", pa.int64())])


def test_batches_have_the_columns_of_their_schema() -> None:
    batch = make_entry_batch(_SCHEMA, 2, {"topic": "orders", "size": np.array([1, 2], ">i8"), "other": 5})
    assert batch.to_pydict() == {"topic": ["orders"] * 2, "size": [1, 2], "flag": [None, None]}


def test_times_that_no_column_holds_are_null() -> None:
    column = to_timestamp_column(np.array([0, -1, 253_402_300_799_999, 1 << 62], ">i8"))
    assert [value is None for value in column.to_pylist()] == [False, True, False, True]
    assert column.cast(pa.int64()).to_pylist()[2] == 253_402_300_799_999_000


def test_short_batches_are_joined() -> None:
    short = [make_entry_batch(_SCHEMA, rows, {"size": np.arange(rows)}) for rows in (10_000, 0, 10_000, 5)]
    assert [batch.num_rows for batch in join_short_batches(short)] == [20_000, 5]
    assert list(join_short_batches([])) == []
