"""Statistics of data files in a table's log: no look-up may skip a file with a wanted row."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.schema import Schema
from deltalake.transaction import AddAction

from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.rows.statistics import file_statistics


@pytest.mark.parametrize(
    "text",
    ["Zürich", "\u5b57", "\U0001f600", "\U00020bb7", "\U000e0041", "\U0010ffff", '"\\\x00\x1b\n', "\U00020bb7" * 40],
    ids=ascii,
)
def test_a_text_with_any_characters_is_found(tmp_path: Path, text: str) -> None:
    rows = pa.table({"tags": [text]})
    path = tmp_path / "table" / "part.parquet"
    path.parent.mkdir()
    pq.write_table(rows, path)
    table = DeltaTable.create(path.parent, Schema.from_arrow(rows.schema))
    file = AddAction(path.name, path.stat().st_size, {}, 0, True, file_statistics(pq.read_metadata(path)))
    table.create_write_transaction([file], mode="append", schema=table.schema())
    quoted = text.replace("'", "''")
    answer = run_sql(DeltaTable(path.parent), "found", f"SELECT tags FROM found WHERE tags = '{quoted}'")
    assert answer.read_all()["tags"].to_pylist() == [text]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([0, 2**63 - 1]).cast(pa.timestamp("us", "UTC")),
        pa.array([-(2**63), 0]).cast(pa.timestamp("us", "UTC")),
        pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32()),
        pa.array([1.0, float("inf")]),
        pa.array([float("-inf"), float("nan")]),
        pa.array([b"\xff", b"a"]).cast(pa.string(), safe=False),
    ],
)
def test_values_that_json_or_python_cannot_represent_have_no_bounds(tmp_path: Path, values: pa.Array) -> None:
    path = tmp_path / "part.parquet"
    pq.write_table(pa.table({"wrong": values, "number": [1, 2]}), path)
    statistics = json.loads(file_statistics(pq.read_metadata(path)), parse_constant=pytest.fail)
    assert (statistics["minValues"], statistics["maxValues"]) == ({"number": 1}, {"number": 2})
