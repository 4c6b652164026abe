"""The documented settings are settings that the jobs take."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import pytest

from jobs.cli import JOBS

EXAMPLE = Path(__file__).parents[3] / "conf" / "commitlake.example.toml"
NEEDED = {"archive": [], "query": [], "explain": ["/store"], "dump": ["/store"], "demo": []}


def options_of(job: str) -> set[str]:
    """Long names of the options of a job, without those that every job has."""
    parser = importlib.import_module(f"jobs.{job}").build_parser()
    names = {name[2:] for action in parser._actions for name in action.option_strings if name.startswith("--")}
    return names - {"help", "config", "quiet", "verbose"}


def test_every_job_has_a_table() -> None:
    assert tomllib.loads(EXAMPLE.read_text()).keys() == JOBS.keys()


@pytest.mark.parametrize("job", JOBS)
def test_documented_settings_are_taken(job: str, tmp_path: Path) -> None:
    parser = importlib.import_module(f"jobs.{job}").build_parser()
    arguments = vars(parser.parse_args([*NEEDED[job], "--config", str(EXAMPLE)]))
    for name, value in tomllib.loads(EXAMPLE.read_text())[job].items():
        assert arguments[name.replace("-", "_")] == value


def test_every_setting_of_the_archive_is_documented() -> None:
    table = EXAMPLE.read_text().split("[archive]")[1].split("\n[")[0]
    documented = set(re.findall(r"^#? ?([a-z-]+) = ", table, re.MULTILINE))
    assert options_of("archive") <= documented
