"""Tests of doctor's findings on typed tables of topics."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from commitlake.jobs.doctor.command import main
from commitlake.jobs.doctor.findings import CheckState, DoctorFinding
from commitlake.jobs.doctor.topic_checks import check_topic_tables
from commitlake.schemas.errors import ExitCode
from tests.support.lakes import MIDNIGHT_MS, GrowingLake, prepared_lake, shop_messages
from tests.support.typed_topics import follow_topic

TOPIC = "topic-00"
TABLE = f"topics/{TOPIC}"
AT = datetime.datetime.fromtimestamp(MIDNIGHT_MS / 1000, datetime.UTC) + datetime.timedelta(hours=30)
"""A time of which the last day has three quarters of the messages."""


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A lake whose typed table follows its only run."""
    return prepared_lake(tmp_path, _archive_and_follow)


def _archive_and_follow(growing: GrowingLake) -> None:
    growing.write(shop_messages(40))
    growing.archive()
    follow_topic(growing.lake, TOPIC, lambda offset: offset > 0)


def checked(growing: GrowingLake, at: datetime.datetime | None = None) -> list[DoctorFinding]:
    return list(check_topic_tables(growing.lake, at or datetime.datetime.now(datetime.UTC)))


def test_a_table_that_follows_is_in_order(growing: GrowingLake) -> None:
    (found,) = checked(growing)
    assert (found.state, found.found) == (CheckState.OK, f"{TABLE} follows messages to the newest commit")


def test_commits_that_are_not_followed_are_counted_with_their_age(growing: GrowingLake) -> None:
    for seed in (7, 8):
        growing.write(shop_messages(10, seed=seed))
        growing.archive()
    growing.archive()  # nothing new: such a run is not behind
    (found,) = checked(growing, datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=190))
    assert (found.state, found.found) == (CheckState.WARNING, f"{TABLE} is 2 commits behind messages, since 3.2 h")
    assert found.advice == f"commitlake topics --lake {growing.lake.root} --topics-file TOPICS_FILE"


def test_misfits_of_the_last_day_are_counted(growing: GrowingLake) -> None:
    progress, misfits = checked(growing, AT)
    assert progress.state is CheckState.OK
    assert misfits.found == f"{TABLE}: 6 messages of the last day do not fit the schema"
    assert misfits.advice == f"commitlake query --lake {growing.lake.root} --table topic_misfits --topic {TOPIC}"


def test_a_run_that_was_killed_before_its_misfits_is_named(growing: GrowingLake) -> None:
    shutil.rmtree(growing.lake.uri("topic_misfits"))
    (Path(growing.lake.root) / "_newest" / "topic_misfits.json").unlink()
    (found,) = checked(growing)
    assert "was killed before it recorded its misfits" in found.found


def test_a_deleted_table_is_missing_and_another_programs_is_left(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    write_deltalake(growing.lake.uri("topics/own"), pa.table({"id": [1]}))
    assert [found.state for found in checked(growing)] == [CheckState.OK]
    assert main(["--lake", growing.lake.root]) == ExitCode.OK
    shutil.rmtree(growing.lake.uri(TABLE))
    (found,) = checked(growing)
    assert (found.state, found.advice) == (
        CheckState.MISSING,
        f"commitlake maintain --lake {growing.lake.root} --repair",
    )
    assert main(["--lake", growing.lake.root]) == ExitCode.DAMAGE
    assert "missing: topics" in capsys.readouterr().err
