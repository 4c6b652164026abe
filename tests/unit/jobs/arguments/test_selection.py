"""Options that select messages."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import pytest

from commitlake.jobs.arguments.selection import Keys, Queues, TimeRange, Topics
from commitlake.jobs.cli.command import JobError
from commitlake.schemas.selection import Selection

NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)


@dataclass(frozen=True, kw_only=True)
class Shop(Topics, Queues, Keys, TimeRange):
    """Options of a command that selects messages by some conditions."""


def test_each_option_is_a_condition_and_those_of_other_commands_are_none() -> None:
    found = Shop(topic=("orders",), queue=(1, 2), key=("a",), start=NOON).selection
    assert found == Selection(topics=("orders",), queue_ids=(1, 2), keys=("a",), start=NOON)


@pytest.mark.parametrize("end", [NOON, NOON - datetime.timedelta(microseconds=1)])
def test_an_empty_time_range_is_refused(end: datetime.datetime) -> None:
    with pytest.raises(JobError, match=r"--from 2026-11-20 12:00:00\+00:00 is not before --to 2026-11-20"):
        Shop(start=NOON, end=end).check_times()
    Shop(start=end, end=NOON + datetime.timedelta(hours=1)).check_times()
