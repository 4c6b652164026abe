"""Sums of rows, for columns of every type that tables have."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commitlake.connectors.lake.delta_log.row_sum_changes import (
    read_footer_sum,
    wrap_int64,
)
from commitlake.connectors.lake.rows.row_sums import RowSumWriter, rows_checksum, sum_file_rows

MEMBER = pa.struct([("id", pa.string()), ("version", pa.int32())])
VALUES: dict[str, tuple[pa.DataType, list[object]]] = {
    "text": (pa.string(), ["x", "", None, "yy"]),
    "number": (pa.int64(), [0, -1, None, 1 << 62]),
    "short": (pa.int32(), [3, -3, None, 4]),
    "flag": (pa.bool_(), [True, False, None, True]),
    "real": (pa.float64(), [0.5, float("nan"), None, -1e300]),
    "time": (pa.timestamp("us", "UTC"), [0, 1, None, 1 << 62]),
    "date": (pa.date32(), [0, 1, None, 20000]),
    "bytes": (pa.binary(), [b"\0", b"", None, b"\xff\xfe"]),
    "texts": (pa.list_(pa.string()), [["a", "b"], [], None, ["b", "a", None]]),
    "map": (pa.map_(pa.string(), pa.string()), [[("k", "v")], [], None, [("k", None), ("l", "")]]),
    "struct": (MEMBER, [{"id": "c", "version": 1}, {"id": None, "version": 1}, None, {"id": "", "version": None}]),
    "structs": (pa.list_(MEMBER), [[{"id": "c", "version": 1}, {"id": "d", "version": 2}], [], None, [None]]),
}
ROWS = pa.table({name: pa.array(values, kind) for name, (kind, values) in VALUES.items()})


def test_the_order_of_rows_and_their_division_do_not_matter() -> None:
    assert rows_checksum(ROWS.take([3, 1, 0, 2])) == rows_checksum(ROWS)
    assert wrap_int64(sum(rows_checksum(ROWS.slice(row, 1)) for row in range(4))) == rows_checksum(ROWS)
    assert rows_checksum(ROWS.set_column(0, "text", ROWS.column("text").dictionary_encode())) == rows_checksum(ROWS)


@pytest.mark.parametrize("name", VALUES)
def test_each_value_matters(name: str) -> None:
    position = ROWS.column_names.index(name)
    sums = {rows_checksum(ROWS)}
    for one in range(4):
        for other in range(4):
            values = ROWS.column(name).take([other if row == one else row for row in range(4)])
            sums.add(rows_checksum(ROWS.set_column(position, name, values)))
    expected = set()
    for one in range(4):
        for other in range(4):
            kept = [str(VALUES[name][1][other if row == one else row]) for row in range(4)]
            expected.add((one, kept[one]) if kept != [*map(str, VALUES[name][1])] else None)
    assert len(sums) == len(expected)


def test_values_do_not_count_in_another_column_or_twice() -> None:
    rows = pa.table({"a": ["x", "y"], "b": ["y", "x"]})
    assert rows_checksum(rows) != rows_checksum(rows.rename_columns(["b", "a"]).slice(1))
    assert rows_checksum(rows) != rows_checksum(pa.table({"a": ["y", "x"], "b": ["y", "x"]}))
    assert rows_checksum(pa.concat_tables([rows, rows])) == wrap_int64(2 * rows_checksum(rows)) != rows_checksum(rows)
    assert rows_checksum(pa.table({"a": pa.nulls(2, pa.string())})) != 0


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("text", pa.large_string()),
        ("text", pa.string_view()),
        ("bytes", pa.large_binary()),
        ("texts", pa.large_list(pa.string_view())),
        ("short", pa.int64()),
        ("time", pa.timestamp("us")),
    ],
)
def test_other_forms_of_the_same_values_have_the_same_sum(name: str, kind: pa.DataType) -> None:
    changed = ROWS.column(name).cast(kind)
    assert rows_checksum(ROWS.set_column(ROWS.column_names.index(name), name, changed)) == rows_checksum(ROWS)


def test_a_column_that_a_later_version_adds_changes_no_sum() -> None:
    assert rows_checksum(ROWS.append_column("new", pa.nulls(4, pa.string()))) == rows_checksum(ROWS)


def test_a_file_has_the_sum_of_its_rows_in_its_footer() -> None:
    output = io.BytesIO()
    stale = ROWS.replace_schema_metadata({"commitlake.row_sum": "5"})
    with RowSumWriter(output, stale.schema) as writer:
        writer.write_table(stale.slice(0, 3))
        writer.write_table(stale.slice(3))
    parquet = pq.ParquetFile(io.BytesIO(output.getvalue()))
    assert read_footer_sum(parquet.metadata) == rows_checksum(ROWS)
    assert sum_file_rows(parquet) == (rows_checksum(ROWS), 4)
