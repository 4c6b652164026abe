"""Files of dead letters: exact, safe in a spreadsheet, complete or absent."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.lake.reader import QueryError
from commitlake.connectors.printable import FORMULA_STARTS, escape_unprintable
from commitlake.pipelines.dead_letters import dead_letter_rows, export
from commitlake.pipelines.dead_letters.dead_letter_rows import dead_letter_condition
from commitlake.pipelines.dead_letters.export import ExportFormat, export_letters
from commitlake.schemas.errors import UsageError
from tests.support.dead_letters import BODIES, FORMULA, hostile_letter
from tests.support.lakes import GrowingLake

Export = Callable[..., Path]


@pytest.fixture
def write(dead_letters: GrowingLake, tmp_path: Path) -> Export:
    """A function that writes a file in a form."""

    def write(form: str, *, with_bodies: bool = True, where: str = "true") -> Path:
        lake = dead_letters.lake
        table, path = lake.table("messages"), tmp_path / f"letters.{form}"
        condition = f"{dead_letter_condition(table)} AND {where}"
        packs = open_pack_store(lake.packs)
        count = export_letters(table, condition, packs, path, ExportFormat(form), with_bodies=with_bodies)
        assert count == len(BODIES)
        return path

    return write


def rows_of_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_no_field_of_csv_is_a_formula(write: Export) -> None:
    path = write("csv")
    rows = rows_of_csv(path)
    fields = [field for row in rows for field in row.values()]
    assert not [field for field in fields if field[:1] in tuple("=+-@\t\r\n")]
    assert {row["tag"] for row in rows} == {f"'{FORMULA}"}
    assert [row["body"] for row in rows[:4]] == ['{"id": 1}', "'+text", '{"id": 2}', "'-text"]
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("first", sorted(FORMULA_STARTS))
def test_a_csv_field_like_a_formula_begins_with_a_quote(first: str) -> None:
    assert export._escape_csv_field(f"{first}x") == escape_unprintable(f"'{first}x")
    assert export._escape_csv_field(f"{first}x", is_raw=True) == f"{first}x"
    assert str(export._escape_csv_field(f"{first}x")).startswith("'")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x;=1+1;y", "x;'=1+1;y"),
        ("x\t@a\t=1", "x\t'@a\t'=1"),
        ("x\n=1", "x\n'=1"),
        ("=1;-2;'3", "'=1;'-2;''3"),
    ],
)
def test_a_part_of_a_field_like_a_formula_begins_with_a_quote_too(text: str, expected: str) -> None:
    assert export._escape_csv_field(text) == escape_unprintable(expected)  # some spreadsheets divide a field there


@pytest.mark.parametrize("value", ["x=1", "", " =1", "a;b", "a\r\nb", -1, None])
def test_other_csv_fields_are_unchanged(value: object) -> None:
    assert export._escape_csv_field(value) == value


HOSTILE = "a\x1b[2J\u202eb\x9b\x7f\ud800"


def test_no_file_of_text_has_a_character_that_a_terminal_obeys() -> None:
    row = dict.fromkeys(name for name, _ in export._COLUMNS) | {
        "tag": HOSTILE, "keys": [HOSTILE], "properties": {HOSTILE: HOSTILE}, "body": HOSTILE.encode("utf-8", "replace"),
        "body_error": None,
    }  # fmt: skip
    lines = {}
    for form in (ExportFormat.JSONL, ExportFormat.CSV):
        file = io.BytesIO()
        writer = export._WRITERS[form](file, with_bodies=True, is_raw=False)
        writer.write([row])
        writer.close()
        text = file.getvalue().decode()
        assert escape_unprintable(text) == text
        lines[form] = text
    found = json.loads(lines[ExportFormat.JSONL])
    assert (found["tag"], found["keys"], found["properties"]) == (HOSTILE, [HOSTILE], {HOSTILE: HOSTILE})
    (fields,) = csv.DictReader(io.StringIO(lines[ExportFormat.CSV]))
    assert fields["tag"] == "a\\x1b[2J\\u202eb\\x9b\\x7f\\ud800"
    assert json.loads(fields["properties"]) == {HOSTILE: HOSTILE}
    assert export._escape_csv_field("a\r\nb\tc") == "a\r\nb\tc"
    assert export._escape_csv_field(HOSTILE, is_raw=True) == HOSTILE


def test_json_lines_are_exact(write: Export) -> None:
    rows = [json.loads(line) for line in write("jsonl").read_text().splitlines()]
    assert [row["queue_offset"] for row in rows] == list(range(len(BODIES)))
    assert {row["tag"] for row in rows} == {FORMULA}
    assert [
        base64.b64decode(row["body_base64"]) if row["body"] is None else row["body"].encode() for row in rows
    ] == list(BODIES)
    assert rows[1]["keys"] == ["order-1"]
    assert rows[0]["properties"] == dict(hostile_letter(0).properties)
    assert rows[0]["store_timestamp"] == "2023-11-15T00:00:00.000Z"
    assert [row["cause"] for row in rows[::2]] == [rows[0]["cause"]] * 3


def test_parquet_has_types(write: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_ROW_GROUP_BYTES", 1)  # a row group for each row
    monkeypatch.setattr(dead_letter_rows, "SLICE_BYTES", 1)
    file = pq.ParquetFile(write("parquet"))
    rows: list[dict[str, Any]] = file.read().to_pylist()
    assert file.num_row_groups == len(BODIES)
    assert [row["body"] for row in rows] == list(BODIES)
    assert rows[1]["store_timestamp"].isoformat() == "2023-11-15T00:01:00+00:00"


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_bodies_are_left_out_unless_requested(form: str, write: Export) -> None:
    path = write(form, with_bodies=False)
    if form == "csv":
        names = list(rows_of_csv(path)[0])
    elif form == "jsonl":
        names = list(json.loads(path.read_text().splitlines()[0]))
    else:
        names = pq.read_schema(path).names
    assert names == [name for name, _ in export._COLUMNS]


def test_a_failed_export_leaves_the_old_file(write: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("jsonl")
    before = path.read_bytes()
    with pytest.raises(QueryError):
        write("jsonl", where="nothing = 1")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_an_error(dead_letters: GrowingLake, tmp_path: Path) -> None:
    table = dead_letters.lake.table("messages")
    with pytest.raises(UsageError, match="cannot be written: No such file or directory"):
        export_letters(table, "true", None, tmp_path / "none" / "x.csv", ExportFormat.CSV, with_bodies=False)
