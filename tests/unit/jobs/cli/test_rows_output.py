"""Output of rows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from commitlake.jobs.cli.rows_output import write


@pytest.mark.parametrize("form", ["table", "csv", "json", "jsonl"])
def test_rows_in_a_file_come_before_later_lines_of_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    with (tmp_path / "log").open("w") as out, (tmp_path / "log").open("a") as err:
        monkeypatch.setattr(sys, "stdout", out)
        write(form, [{"queue_id": 3}], ["queue_id"])
        print("done", file=err, flush=True)
    text = (tmp_path / "log").read_text()
    assert 0 <= text.find("3") < text.find("done")
