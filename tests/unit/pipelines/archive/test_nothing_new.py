"""A run without new messages completes an earlier unfinished run, and opens few tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.connectors.lake.store_config import TOPIC, read_store_config
from commitlake.connectors.runtime.local_runner import ThreadRunner
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.pipelines.audit.audited_versions import read_lake_state
from commitlake.pipelines.audit.table_checks import compare_archive_runs
from commitlake.pipelines.message_keys.progress import followed_version
from commitlake.pipelines.repair.plan import plan_repair
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.opened_tables import opened

__all__ = ["opened"]  # a fixture


@pytest.mark.parametrize("keys", [True, False])
def test_the_next_run_commits_keys_that_a_stopped_run_left_out(tmp_path: Path, *, keys: bool) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(20))
    growing.archive()
    lake = growing.lake
    assert followed_version(lake) < lake.table("messages").version()
    result = run_archive(ThreadRunner(1), Config(str(growing.store), lake, keys=keys))
    assert (result.sequence, result.messages) == (0, 0)
    assert (followed_version(lake) == lake.table("messages").version()) == keys


def test_changed_topics_are_recorded_without_new_messages(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(20))
    growing.configure(1)
    config = Config(str(growing.store), growing.lake)
    assert run_archive(ThreadRunner(1), config).messages == 20
    growing.configure(7)
    result = run_archive(ThreadRunner(1), config)
    assert (result.sequence, result.messages) == (0, 0)
    assert "1 changed topic or group recorded" in result.notes
    topics = read_store_config(growing.lake, "broker-a").values_of_kind(TOPIC)
    assert topics["topic-00"]["readQueueNums"] == 7
    version = growing.lake.table("messages").version()
    assert run_archive(ThreadRunner(1), config).notes == []
    assert growing.lake.table("messages").version() == version
    assert plan_repair(growing.lake).is_empty
    assert not compare_archive_runs(growing.lake, read_lake_state(growing.lake))
    growing.write(shop_messages(5, seed=1))
    assert run_archive(ThreadRunner(1), config).messages == 5


def test_a_run_opens_tables_a_limited_number_of_times(tmp_path: Path, opened: list[str]) -> None:
    growing = GrowingLake(tmp_path)
    config = Config(str(growing.store), growing.lake)
    counts = []
    for seed in range(2):
        growing.write(shop_messages(20, seed=seed))
        run_archive(ThreadRunner(1), config)
    for seed in range(2, 5):
        growing.write(shop_messages(20, seed=seed))
        opened.clear()
        run_archive(ThreadRunner(1), config)
        counts.append(len(opened))
    opened.clear()
    run_archive(ThreadRunner(1), config)
    # Each takes six requests in an object store, and reads the whole log since the newest checkpoint.
    assert counts == [21, 21, 21]
    assert len(opened) == 7
