"""`topic_minutes` as an archive writes it, and counted again from `messages`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from datasketches import kll_doubles_sketch
from deltalake import DeltaTable

from commitlake.connectors.lake.archive_run_completion import finish_runs
from commitlake.connectors.lake.committer import commit_with_transaction, open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.runtime.local_runner import ThreadRunner
from commitlake.jobs.archive import command as archive
from commitlake.pipelines.topic_minutes import backfill as module
from commitlake.pipelines.topic_minutes.backfill import backfill_minutes
from commitlake.pipelines.topic_minutes.progress import covered_sequence
from commitlake.schemas.errors import ConcurrentRunError, ExitCode
from tests.support.earlier_archives import without_topic_minutes
from tests.support.lakes import GrowingLake, rows_of, shop_messages

_KEY = ("broker", "topic", "queue_id", "tag", "other_tags", "kind", "minute")
_SUMS = ("messages", "bytes", "body_bytes", "latency_messages", "latency_ms", "wait_messages", "wait_ms",
         "clock_skew_messages", "reconsumed", "rechecked", "committed")  # fmt: skip


def lake_of_two_runs(folder: Path) -> GrowingLake:
    growing = GrowingLake(folder)
    for seed in range(2):
        growing.write(shop_messages(60, seed=seed))
        growing.archive()
    return growing


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A lake of two runs."""
    return lake_of_two_runs(tmp_path)


def totals(lake: Lake) -> dict[tuple[Any, ...], dict[str, int]]:
    """Return the sums of each key, and how many values the sketches of its sizes have."""
    found: dict[tuple[Any, ...], dict[str, int]] = defaultdict(lambda: dict.fromkeys((*_SUMS, "sketched"), 0))
    for row in rows_of(lake.uri("topic_minutes")):
        sums = found[tuple(row[name] for name in _KEY)]
        for name in _SUMS:
            sums[name] += row[name]
        sums["sketched"] += kll_doubles_sketch.deserialize(row["size_sketch"]).n
    return dict(found)


def messages_of(lake: Lake) -> int:
    return sum(row["messages"] for row in rows_of(lake.uri("topic_minutes")))


@pytest.fixture
def old(tmp_path: Path) -> GrowingLake:
    """The same lake, archived by an earlier version."""
    with without_topic_minutes():
        return lake_of_two_runs(tmp_path / "old")


def test_an_archive_counts_each_message_once(growing: GrowingLake) -> None:
    assert messages_of(growing.lake) == growing.count
    assert {row["run_id"] for row in rows_of(growing.lake.uri("topic_minutes"))} == {
        row["run_id"] for row in rows_of(growing.lake.uri("archive_runs"))
    }


def test_a_run_killed_after_its_commit_is_counted_once(growing: GrowingLake) -> None:
    growing.write(shop_messages(30, seed=5))
    growing.archive(finish=False)
    for _ in range(2):
        finish_runs(growing.lake, "other", "1")
    assert messages_of(growing.lake) == growing.count


def test_a_backfill_gives_the_counts_of_archive_runs(growing: GrowingLake, old: GrowingLake) -> None:
    done = backfill_minutes(old.lake, ThreadRunner(2))
    assert done.messages == old.count
    assert totals(old.lake) == totals(growing.lake)
    assert covered_sequence(old.lake) == 2


def test_a_repeated_backfill_adds_no_rows(growing: GrowingLake, old: GrowingLake) -> None:
    backfill_minutes(old.lake)
    for lake in (growing.lake, old.lake):
        version = DeltaTable(lake.uri("topic_minutes")).version()
        assert backfill_minutes(lake).messages == 0
        assert DeltaTable(lake.uri("topic_minutes")).version() == version


def test_runs_after_a_backfill_are_counted_by_the_archive(old: GrowingLake) -> None:
    backfill_minutes(old.lake)
    old.write(shop_messages(30, seed=5))
    old.archive()
    assert backfill_minutes(old.lake).messages == 0
    assert messages_of(old.lake) == old.count


def test_a_backfill_leaves_out_an_unfinished_run(old: GrowingLake) -> None:
    old.write(shop_messages(30, seed=5))
    old.archive(finish=False)
    assert backfill_minutes(old.lake).messages == old.count - 30
    finish_runs(old.lake, "other", "1")
    assert messages_of(old.lake) == old.count


def test_a_backfill_adds_a_run_between_others(growing: GrowingLake) -> None:
    with without_topic_minutes():
        growing.write(shop_messages(30, seed=5))
        growing.archive()
    growing.write(shop_messages(20, seed=6))
    growing.archive()
    assert backfill_minutes(growing.lake).messages == 30
    assert messages_of(growing.lake) == growing.count


def test_a_full_backfill_counts_each_message_once(growing: GrowingLake) -> None:
    expected = totals(growing.lake)
    backfill_minutes(growing.lake, from_scratch=True)
    assert totals(growing.lake) == expected


def test_only_one_of_two_concurrent_backfills_is_kept(old: GrowingLake, monkeypatch: pytest.MonkeyPatch) -> None:
    real_advance = commit_with_transaction

    def late(*arguments: Any, **options: Any) -> bool:
        monkeypatch.setattr(module, "commit_with_transaction", real_advance)
        backfill_minutes(old.lake)
        return real_advance(*arguments, **options)

    monkeypatch.setattr(module, "commit_with_transaction", late)
    with pytest.raises(ConcurrentRunError, match="another backfill committed first"):
        backfill_minutes(old.lake)
    assert messages_of(old.lake) == old.count


def test_a_lake_without_an_archive_is_refused(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    open_messages_for_append(lake)
    with pytest.raises(LakeError, match="nothing was archived"):
        backfill_minutes(lake)


def run_archive(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = archive.main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def test_the_command_backfills(old: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    call = ("--lake", old.lake.root, "--backfill", "topic_minutes", "--local")
    code, said = run_archive(capsys, *call)
    assert (code, f"{old.count} messages counted" in said) == (ExitCode.OK, True)
    code, said = run_archive(capsys, *call)
    assert (code, "topic_minutes: lacks nothing" in said) == (ExitCode.OK, True)


@pytest.mark.parametrize("more", [("--store", "/nowhere"), ("--follow",), ("--available-now",)])
def test_a_backfill_with_a_store_is_refused(
    more: Sequence[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, said = run_archive(capsys, "--lake", str(tmp_path), "--backfill", "topic_minutes", *more)
    assert code == ExitCode.USAGE
    assert f"{more[0]} has no effect with --backfill" in said


def test_an_archive_without_a_store_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, said = run_archive(capsys, "--lake", str(tmp_path), "--local")
    assert (code, "--store" in said) == (ExitCode.USAGE, True)
