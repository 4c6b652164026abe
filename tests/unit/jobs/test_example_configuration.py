"""Tests that the jobs accept the documented settings."""

from __future__ import annotations

import argparse
import importlib
import re
import tomllib
from pathlib import Path

import pytest

from commitlake.jobs.cli.main import JOBS

EXAMPLE = Path(__file__).parents[3] / "conf" / "commitlake.example.toml"
NEEDED = {
    "archive": [],
    "broker": ["--store", "commitlake-broker"],
    "catalog": ["--to", "main.logs"],
    "query": [],
    "verify": ["/store"],
    "rebuild": ["/store", "--out", "/out"],
    "restore": ["--out", "/out"],
    "explain": ["/store"],
    "dump": ["/store"],
    "demo": [],
    "guard": [],
    "maintain": [],
    "audit": [],
    "completion": ["bash"],
    "evidence": ["verify"],
    "offsets": ["--group", "billing", "--at", "2026-11-20"],
}


def options_of(job: str) -> set[str]:
    """Return the first long names of a job's options, without hidden ones and those that every job has."""
    parser = importlib.import_module(f"commitlake.jobs.{job}.command").build_parser()
    long_names = (
        [name for name in action.option_strings if name.startswith("--")]
        for action in parser._actions
        if action.help != argparse.SUPPRESS
    )
    names = {names[0][2:] for names in long_names if names}
    return names - {"help", "config", "quiet", "verbose", "raw", "log-format", "metrics-file", "output"}


def action_of(parser: argparse.ArgumentParser, name: str) -> argparse.Action:
    """Return the option with this name."""
    (action,) = (action for action in parser._actions if f"--{name}" in action.option_strings)
    return action


def parsed(parser: argparse.ArgumentParser, name: str, value: object) -> object:
    """Return the value of a setting as parsed by the option with this name."""
    action = action_of(parser, name)
    if isinstance(value, list):
        return [parsed(parser, name, item) for item in value]
    return action.type(value) if callable(action.type) and isinstance(value, str) else value


def test_every_job_has_a_table() -> None:
    assert tomllib.loads(EXAMPLE.read_text()).keys() == JOBS.keys()


@pytest.mark.parametrize("job", JOBS)
def test_documented_settings_are_accepted(job: str, tmp_path: Path) -> None:
    parser = importlib.import_module(f"commitlake.jobs.{job}.command").build_parser()
    arguments = vars(parser.parse_args([*NEEDED.get(job, []), "--config", str(EXAMPLE)]))
    for name, value in tomllib.loads(EXAMPLE.read_text())[job].items():
        assert arguments[action_of(parser, name).dest] == parsed(parser, name, value)


@pytest.mark.parametrize("job", ["archive", "audit", "guard", "maintain", "verify"])
def test_every_setting_of_the_nightly_jobs_is_documented(job: str) -> None:
    table = EXAMPLE.read_text().split(f"[{job}]")[1].split("\n[")[0]
    documented = set(re.findall(r"^#? ?([a-z0-9-]+) = ", table, re.MULTILINE))
    assert options_of(job) <= documented
