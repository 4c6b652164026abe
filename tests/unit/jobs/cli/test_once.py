"""Tests of options that take one value: a second value is refused, not silently used."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Sequence

import pytest

from commitlake.jobs.archive.command import main as archive
from commitlake.jobs.cli.main import JOBS
from commitlake.jobs.cli.options import AppendAction, StoreOnceAction
from commitlake.jobs.restore.command import main as restore

Main = Callable[[Sequence[str]], int]
SELECTING = {"--topic", "--queue", "--key", "--id", "--tag", "--kind", "--group"}


@pytest.mark.parametrize(("main", "option"), [(restore, "--broker"), (archive, "--broker")])
def test_a_second_value_is_refused(main: Main, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--lake", "lake", option, "1", option, "2"])
    assert f"argument {option}: expected one value, but it is given more than once" in capsys.readouterr().err


def options() -> list[tuple[str, str, argparse.Action]]:
    """Return each option of each job that selects messages or names a store."""
    found = []
    for job in JOBS:
        parser = importlib.import_module(f"commitlake.jobs.{job}.command").build_parser()
        for action in parser._actions:
            found += [(job, name, action) for name in action.option_strings if name in SELECTING | {"--broker"}]
    return found


def test_an_option_that_selects_messages_may_be_repeated_in_every_job() -> None:
    wrong = [
        f"{job} {name}" for job, name, action in options() if name in SELECTING and type(action) is not AppendAction
    ]
    assert wrong == []


def test_a_broker_may_be_repeated_where_it_selects_and_not_where_it_names_a_store() -> None:
    for job, name, action in options():
        if name == "--broker":
            is_selecting = (action.help or "").startswith(("only", "the store's name; may"))
            assert type(action) is (AppendAction if is_selecting else StoreOnceAction), (job, action.help)
