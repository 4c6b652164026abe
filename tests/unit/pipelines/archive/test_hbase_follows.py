"""Archive runs with HBase when there are no new versions, or another run is following."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.hbase import table_update
from commitlake.connectors.hbase.errors import ConcurrentFollowError, HBaseError
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.hbase.update_result import HBaseUpdate
from commitlake.connectors.lake.backoff import MAX_TRIES, TableUpdate
from commitlake.connectors.lake.committer import open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.archive import run
from commitlake.pipelines.archive.result import Result
from commitlake.pipelines.archive.run import Config

DONE = HBaseUpdate(3, 1, 20, 0, 0.1)


def followed(monkeypatch: pytest.MonkeyPatch, lake: Lake, answers: list[Any]) -> list[TableUpdate]:
    """Return the results of a run in which HBase's follower gives these answers."""

    def answer(*_: object, **__: object) -> HBaseUpdate:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, HBaseUpdate)
        return found

    monkeypatch.setattr(table_update, "follow_messages", answer)
    config = Config("store", lake, hbase=HBaseOptions.of_address("127.0.0.1:1"))
    return run._update_hbase(config, None)  # type: ignore[arg-type]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with an empty table."""
    lake = Lake(str(tmp_path / "lake"))
    open_messages_for_append(lake)
    return lake


def test_a_lake_that_does_not_exist_yet_has_no_rows_for_hbase(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert followed(monkeypatch, Lake(str(tmp_path / "none")), []) == []


def test_a_run_follows_after_another_run_has_ended(monkeypatch: pytest.MonkeyPatch, lake: Lake) -> None:
    assert followed(monkeypatch, lake, [ConcurrentFollowError("another"), DONE]) == [TableUpdate("HBase", 3, 20, 0.1)]


def test_another_run_that_is_always_first_is_not_an_error(monkeypatch: pytest.MonkeyPatch, lake: Lake) -> None:
    monkeypatch.setattr(run, "backoff_seconds", lambda _: 0)
    answers = [ConcurrentFollowError("another") for _ in range(MAX_TRIES)]
    updates = [TableUpdate("message_keys", 1, is_unfinished=True), *followed(monkeypatch, lake, answers)]
    assert Result(lake, "", {}, updates=updates).unfinished_tables == ["message_keys", "HBase"]


def test_an_unreachable_hbase_is_an_error(monkeypatch: pytest.MonkeyPatch, lake: Lake) -> None:
    with pytest.raises(HBaseError):
        followed(monkeypatch, lake, [HBaseError("down", is_transient=True)])
