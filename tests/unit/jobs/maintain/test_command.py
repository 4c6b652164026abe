"""Tests of maintain: changes of a lake, printed messages, and concurrent jobs."""

from __future__ import annotations

import dataclasses
import datetime
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from deltalake import DeltaTable

from commitlake.connectors.lake.archive_commits import read_last_commit
from commitlake.connectors.lake.committer import commit_messages
from commitlake.connectors.lake.packs.reader import read_body
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.runtime.local_runner import ThreadRunner
from commitlake.jobs.maintain import command as maintain
from commitlake.jobs.maintain import steps
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.pipelines.maintenance.expiry import read_expiries
from commitlake.pipelines.message_keys.lookup import find_message_places
from commitlake.pipelines.message_keys.table_update import follow_keys
from commitlake.pipelines.replay import ledger
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.tables.lake_tables import LAKE_TABLES
from commitlake.schemas.tables.replays import ReplayEvent
from tests.support.copied_replays import COPIES, add_copied_replay, add_copies
from tests.support.lakes import FIRST_DATE, GrowingLake, data_files, prepared_lake, rows_of, shop_messages
from tests.support.opened_tables import opened
from tests.support.packs import folder_store

__all__ = ["opened"]  # a fixture

DAY_SECONDS = 86_400
STATISTICS = '{"numRecords": 10}'


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A lake of four runs, each of two days."""
    return prepared_lake(tmp_path, _archive_four_times)


def _archive_four_times(growing: GrowingLake) -> None:
    for seed in range(4):
        growing.write(shop_messages(50, days=2, seed=seed))
        growing.archive()


def run(capsys: pytest.CaptureFixture[str], growing: GrowingLake, *more: str) -> tuple[int, str]:
    """Return exit code and standard error of a run."""
    code = maintain.main(["--lake", growing.lake.root, *more])
    captured = capsys.readouterr()
    assert captured.out == ""
    return code, captured.err


@pytest.mark.long("the opens of an archive run are counted each time")
def test_maintain_opens_tables_a_limited_number_of_times(tmp_path: Path, opened: list[str]) -> None:
    growing = GrowingLake(tmp_path)
    for seed in range(2):
        growing.write(shop_messages(20, seed=seed))
        run_archive(ThreadRunner(1), Config(str(growing.store), growing.lake))
    counts = []
    for _ in range(2):  # the second run has nothing to merge
        opened.clear()
        assert maintain.main(["--lake", growing.lake.root, "--quiet"]) == ExitCode.OK
        counts.append((opened.count("messages"), opened.count("profiles"), len(opened)))
    assert counts == [(11, 4, 36), (7, 2, 19)]


def state(growing: GrowingLake) -> dict[str, float]:
    """Return every file of the lake with the time it was written."""
    root = Path(growing.lake.root)
    return {str(path.relative_to(root)): path.stat().st_mtime for path in root.rglob("*") if path.is_file()}


def test_tables_have_fewer_files_and_the_same_rows(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    tables = [table for table in LAKE_TABLES if Path(growing.lake.uri(table)).exists()]
    before = {table: rows_of(growing.lake.uri(table)) for table in tables}
    assert {"messages", "archive_runs"} <= set(tables)
    code, printed = run(capsys, growing)
    assert code == ExitCode.OK
    after = {table: rows_of(growing.lake.uri(table)) for table in tables}
    for row in (*before["topic_minutes"], *after["topic_minutes"]):
        row["run_id"] = ""  # a joined row is of no run
    assert after == before
    assert len(data_files(growing.lake.uri("messages"))) == 2
    assert len(data_files(growing.lake.uri("archive_runs"))) == 1
    assert "messages: 8 files, " in printed
    assert " -> 2 files, " in printed
    assert "  merged: 8 files into 2 (" in printed
    assert "bodies: nothing to delete" in printed
    assert "done in" in printed


def test_a_second_run_changes_nothing(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, growing)
    before = state(growing)
    code, printed = run(capsys, growing)
    assert code == ExitCode.OK
    assert "merged" not in printed
    assert state(growing) == before


def test_a_dry_run_prints_its_plan_and_changes_nothing(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    before = state(growing)
    code, printed = run(capsys, growing, "--dry-run", "--keep", "messages=30d", "--keep", "bodies=30d")
    assert code == ExitCode.OK
    assert "  expired: 200 rows in 8 files (" in printed
    assert "  to merge: 8 files into 2 (" in printed
    assert "bodies: to delete\n  expired: 8 packs (" in printed
    assert "nothing was changed" in printed
    assert state(growing) == before


def test_bodies_expire_before_their_rows(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = run(capsys, growing, "--keep", "bodies=30d", "--keep", "archive_runs=90d")
    assert code == ExitCode.OK
    assert "  expired: 8 packs (" in printed
    assert not list(Path(growing.lake.bodies_root).rglob("*.zst"))
    assert len(rows_of(growing.lake.uri("messages"))) == 200
    assert len(rows_of(growing.lake.uri("archive_runs"))) == 4


def test_copies_of_replays_expire_by_replay(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    add_copied_replay(growing.lake, "ended", ReplayEvent.STARTED, ReplayEvent.FINISHED)
    add_copied_replay(growing.lake, "left", ReplayEvent.STARTED, ReplayEvent.STOPPED)
    code, printed = run(capsys, growing)
    assert (code, len(rows_of(growing.lake.uri("replay_rows")))) == (ExitCode.OK, 2 * COPIES)  # they are young
    code, printed = run(capsys, growing, "--keep", "replay_rows=0s", "--dry-run")
    assert f"  expired: {2 * COPIES} rows in 1 file (" in printed
    assert len(rows_of(growing.lake.uri("replay_rows"))) == 2 * COPIES
    code, printed = run(capsys, growing, "--keep", "replay_rows=0s")
    assert (code, rows_of(growing.lake.uri("replay_rows"))) == (ExitCode.OK, [])
    assert f"  expired: {2 * COPIES} rows in 1 file (" in printed


def test_copies_of_an_unfinished_or_unknown_replay_are_kept(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "DEFAULT_KEEP", datetime.timedelta(0))
    add_copied_replay(growing.lake, "ended", ReplayEvent.STARTED, ReplayEvent.FINISHED)
    for name in ("left", "left2"):
        add_copied_replay(growing.lake, name, ReplayEvent.STARTED, ReplayEvent.STOPPED)
    with monkeypatch.context() as patched:
        patched.setattr(ledger, "plan_to_json", lambda _: "{")
        add_copied_replay(growing.lake, "damaged", ReplayEvent.STARTED, ReplayEvent.FINISHED)
    add_copies(growing.lake, "begun")
    code, printed = run(capsys, growing)
    kept = {row["replay_id"] for row in rows_of(growing.lake.uri("replay_rows"))}
    assert kept == {"left", "left2", "damaged", "begun"}
    assert code == ExitCode.OK
    assert (
        "rows of the replay left and 1 more are kept, because what was stopped can be resumed: --keep replay" in printed
    )
    assert "rows of the replay damaged are kept, because the table 'replays' does not say how it ended" in printed


def test_bodies_do_not_outlive_their_rows(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, growing, "--keep", "messages=30d")
    assert rows_of(growing.lake.uri("messages")) == []
    assert not list(Path(growing.lake.bodies_root).rglob("*.zst"))
    growing.write(shop_messages(5, seed=8))
    assert growing.archive().sequence == 5
    assert len(rows_of(growing.lake.uri("messages"))) == 5


def test_bodies_can_be_read_afterwards(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, growing)
    from commitlake.connectors.lake.packs.frames import BodyRef

    store = folder_store(growing.lake.bodies_root)
    for row in rows_of(growing.lake.uri("messages"))[:20]:
        assert len(read_body(store, BodyRef(**row["body_ref"]), row["body_crc"])) == row["body_size"]


def test_message_keys_are_found_and_followed_after_a_merge(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    follow_keys(growing.lake)
    growing.write(shop_messages(30, seed=5))
    growing.archive()
    follow_keys(growing.lake)
    before, rows = find_message_places(growing.lake, ["order-7"]).num_rows, rows_of(growing.lake.uri("message_keys"))
    code, printed = run(capsys, growing)
    assert code == ExitCode.OK
    assert "message_keys: 2 files" in printed
    assert rows_of(growing.lake.uri("message_keys")) == rows
    assert find_message_places(growing.lake, ["order-7"]).num_rows == before == 5
    growing.write(shop_messages(30, seed=6))
    growing.archive()
    assert follow_keys(growing.lake).rows == 30
    assert find_message_places(growing.lake, ["order-7"]).num_rows == 6


def append_damaged_messages(growing: GrowingLake, seed: int) -> None:
    """Append messages to the store, some of them unreadable."""
    end = len(growing.log)
    growing.write(shop_messages(10, seed=seed))
    growing.log[end + 300 : end + 340] = b"\xff" * 40
    growing.write([])


def test_files_of_an_unfinished_run_are_not_vacuumed(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    append_damaged_messages(growing, seed=5)
    growing.archive()
    append_damaged_messages(growing, seed=6)
    commit = growing.archive(finish=False)
    (name,) = (file.path for file in commit.files["quarantine"])
    old = time.time() - 10 * DAY_SECONDS
    os.utime(Path(growing.lake.uri("quarantine")) / name, (old, old))
    code, printed = run(capsys, growing)
    assert code == ExitCode.OK
    assert "not vacuumed: an unfinished archive run has files for it" in printed
    growing.write(shop_messages(10, seed=7))
    growing.archive()
    assert commit.run_id in {row["run_id"] for row in rows_of(growing.lake.uri("quarantine"))}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--keep", "mesages=30d"], "there is no table 'mesages'. Did you mean 'messages'?"),
        (["--broker", "a"], "--broker has no effect without --store"),
        (["--store", "a"], "--store has no effect without --repair"),
        (["--bodies", "gs://bucket/bodies", "--keep", "messages=30d"], "bodies in gs://bucket/bodies: expected"),
    ],
)
def test_a_wrong_option_is_refused(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str], more: list[str], message: str
) -> None:
    before = state(growing)
    code, printed = run(capsys, growing, *more)
    assert code == ExitCode.USAGE
    assert message in printed
    assert state(growing) == before


def test_only_a_real_run_with_spark_opens_a_session(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Mock(side_effect=ZeroDivisionError)
    monkeypatch.setattr("commitlake.connectors.spark.session.get_session", ask)
    for options in (["--local"], ["--spark", "--dry-run"], []):
        assert run(capsys, growing, *options)[0] == 0
    ask.assert_not_called()
    assert run(capsys, growing, "--spark")[0] == ExitCode.FAILED
    ask.assert_called_once_with("maintain", None)


@pytest.mark.parametrize("option", [["--keep", "messages=999999w"], ["--vacuum-after", "999999w"]])
def test_a_time_that_is_too_long_is_refused(capsys: pytest.CaptureFixture[str], option: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        maintain.main(["--lake", "lake", *option])
    assert "'999999w' is too long" in capsys.readouterr().err


def test_expiries_are_announced_in_the_table(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, growing, "--keep", "bodies=30d", "--keep", "messages=36500d")
    (announced,) = read_expiries(DeltaTable(growing.lake.uri("messages"))).items()
    today = datetime.datetime.now(datetime.UTC).date()
    assert announced == ("bodies", today - datetime.timedelta(days=30))
    run(capsys, growing, "--keep", "bodies=20d", "--keep", "messages=60d")
    all_announced = read_expiries(DeltaTable(growing.lake.uri("messages")))
    # No pack was left to delete.
    assert all_announced == {"bodies": announced[1], "messages": today - datetime.timedelta(days=60)}


def test_packs_of_another_lake_in_the_same_place_are_kept(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    pack = min(Path(growing.lake.bodies_root).rglob("*.zst"))
    other = Path(str(pack).replace("broker=broker-a", "broker=broker-b"))
    other.parent.mkdir(parents=True)
    shutil.copy(pack, other)
    run(capsys, growing, "--keep", "bodies=30d")
    assert list(Path(growing.lake.bodies_root).rglob("*.zst")) == [other]


def test_a_folder_that_is_not_a_lake_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert maintain.main(["--lake", str(tmp_path)]) == ExitCode.USAGE
    assert "is not a lake" in capsys.readouterr().err


def test_a_keep_option_without_a_time_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        maintain.main(["--lake", "lake", "--keep", "messages"])
    assert "a table and a time" in capsys.readouterr().err


# --- small commits, other processes ---


@pytest.mark.parametrize("commits", [20, pytest.param(200, marks=pytest.mark.long("more commits of the same kind"))])
def test_many_small_commits_become_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], commits: int) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(10))
    last = growing.archive()
    (first,) = Path(growing.lake.uri("messages")).rglob("*.parquet")
    for number in range(1, commits):  # as a stream does, but without reading a log
        name = f"part-{number}.parquet"
        shutil.copy(first, first.with_name(name))
        file = DataFile(f"{first.parent.name}/{name}", FIRST_DATE, first.stat().st_size, 10, STATISTICS)
        last = dataclasses.replace(last, sequence=last.sequence + 1)
        commit_messages(DeltaTable(growing.lake.uri("messages")), [file], last)
    before = rows_of(growing.lake.uri("messages"))
    assert (len(before), len(data_files(growing.lake.uri("messages")))) == (10 * commits, commits)
    assert run(capsys, growing)[0] == ExitCode.OK
    assert rows_of(growing.lake.uri("messages")) == before
    assert len(data_files(growing.lake.uri("messages"))) == 1
    assert read_last_commit(growing.lake) == last
    assert (Path(growing.lake.uri("messages")) / "_delta_log" / "_last_checkpoint").exists()


def _maintain(lake: str, codes: multiprocessing.Queue[int], count: int) -> None:
    for _ in range(count):
        codes.put(maintain.main(["--lake", lake, "--quiet"]))


@pytest.mark.long("concurrent merges and archive runs are tested each time")
def test_two_maintain_jobs_during_an_archive_lose_nothing(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(20))
    growing.archive()
    context = multiprocessing.get_context("spawn")
    codes: multiprocessing.Queue[int] = context.Queue()
    others = [context.Process(target=_maintain, args=(growing.lake.root, codes, 3)) for _ in range(2)]
    for other in others:
        other.start()
    runs = 1
    while any(other.is_alive() for other in others):
        growing.write(shop_messages(20, seed=runs))
        growing.archive()
        runs += 1
    found = [codes.get(timeout=10) for _ in range(6)]
    assert set(found) <= {ExitCode.OK, ExitCode.REFUSED}
    assert ExitCode.OK in found
    offsets = [row["physical_offset"] for row in rows_of(growing.lake.uri("messages"))]
    assert len(offsets) == len(set(offsets)) == growing.count
    assert sorted(row["sequence"] for row in rows_of(growing.lake.uri("archive_runs"))) == list(range(1, runs + 1))
    last = read_last_commit(growing.lake)
    assert last is not None
    assert last.sequence == runs
    notes = [entry.get("userMetadata", "") for entry in DeltaTable(growing.lake.uri("messages")).history()]
    assert any("commitlake.maintain" in note for note in notes)


KILLED = """
import os, signal, sys
from commitlake.pipelines.maintenance import compaction
step, lake = sys.argv[1:]
whole = getattr(compaction, step)
def and_die(*arguments, **named):
    result = whole(*arguments, **named) if step == "_merge_files" else None
    os.kill(os.getpid(), signal.SIGKILL)
setattr(compaction, step, and_die)
from commitlake.connectors.runtime.local_runner import ThreadRunner
from commitlake.jobs.maintain import command as maintain
maintain.main(["--lake", lake, "--quiet"])
"""


@pytest.mark.some_cases(1)
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(
            "_write_merged_rows", marks=pytest.mark.long("the later steps leave more behind, and are killed each time")
        ),
        "_merge_files",
        "replace_table_files",
    ],
)
def test_a_run_killed_at_any_step_loses_nothing_and_the_next_cleans_up(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str], step: str
) -> None:
    before = rows_of(growing.lake.uri("messages"))
    killed = subprocess.run([sys.executable, "-c", KILLED, step, growing.lake.root], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert rows_of(growing.lake.uri("messages")) == before
    left = set(Path(growing.lake.uri("messages")).rglob("*.parquet*")) | set(
        Path(growing.lake.uri("messages")).rglob(".*.tmp")
    )
    for path in left:
        os.utime(path, (time.time() - 8 * DAY_SECONDS,) * 2)
    code, _ = run(capsys, growing)
    assert code == ExitCode.OK
    assert rows_of(growing.lake.uri("messages")) == before
    assert not list(Path(growing.lake.uri("messages")).rglob(".*.tmp"))


def test_vacuum_is_refused_if_bodies_are_in_the_folder_of_a_table(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Path(growing.lake.uri("messages")) / "packs"
    place.mkdir()
    code, printed = run(capsys, growing, "--vacuum-after", "1d", "--bodies", str(place))
    assert code == ExitCode.USAGE
    assert f"the bodies of this lake are in {growing.lake.uri('messages')}, where maintain would delete them" in printed
    assert "--bodies-moved" in printed
    assert place.is_dir()
