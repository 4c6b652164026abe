"""The action "append" of jobs' parsers."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from commitlake.jobs.cli.command import job_parser


def parser_with(help_text: str) -> argparse.ArgumentParser:
    parser = job_parser("query", "Show messages.", [("query", "all")])
    parser.add_argument_group("selection").add_argument("--topic", action="append", default=[], help=help_text)
    return parser


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("only this topic", "only this topic; may be repeated"),
        ("only this topic (default: all)", "only this topic; may be repeated (default: all)"),
    ],
)
def test_help_says_that_an_option_may_be_repeated(given: str, shown: str) -> None:
    assert shown in " ".join(parser_with(given).format_help().split())


def test_values_are_collected_in_order() -> None:
    assert parser_with("topic").parse_args(["--topic", "b", "--topic", "a"]).topic == ["b", "a"]


def test_a_settings_file_may_have_a_list(tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text('[query]\ntopic = ["b", "a"]\n')
    assert parser_with("topic").parse_args(["--config", str(settings)]).topic == ["b", "a"]
