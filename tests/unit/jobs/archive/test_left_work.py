"""Tests of `archive` on stores without new messages: it completes the work of earlier runs without a JVM."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from commitlake.connectors.lake.archive_run_completion import unfinished_commits
from commitlake.jobs.archive import command as archive
from commitlake.jobs.archive import follow_stores
from commitlake.jobs.archive.follow_stores import StoreFollower, find_unfinished_work
from commitlake.pipelines.archive.result import Result
from commitlake.pipelines.archive.run import Config
from commitlake.pipelines.message_keys.progress import followed_version
from tests.support.archived import rows_added
from tests.support.jmq_consumers import JmqShop
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.small_stores import Clock


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A store of 20 messages in a lake without the table `message_keys`."""
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(20))
    growing.archive()
    assert followed_version(growing.lake) == -1
    return growing


def run(growing: GrowingLake) -> int:
    """Run the command on the store, and return its exit code."""
    return archive.main(["--store", str(growing.store), "--lake", growing.lake.root])


def keys_are_complete(growing: GrowingLake) -> bool:
    """Return whether `message_keys` has followed all of `messages`."""
    return followed_version(growing.lake) == growing.lake.table("messages").version()


def test_missing_keys_are_added_and_reported(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(growing) == 0
    printed = capsys.readouterr().err
    assert "No new messages in 1 store\n" in printed
    assert "20 message keys" in printed
    assert keys_are_complete(growing)
    assert run(growing) == 0
    assert "keys" not in capsys.readouterr().err


def test_an_unfinished_run_is_finished(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(growing.lake.uri("archive_runs"))
    shutil.rmtree(Path(growing.lake.root) / "_newest")
    assert run(growing) == 0
    assert "run 1, which another process had left unfinished, is now finished" in capsys.readouterr().err
    assert unfinished_commits(growing.lake, 1) == []


def test_a_follower_adds_missing_keys_before_its_stream_begins(growing: GrowingLake) -> None:
    config = Config(str(growing.store), growing.lake, "broker-a")
    reported: list[Result] = []
    left = find_unfinished_work(config)
    assert left is not None
    StoreFollower(None, config, reported.append)._finish_unfinished_work(left)  # type: ignore[arg-type]
    assert [rows_added(result, "message_keys") for result in reported] == [20]
    assert keys_are_complete(growing)


def follower_of_deliveries(folder: Path, results: list[Result]) -> StoreFollower:
    """Return a follower of an archived JMQ store with three deliveries since then."""
    shop = JmqShop(folder, Clock())
    shop.send(0, 8)
    shop.archive()
    shop.consume("billing", 3)
    return StoreFollower(None, Config(str(shop.store), shop.lake, "broker-a"), results.append)  # type: ignore[arg-type]


def test_a_follower_adds_deliveries_while_no_message_arrives(tmp_path: Path) -> None:
    results: list[Result] = []
    follower = follower_of_deliveries(tmp_path, results)
    follower.add_deliveries()
    assert [
        (result.messages, rows_added(result, "consumptions"), rows_added(result, "edges")) for result in results
    ] == [(0, 3, 3)]
    follower.add_deliveries()
    assert len(results) == 1


def test_a_follower_leaves_deliveries_to_a_running_micro_batch(tmp_path: Path) -> None:
    results: list[Result] = []
    follower = follower_of_deliveries(tmp_path, results)
    with follower._running:
        follower.add_deliveries()
    assert results == []


def test_no_run_is_planned_for_stores_without_logs_of_deliveries(
    growing: GrowingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_stores, "find_unfinished_work", lambda _: pytest.fail("a run was planned"))
    results: list[Result] = []
    config = Config(str(growing.store), growing.lake, "broker-a")
    StoreFollower(None, config, results.append).add_deliveries()  # type: ignore[arg-type]
    assert results == []
