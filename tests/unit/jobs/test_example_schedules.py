"""Tests that the example schedules call jobs with valid options, and handle exit codes as documented."""

from __future__ import annotations

import ast
import configparser
import importlib
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from commitlake.jobs.cli.main import JOBS

EXAMPLES = Path(__file__).parents[3] / "conf" / "examples"
SETTINGS = Path(__file__).parents[3] / "conf" / "commitlake.example.toml"

STAND_IN = """#!/bin/sh
echo "$1" >> "$CALLED"
eval "exit \\${CODE_$1:-0}"
"""


def nightly(folder: Path, **codes: int) -> tuple[int, list[str]]:
    """Run the script with a command that ends with these codes; return its exit code and the jobs it called."""
    command = folder / "commitlake"
    command.write_text(STAND_IN)
    command.chmod(0o755)
    called = folder / "called"
    called.touch()
    environment = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "CALLED": str(called),
        **{f"CODE_{job}": str(code) for job, code in codes.items()},
    }
    done = subprocess.run([EXAMPLES / "nightly.sh"], env=environment, capture_output=True, check=False)
    return done.returncode, called.read_text().split()


@pytest.mark.parametrize(
    ("codes", "ends_with", "called"),
    [
        ({}, 0, ["guard", "archive", "audit", "maintain"]),
        ({"guard": 3}, 3, ["guard", "archive", "audit", "maintain"]),
        ({"guard": 2}, 2, ["guard", "archive", "audit", "maintain"]),
        ({"archive": 3}, 3, ["guard", "archive", "audit", "maintain"]),
        ({"archive": 4}, 4, ["guard", "archive"]),
        ({"archive": 1}, 1, ["guard", "archive"]),
        ({"audit": 3}, 3, ["guard", "archive", "audit"]),
        ({"audit": 2}, 2, ["guard", "archive", "audit"]),
        ({"maintain": 4}, 4, ["guard", "archive", "audit", "maintain"]),
        ({"guard": 3, "maintain": 4}, 4, ["guard", "archive", "audit", "maintain"]),
    ],
)
def test_the_nightly_script_continues_and_ends_by_exit_codes(
    tmp_path: Path, codes: dict[str, int], ends_with: int, called: list[str]
) -> None:
    assert nightly(tmp_path, **codes) == (ends_with, called)


def check_arguments(job: str, arguments: list[str]) -> None:
    """Check that a job's parser accepts these arguments with the example settings."""
    if job in JOBS:
        importlib.import_module(f"commitlake.jobs.{job}.command").build_parser().parse_args(
            [*arguments, "--config", str(SETTINGS)]
        )


def test_the_crontab_and_the_script_call_jobs_with_valid_options() -> None:
    calls = [
        shlex.split(part.partition(marker)[2])
        for name, marker in (("nightly.sh", "run "), ("crontab", "commitlake "))
        for line in (EXAMPLES / name).read_text().splitlines()
        for part in line.lstrip("# ").partition(">")[0].split("&&")
        if marker in part and "--" in part
    ]
    assert [call[0] for call in calls] == ["guard", "archive", "audit", "maintain", "guard", "maintain"]
    for job, *arguments in calls:
        own = [word for word in arguments if word not in {"--config", "/etc/commitlake.toml"}]
        check_arguments(job, own)


def test_systemd_units_call_existing_files_and_valid_options() -> None:
    called = {}
    for path in EXAMPLES.glob("*.service"):
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.optionxform = str  # type: ignore[assignment, method-assign]
        unit.read_string(path.read_text())
        called[path.stem] = shlex.split(unit["Service"]["ExecStart"])
    script, settings = called["commitlake-nightly"]
    assert (EXAMPLES / Path(script).name).exists()
    assert settings == "/etc/commitlake.toml"
    for name in ("commitlake-metrics", "commitlake-ship"):
        program, job, *arguments = called[name]
        assert Path(program).name == "commitlake"
        importlib.import_module(f"commitlake.jobs.{job}.command").build_parser().parse_args(arguments)


def test_the_dag_compiles_and_calls_jobs_with_valid_options() -> None:
    path = EXAMPLES / "airflow_nightly.py"
    tree = ast.parse(path.read_text())
    compile(tree, str(path), "exec")
    (commands,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMMANDS"
    )
    assert list(commands) == ["guard", "archive", "audit", "maintain"]
    for job, arguments in commands.items():
        check_arguments(job, arguments)


@pytest.mark.parametrize(
    ("codes", "wrong"),
    [
        ((0, 0, 0, 0), []),
        ((0, 0, 0, None), ["maintain"]),  # it failed
        ((0, 0, 3, None), ["audit"]),  # it was skipped
        ((0, 0, None, None), ["audit"]),
        ((3, 0, 0, 0), ["guard"]),
        ((None, 0, 0, 0), ["guard"]),
    ],
)
def test_the_dag_fails_if_a_job_found_something_or_failed(codes: tuple[int | None, ...], wrong: list[str]) -> None:
    tree = ast.parse((EXAMPLES / "airflow_nightly.py").read_text())
    (function,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "wrong_jobs")
    names: dict[str, Any] = {"FOUND": 3}
    exec(compile(ast.Module([function], []), "airflow_nightly.py", "exec"), names)
    assert names["wrong_jobs"](dict(zip(["guard", "archive", "audit", "maintain"], codes, strict=True))) == wrong
