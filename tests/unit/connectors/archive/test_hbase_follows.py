"""What an archive run does where HBase is to follow, and there is nothing to follow, or another run is at it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from connectors.archive import run
from connectors.archive.run import Config
from connectors.hbase.errors import ConcurrentFollowError, UnavailableError
from connectors.hbase.follower import Followed
from connectors.hbase.options import Options
from connectors.lake.committer import open_for_append
from connectors.lake.paths import LakePaths

DONE = Followed(3, 1, 20, 0, 0.1)


def followed(monkeypatch: pytest.MonkeyPatch, lake: LakePaths, answers: list[Any]) -> Followed:
    """What a run tells, where HBase's follower gives these answers."""

    def answer(*_: object, **__: object) -> Followed:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, Followed)
        return found

    monkeypatch.setattr(run, "follow", answer)
    config = Config("store", lake.root, hbase=Options.of_address("127.0.0.1:1"))
    return run._follow_hbase(lake, config, None)  # type: ignore[arg-type]


@pytest.fixture
def lake(tmp_path: Path) -> LakePaths:
    """A lake with an empty table."""
    lake = LakePaths(str(tmp_path / "lake"))
    open_for_append(lake.messages)
    return lake


def test_a_lake_that_is_not_there_yet_has_nothing_for_hbase(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert followed(monkeypatch, LakePaths(str(tmp_path / "none")), []).rows == 0


def test_what_another_run_leaves_to_hbase_is_done_behind_it(monkeypatch: pytest.MonkeyPatch, lake: LakePaths) -> None:
    assert followed(monkeypatch, lake, [ConcurrentFollowError("another"), DONE]) == DONE


def test_another_run_that_is_always_first_is_no_error(monkeypatch: pytest.MonkeyPatch, lake: LakePaths) -> None:
    assert followed(monkeypatch, lake, [ConcurrentFollowError("another") for _ in range(5)]).rows == 0


def test_an_hbase_that_is_down_is_one(monkeypatch: pytest.MonkeyPatch, lake: LakePaths) -> None:
    with pytest.raises(UnavailableError):
        followed(monkeypatch, lake, [UnavailableError("down")])
