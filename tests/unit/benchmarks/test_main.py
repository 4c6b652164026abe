"""The benchmark program from arguments to tables, without the parts that need Java or Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks.__main__ import main
from tests.benchmarks.reading import PASSES


@pytest.mark.long("a benchmark, from end to end; its parts have tests of their own")
def test_the_kernel_is_measured_and_its_store_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # tables are cut to it
    output = tmp_path / "out.json"
    sizes = ["--gib", "0.002", "--bodies", "1024", "--runs", "1"]
    assert main([*sizes, "--only", "a", "--dir", str(tmp_path / "bench"), "--output", "json", str(output)]) == 0
    table = capsys.readouterr().out
    assert all(name in table for name in PASSES)
    figures = json.loads(output.read_text())["figures"]
    assert {figure["what"]: len(figure["runs"]) for figure in figures} == dict.fromkeys(PASSES, 1)
    assert [path.name for path in (tmp_path / "bench").iterdir()] == ["stores"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--only", "a,x"],
        ["--bodies", "0"],
        ["--sizes", "many"],
        ["--output", "csv", "out.csv"],
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_made(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2
