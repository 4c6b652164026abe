"""Output of rows."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.cli.terminal import guard_standard_streams
from commitlake.jobs.report.rows_output import Row, write_rows
from commitlake.schemas.report_columns import Column


@pytest.mark.parametrize("form", ["table", "csv", "json", "jsonl"])
def test_rows_in_a_file_come_before_later_lines_of_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    with (tmp_path / "log").open("w") as out, (tmp_path / "log").open("a") as err:
        monkeypatch.setattr(sys, "stdout", out)
        write_rows(form, [{"queue_id": 3}], ["queue_id"])
        print("done", file=err, flush=True)
    text = (tmp_path / "log").read_text()
    assert 0 <= text.find("3") < text.find("done")


@pytest.mark.parametrize("raw", [False, True])
def test_no_text_in_csv_is_a_formula_unless_raw(capsys: pytest.CaptureFixture[str], raw: bool) -> None:
    """Names of groups and topics come from clients. Numbers stay numbers, also negative ones."""
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "'x", "\uff1dx", "orders"]
    rows = [{"topic": text, "n": -5, "x": -0.5, "keys": [text]} for text in texts]
    with guard_standard_streams(is_raw=raw):
        write_rows("csv", rows, ["topic", "n", "x", "keys", "-column"])
    header, *found = csv.reader(capsys.readouterr().out.splitlines())
    assert header[-1] == ("-column" if raw else "'-column")
    assert [row[0] for row in found] == (texts if raw else [f"'{text}" for text in texts[:-1]] + ["orders"])
    assert {tuple(row[1:3]) for row in found} == {("-5", "-0.5")}
    assert [json.loads(row[3]) for row in found] == [[text] for text in texts]


def test_people_see_the_text_of_a_column_and_programs_get_the_value(capsys: pytest.CaptureFixture[str]) -> None:
    columns = [Column("segment"), Column("size", is_number=True, text=size_text)]
    rows: list[Row] = [{"segment": "0", "size": 4096}, {"segment": "4096", "size": None}]
    printed = {}
    for form in ("table", "csv", "jsonl"):
        write_rows(form, rows, columns)
        printed[form] = capsys.readouterr().out.splitlines()
    assert printed == {
        "table": ["segment     size", "────────────────", "0        4.0 KiB", "4096"],
        "csv": ["segment,size", "0,4096", "4096,"],
        "jsonl": ['{"segment":"0","size":4096}', '{"segment":"4096","size":null}'],
    }
