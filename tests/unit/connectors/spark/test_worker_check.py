"""Check of the workers' packages, as far as it can be tested without Spark."""

from __future__ import annotations

import importlib.metadata
import json
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from commitlake.connectors.spark.worker_check import NEEDED, check_workers, choose_python, import_packages
from commitlake.schemas.errors import UnavailableError, UsageError


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """A session that runs the function of the check here, as it arrives at a worker."""
    made = Mock()
    functions: list[Any] = []
    made.sent, made.run = [], made.range.return_value.select.return_value.collect
    made.changes = {}

    def udf(function: Any, *_: object, **__: object) -> Any:
        def call(names: str) -> Mock:
            functions.append((function, names))
            return Mock()

        return call

    def collect() -> list[dict[str, str]]:
        function, names = functions[-1]
        made.sent.append(cloudpickle.dumps(function))  # type: ignore[no-untyped-call]
        return [{"found": json.dumps({**json.loads(pickle.loads(made.sent[-1])(names)), **made.changes})}]

    monkeypatch.setattr("pyspark.sql.functions.udf", udf)
    monkeypatch.setattr("pyspark.sql.functions.lit", str)
    made.run.side_effect = collect
    return made


def test_workers_with_all_packages_are_accepted(session: Mock) -> None:
    check_workers(session)
    load = "import pickle; print(pickle.loads(sys.stdin.buffer.read())('json'))"
    without = f"import sys; sys.modules['commitlake'] = None; {load}"
    done = subprocess.run([sys.executable, "-c", without], input=session.sent[0], capture_output=True, check=False)
    assert b'"missing": {}' in done.stdout, done.stderr.decode()


def test_missing_packages_are_named_with_the_workers_python(session: Mock) -> None:
    with pytest.raises(
        UsageError, match=r"Python 3\.\d+\.\d+ \(.*\) lacks the packages no_such \(ModuleNotFoundError: "
    ) as error:
        check_workers(session, ("json", "no_such"))
    assert "json (" not in str(error.value)
    assert "PYSPARK_PYTHON" in str(error.value)


def test_another_version_of_commitlake_is_refused(session: Mock) -> None:
    session.changes["version"] = "0.0.9"
    with pytest.raises(UsageError, match=r"has CommitLake 0\.0\.9, but this job is CommitLake \d+\."):
        check_workers(session)


def test_a_copy_of_commitlake_without_metadata_is_accepted(session: Mock) -> None:
    session.changes["version"] = ""
    check_workers(session)


def test_a_driver_without_metadata_accepts_workers_with_it(session: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commitlake.connectors.spark.worker_check._commitlake_version", lambda: "")
    session.changes["version"] = "1.0"
    check_workers(session)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "[X] failed\nat y\nCaused by: java.io.IOException: Cannot run program\nat z",
            "IOException: Cannot run program",
        ),
        (
            "[X] failed\n  pyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] 3.9 and 3.11\n",
            "VERSION_MISMATCH",
        ),
        ("only this", "only this"),
        ("", "PySparkException"),
    ],
)
def test_an_error_of_spark_is_one_line(session: Mock, text: str, reason: str) -> None:
    session.run.side_effect = PySparkException(text)
    with pytest.raises(UnavailableError, match=f"no task can be run on Spark's workers: .*{reason}"):
        check_workers(session)


def test_the_answer_is_json_of_strings() -> None:
    found = json.loads(import_packages(" ".join(NEEDED)))
    assert found.keys() == {"host", "python", "version", "missing"}
    assert found["missing"] == {}
    assert found["version"] == importlib.metadata.version("commitlake")


# --- workers on this machine ---


def local_session(python: str, master: str = "local[2]") -> Mock:
    """Return a session whose workers run a Python."""
    made = Mock()
    made.sparkContext.master, made.sparkContext.pythonExec = master, python
    return made


def test_workers_on_this_machine_run_this_python_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    choose_python(session := local_session("python3"))
    assert session.sparkContext.pythonExec == sys.executable


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn"])
def test_workers_on_other_machines_keep_their_python(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    choose_python(session := local_session("python3", master))
    assert session.sparkContext.pythonExec == "python3"


@pytest.mark.parametrize("python", ["without", "missing"])
def test_a_chosen_python_without_commitlake_is_named(
    python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (script := tmp_path / "without").write_text("#!/bin/sh\nexit 1\n")
    script.chmod(0o755)
    chosen = str(tmp_path / python)
    monkeypatch.setenv("PYSPARK_PYTHON", chosen)
    with pytest.warns(UserWarning, match=f"{chosen} .*has no CommitLake.*set PYSPARK_PYTHON to {sys.executable}"):
        choose_python(session := local_session(chosen))
    assert session.sparkContext.pythonExec == chosen


def test_a_chosen_python_with_commitlake_is_kept_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        choose_python(local_session(sys.executable))
