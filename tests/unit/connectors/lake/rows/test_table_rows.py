"""Rows of data files as tasks read them, whichever program wrote the files."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commitlake.connectors.lake.delta_log.versions import AddedFile
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.lake.rows.table_rows import TableRows
from commitlake.schemas.errors import ExitCode

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("keys", pa.list_(pa.string())),
        pa.field("stored", pa.timestamp("us", "UTC")),
        pa.field("format", pa.string()),
        pa.field("store_date", pa.date32()),
    ]
)


def write(folder: Path, **writer: object) -> AddedFile:
    """Write a file as another program would: other types of Arrow's, and without a column."""
    stored = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)
    rows = pa.table(
        {
            "topic": pa.array(["a", "b"], pa.large_string()),
            "keys": pa.array([["k"], None], pa.large_list(pa.large_string())),
            "stored": pa.array([stored, None], pa.timestamp("ms", "UTC")),
            "other": [1, 2],
        }
    )
    pq.write_table(rows, folder / "part.parquet", write_page_checksum=True, **writer)
    return AddedFile("", "part.parquet", "2026-11-20", 0, 2)


def test_columns_have_the_tables_types_even_if_the_file_differs(tmp_path: Path) -> None:
    file = write(tmp_path)
    (rows,) = TableRows(str(tmp_path), None, SCHEMA).read_file(file)
    assert rows.schema.types == SCHEMA.types
    assert rows.column("keys").to_pylist() == [["k"], None]
    assert rows.column("format").null_count == 2
    assert rows.column("store_date").to_pylist() == [datetime.date(2026, 11, 20)] * 2


def test_texts_can_be_dictionaries(tmp_path: Path) -> None:
    file = write(tmp_path, store_schema=False)
    (rows,) = TableRows(str(tmp_path), None, SCHEMA, ["topic", "format"]).read_file(file)
    assert pa.types.is_dictionary(rows.schema.field("topic").type)
    assert rows.column("format").null_count == 2  # of a column that the file does not have


def test_nested_texts_of_several_row_groups_can_be_dictionaries(tmp_path: Path) -> None:
    data_type = pa.map_(pa.string(), pa.string())
    properties = pa.array([[("k", str(row))] for row in range(4)], data_type)
    pq.write_table(pa.table({"properties": properties}), tmp_path / "part.parquet", row_group_size=2)
    wanted = TableRows(str(tmp_path), None, pa.schema([("properties", data_type)]), ["properties.key_value.key"])
    tables = list(wanted.read_file(AddedFile("", "part.parquet", None, 0, 4)))
    assert [row for table in tables for row in table.column("properties").to_pylist()] == properties.to_pylist()


@pytest.mark.parametrize("how", ["gone", "cut", "flipped"])
def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, how: str) -> None:
    file = write(tmp_path, compression="none")
    path = tmp_path / file.name
    data = bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
    else:
        data[data.index(b"a")] ^= 1
        path.write_bytes(data if how == "flipped" else data[:-9])
    with pytest.raises(
        LakeError, match=r"the data file part\.parquet is damaged and cannot be read as Parquet"
    ) as error:
        list(TableRows(str(tmp_path), None, SCHEMA).read_file(file))
    assert error.value.exit_code == ExitCode.DAMAGE


def test_columns_of_one_value_need_not_be_read(tmp_path: Path) -> None:
    columns = {"number": [1, 2, 3, 4], "zero": [0] * 4, "text": ["a", "a", "b", "b"], "truth": [True, True, None, None]}
    path = tmp_path / "part.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=2, write_page_checksum=True)
    schema = pa.schema([("number", pa.int64()), ("zero", pa.int64()), ("text", pa.string()), ("truth", pa.bool_())])
    offset = pq.read_metadata(path).row_group(0).column(1).data_page_offset
    with path.open("r+b") as damaged:  # the page of `zero`
        damaged.seek(offset)
        damaged.write(b"\xff" * 8)
    file = AddedFile("", path.name, None, 0, 4)
    found = list(TableRows(str(tmp_path), None, schema, ["text"], skips_constants=True).read_file(file))
    assert [rows.to_pydict() for rows in found] == [
        {"number": [1, 2], "zero": [0, 0], "text": ["a", "a"], "truth": [True, True]},
        {"number": [3, 4], "zero": [0, 0], "text": ["b", "b"], "truth": [None, None]},
    ]
    with pytest.raises(LakeError):
        list(TableRows(str(tmp_path), None, schema, ["text"]).read_file(file))
