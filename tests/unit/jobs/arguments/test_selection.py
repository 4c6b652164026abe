"""Options that select messages."""

from __future__ import annotations

import datetime
import importlib
from dataclasses import dataclass

import pytest

from commitlake.jobs.arguments import selection
from commitlake.jobs.arguments.selection import Keys, Queues, TimeRange, Topics
from commitlake.jobs.arguments.stores import StoreName
from commitlake.jobs.cli.main import JOBS
from commitlake.jobs.cli.options import Options, find_option_conflict, options_with_fields
from commitlake.jobs.explain.command import Explain
from commitlake.schemas.selection import Selection

OPTIONS = [each for each in vars(selection).values() if isinstance(each, type) and "CONDITIONS" in vars(each)][1:]
OTHER_MEANINGS = {
    ("erase", "--key"), ("erase", "--id"),  # the messages of each are erased: not those that meet all options
    ("replay", "--group"),  # of the groups whose offsets an undo sets
    ("ship", "--to"), ("catalog", "--to"), ("publish", "--to"),  # places
    ("topics", "--topic"),  # topics of its file
    ("broker", "--broker"),  # of the broker that it runs
}  # fmt: skip
NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)


@dataclass(frozen=True, kw_only=True)
class Shop(Topics, Queues, Keys, TimeRange):
    """Options of a command that selects messages by some conditions."""


def test_each_option_is_a_condition_and_those_of_other_commands_are_none() -> None:
    found = Shop(topic=("orders",), queue=(1, 2), key=("a",), start=NOON).selection
    assert found == Selection(topics=("orders",), queue_ids=(1, 2), keys=("a",), start=NOON)


@pytest.mark.parametrize("end", [NOON, NOON - datetime.timedelta(microseconds=1)])
def test_an_empty_time_range_is_refused(end: datetime.datetime) -> None:
    assert find_option_conflict(Shop(start=NOON, end=end)) == (
        f"--from {NOON} is not before --to {end}",
        "exchange them",
    )
    assert find_option_conflict(Shop(start=end, end=NOON + datetime.timedelta(hours=1))) is None
    assert find_option_conflict(Shop(start=NOON)) is None


def names_of(kind: type[Options]) -> dict[str, object]:
    """Return the names of a class's options, with the argparse action of each."""
    declared = ((entry, entry.command_line_names(field)) for field, entry in options_with_fields(kind))
    return {name: entry.settings.get("action") for entry, names in declared for name in names}


@pytest.mark.parametrize("job", JOBS)
def test_an_option_has_one_meaning_and_one_repeatability_in_all_commands(job: str) -> None:
    command: type[Options] = importlib.import_module(f"commitlake.jobs.{job}.command").main.__self__
    found = names_of(command)
    for kind in OPTIONS:
        for name, action in names_of(kind).items():
            if name in found and (job, name) not in OTHER_MEANINGS:
                assert issubclass(command, kind) or (name == "--broker" and issubclass(command, StoreName)), name
                assert issubclass(command, StoreName) or found[name] == action, name


def test_an_option_of_the_same_name_that_is_not_inherited_is_no_condition() -> None:
    assert Explain(store="/store", broker="a", topic=("orders",)).selection == Selection(topics=("orders",))
