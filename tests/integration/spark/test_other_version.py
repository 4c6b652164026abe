"""Another version of Spark gives the same rows: as a batch, as a stream, and from the archive."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from commitlake.connectors.spark.versions import TESTED, spark_version
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.logs import closed_segment, messages, open_segment, write_store
from tests.support.source_tree import ROOT
from tests.support.wheel_environments import build_wheel, clean_variables, make_environment

SIZE = 16384


def report_of(python: Path | str, folder: Path) -> dict[str, Any]:
    """Run the report with a Python, on a store of its own with the same name and bytes."""
    store, segment, results = folder / "in" / "store", folder / "in" / segment_name(SIZE), folder / "out"
    results.mkdir(parents=True)
    write_store(store, [(0, closed_segment(messages(30), SIZE))])
    segment.write_bytes(open_segment(messages(20, seed=2), SIZE, SIZE))
    program = ROOT / "tests" / "support" / "spark_version_report.py"
    command = [str(python), "-P", str(program), str(store), str(segment), str(results)]
    done = subprocess.run(
        command, cwd=folder, env=clean_variables(), capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads((results / "report.json").read_text())
    return report


@pytest.mark.long("installs another Spark from the package registry")
@pytest.mark.timeout(2400)
def test_the_other_version_of_spark_gives_the_same_rows(tmp_path: Path) -> None:
    (other,) = set(TESTED) - {spark_version()}
    wheel = build_wheel(tmp_path)
    python = make_environment(tmp_path / "env", wheel, extras="spark", other=(f"pyspark=={other}.*",))
    fetch = [str(python), "-P", "-m", "commitlake.connectors.spark.jars"]
    subprocess.run(fetch, cwd=tmp_path, env=clean_variables(), check=True, timeout=300)

    theirs, ours = report_of(python, tmp_path / "theirs"), report_of(sys.executable, tmp_path / "ours")

    assert theirs.pop("version").startswith(f"{other}.")
    assert ours.pop("version") == pyspark.__version__
    assert theirs == ours
    assert ours["archive"] == ours["follow"] == 0
    assert ours["micro_batches"] == [30, 20]
    assert [len(ours[name]) for name in ("batch", "delta", "stream", "followed")] == [30, 30, 50, 50]
