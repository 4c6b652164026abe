"""A lake with any one damaged file is complete again after a repair and an archive run."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.lake import delta
from commitlake.connectors.lake.delta import open_delta_table, seal_log_after_commit
from commitlake.connectors.lake.delta_log import check as log_check
from commitlake.connectors.lake.delta_log.check import LogDamagedError
from commitlake.connectors.lake.delta_log.files import LogFolder, entry_name
from commitlake.connectors.lake.delta_log.seals import write_seal
from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.archive.offset_snapshots import append_snapshots
from commitlake.pipelines.archive.run import Config
from commitlake.pipelines.audit.audited_versions import read_lake_state
from commitlake.pipelines.audit.table_checks import compare_archive_runs, find_damaged_table_files
from commitlake.pipelines.audit.topic_minutes_check import compare_minutes
from commitlake.pipelines.message_keys.check import check_keys
from commitlake.pipelines.message_keys.table_update import follow_keys
from commitlake.pipelines.repair import run as repair_module
from commitlake.pipelines.repair.delta_log import ReplacedFiles
from commitlake.pipelines.repair.derived_tables import OF_RUNS
from commitlake.pipelines.repair.history_tables import KEPT_TABLES
from commitlake.pipelines.repair.plan import TABLES, plan_repair
from commitlake.pipelines.repair.replay_tables import REPLAY_TABLES
from commitlake.pipelines.repair.run import repair_lake
from commitlake.pipelines.snapshot.progress import (
    GroupTopic,
    OffsetKind,
    OffsetOwner,
    SnapshotSource,
    StoreSnapshot,
    Subscription,
)
from commitlake.pipelines.snapshot.table_append import AppendedCounts, append_snapshot
from commitlake.schemas.tables.lake_tables import SNAPSHOT_TABLES
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.repairs import archive, contents, stores_of
from tests.support.table_damages import DAMAGES, damage

RUNS = 3
COUNT = 20
ONLY_COPIES = {"store_config", "consumer_offsets", "subscriptions"}
"""Tables whose rows nothing else has."""
KILLED_AT = (1, 2, 4, 5, 6, 9, 13)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """A lake of some runs, each with other settings and a snapshot, with keys, and a checkpoint after the first."""
    growing = GrowingLake(tmp_path_factory.mktemp("whole"))
    for number in range(RUNS):
        growing.configure(number + 1)
        growing.write(shop_messages(COUNT, seed=number))
        growing.archive()
        take_snapshot(growing, number)
        follow_keys(growing.lake)
        if number == 0:
            for uri in (growing.lake.uri("messages"), growing.lake.uri("message_keys")):
                open_delta_table(uri).create_checkpoint()
                seal_log_after_commit(uri)
    return growing


def take_snapshot(growing: GrowingLake, number: int) -> AppendedCounts:
    """Store a group's offset and its subscriptions."""
    at = datetime.datetime(2026, 11, 23, 12, number, tzinfo=datetime.UTC)
    offsets = {OffsetOwner(OffsetKind.GROUP, "billing", "topic-00", 0): number}
    wanted = {GroupTopic("billing", "topic-00"): Subscription("TAG", f"tag{number}")}
    progress = StoreSnapshot(
        "broker-a", SnapshotSource.FILE, {OffsetKind.GROUP: at}, offsets, subscribed_as_of=at, subscriptions=wanted
    )
    return append_snapshot(growing.lake, progress)


@pytest.fixture
def copied(whole: GrowingLake, tmp_path: Path) -> Callable[[], GrowingLake]:
    """Makes copies to damage."""

    def copy() -> GrowingLake:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        return whole.copy_to(folder)

    return copy


def repair(lake: Lake, **options: Any) -> list[str]:
    return repair_lake(lake, plan_repair(lake, **options), "1")


def counted(lake: Lake) -> int:
    """Return the number of messages that the runs report."""
    rows = lake.table("archive_runs").to_pyarrow_table(columns=["messages"])
    return sum(rows.column("messages").to_pylist())


def files_of(growing: GrowingLake) -> list[Path]:
    """Return all files of the tables, but the seals: test_log_check damages these."""
    files = [path for path in sorted(growing.folder.joinpath("lake").rglob("*")) if path.is_file()]
    chosen = [path for path in files if "bodies" not in path.parts and "_seals" not in path.parts]
    return [path.relative_to(growing.folder) for path in chosen]


@pytest.mark.parametrize(
    "stride",
    [23, pytest.param(1, marks=pytest.mark.long("all files; some, each in another way, are damaged each time"))],
)
def test_any_damaged_file_is_restored(whole: GrowingLake, copied: Callable[[], GrowingLake], stride: int) -> None:
    expected = contents(whole.lake)
    ways = list(DAMAGES)
    for number, name in list(enumerate(files_of(whole)))[::stride]:
        growing = copied()
        how = ways[number % len(ways)]
        damage(growing.folder / name, how)
        before = sorted(path.name for path in (growing.folder / "lake").rglob("*.parquet"))
        missing = repair(growing.lake, stores=stores_of(growing))
        assert not missing or name.parts[1] in ONLY_COPIES, (name, how)
        archive(growing)
        assert take_snapshot(growing, RUNS).moved == 1, (name, how)
        assert contents(growing.lake) == expected, (name, how)
        assert check_keys(growing.lake).same, (name, how)
        assert counted(growing.lake) == RUNS * COUNT, (name, how)
        assert plan_repair(growing.lake).is_empty, (name, how)
        assert not find_damaged_table_files(growing.lake, is_deep=True), (name, how)
        assert not compare_archive_runs(growing.lake, read_lake_state(growing.lake)), (name, how)
        assert not compare_minutes(growing.lake, read_lake_state(growing.lake))[0], (name, how)
        kept = {path.name for path in (growing.folder / "lake").rglob("*.parquet")}
        assert kept >= set(before), (name, how)  # nothing was deleted


@pytest.mark.some_cases(2)
@pytest.mark.parametrize("table", sorted(ONLY_COPIES))
@pytest.mark.parametrize("how", ["deleted", "cut"])
def test_archive_and_snapshot_work_with_a_damaged_side_table(
    copied: Callable[[], GrowingLake], caplog: pytest.LogCaptureFixture, table: str, how: str
) -> None:
    growing = copied()
    damage(max((growing.folder / "lake" / table).glob("*.parquet")), how)
    growing.configure(RUNS + 1)
    growing.write(shop_messages(COUNT, seed=RUNS))
    growing.archive()
    snapshots = [
        StoreSnapshot("broker-a", SnapshotSource.FILE, {OffsetKind.GROUP: datetime.datetime.now(datetime.UTC)})
    ]
    append_snapshots(Config(str(growing.store), growing.lake), snapshots, {})
    assert f"{table} " in caplog.text or "consumer_offsets or subscriptions" in caplog.text
    assert "'commitlake maintain --repair'" in caplog.text
    assert len(contents(growing.lake)["messages"]) == (RUNS + 1) * COUNT
    (missing,) = repair(growing.lake)
    assert missing.startswith(table)
    assert plan_repair(growing.lake).is_empty
    assert not compare_archive_runs(growing.lake, read_lake_state(growing.lake))


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("how", ["deleted", "zeroed"])
def test_snapshots_before_a_damaged_file_of_snapshots_are_kept(copied: Callable[[], GrowingLake], how: str) -> None:
    growing, first = copied(), datetime.datetime(2040, 1, 1, tzinfo=datetime.UTC)
    folder = growing.folder / "lake" / "consumer_offsets"

    def snapshot(broker: str, hour: int) -> list[dict[str, Any]]:
        taken = first + datetime.timedelta(hours=hour)
        offsets = {OffsetOwner(OffsetKind.GROUP, "g", "topic-00", queue): hour + queue for queue in range(3)}
        progress = StoreSnapshot(broker, SnapshotSource.FILE, {OffsetKind.GROUP: taken}, offsets, taken, {})
        append_snapshot(growing.lake, progress)
        return offsets_of(growing.lake)

    for broker, hour in (("broker-b", 0), ("broker-a", 1), ("broker-b", 2)):
        expected = snapshot(broker, hour)
    known = set(folder.glob("*.parquet"))
    snapshot("broker-a", 3)
    (damaged,) = set(folder.glob("*.parquet")) - known
    latest = snapshot("broker-b", 4)
    snapshot("broker-a", 5)
    damage(damaged, how)
    assert "earlier snapshots are kept" in "".join(plan_repair(growing.lake).plan_lines())
    assert repair(growing.lake) == [
        "consumer_offsets: all snapshots of broker 'broker-a' from 2040-01-01 03:00:00 UTC on"
    ]
    assert offsets_of(growing.lake) == expected + [row for row in latest if row["as_of"].hour == 4]
    assert plan_repair(growing.lake).is_empty
    found = snapshot("broker-a", 6)
    assert {row["offset"] for row in found if row["broker"] == "broker-a" and row["as_of"].hour == 6} >= {6, 7, 8}


def offsets_of(lake: Lake) -> list[dict[str, Any]]:
    """Return the rows of snapshots, in the order of their times."""
    rows: list[dict[str, Any]] = lake.table("consumer_offsets").to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: (row["as_of"], row["topic"] or "", row["queue_id"] or 0))


def test_every_table_is_repaired() -> None:
    made_again = {"messages", "message_keys", "edges", *OF_RUNS, *SNAPSHOT_TABLES}
    made_again |= {"consumptions"}  # tests/unit/pipelines/consumptions damages and repairs it
    made_again |= {"lag_minutes"}  # test_lag_minutes.py damages it, and computes it again
    made_again |= {*REPLAY_TABLES}  # tests/unit/jobs/replay/test_repair.py resumes a replay after a repair
    made_again |= {"topic_schemas", "topic_misfits"}  # test_every_table.py, and tests/unit/pipelines/topics
    assert made_again | set(KEPT_TABLES) == set(TABLES)


def test_rows_deleted_by_another_program_are_found(copied: Callable[[], GrowingLake]) -> None:
    growing = copied()
    growing.lake.table("store_config").delete("name = 'topic-00'")
    (finding,) = compare_archive_runs(growing.lake, read_lake_state(growing.lake))
    assert finding.table == "store_config"


def test_a_sound_lake_is_not_changed(copied: Callable[[], GrowingLake]) -> None:
    growing = copied()
    before = {path: path.read_bytes() for path in growing.folder.rglob("*") if path.is_file()}
    plan = plan_repair(growing.lake)
    assert plan.is_empty
    assert not list(plan.plan_lines())
    assert {path: path.read_bytes() for path in growing.folder.rglob("*") if path.is_file()} == before


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("how", ["deleted", "zeroed"])
def test_without_a_store_a_damaged_data_file_becomes_a_gap(copied: Callable[[], GrowingLake], how: str) -> None:
    growing = copied()
    (first, *_) = sorted((growing.folder / "lake" / "messages").rglob("*.parquet"))[1:]
    rows = {path.name: path for path in (growing.folder / "lake" / "messages").rglob("part-*.parquet")}
    path = rows[first.name] if first.name in rows else next(iter(rows.values()))
    damage(path, how)
    assert [line for line in plan_repair(growing.lake).plan_lines() if path.name in line]
    missing, place = repair(growing.lake)
    assert f"{COUNT} rows" in missing
    assert "recorded in gaps" in place
    archive(growing)
    (gap,) = growing.lake.table("gaps").to_pyarrow_table().to_pylist()
    assert gap["broker"] == "broker-a"
    assert gap["segment"] == f"messages/{path.relative_to(growing.folder / 'lake' / 'messages')}"
    assert gap["end_offset"] > gap["start_offset"] >= 0
    assert len(contents(growing.lake)["messages"]) == (RUNS - 1) * COUNT
    assert plan_repair(growing.lake).is_empty


@pytest.mark.some_cases(2)
@pytest.mark.parametrize(
    "step",
    [
        step if number % 2 == 0 else pytest.param(step, marks=pytest.mark.long("killed before and after it each time"))
        for number, step in enumerate(KILLED_AT)
    ],
)
def test_a_repair_that_is_killed_is_finished_by_the_next(
    whole: GrowingLake, copied: Callable[[], GrowingLake], monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    expected = contents(whole.lake)
    growing = copied()
    damage(growing.folder / "lake" / "messages" / "_delta_log" / entry_name(2), "cut")
    with monkeypatch.context() as patched:
        _kill_at(patched, step)
        with pytest.raises(KeyboardInterrupt):
            repair(growing.lake)
    repair(growing.lake)
    archive(growing)
    assert contents(growing.lake) == expected
    assert counted(growing.lake) == RUNS * COUNT
    assert plan_repair(growing.lake).is_empty


def _kill_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Stop before the n-th of the steps that change something."""
    done = 0
    changing: list[tuple[object, str]] = [
        (ReplacedFiles, "copy_file"),
        (LogFolder, "write"),
        (repair_module, "commit_repair"),
        (repair_module, "delete_rows_of_runs"),
        (repair_module, "add_missing_table_files"),
        (repair_module, "follow_keys"),
        (repair_module, "follow_edges"),
    ]
    for owner, name in changing:
        real = getattr(owner, name)

        def counting(*arguments: Any, _real: Any = real, **options: Any) -> Any:
            nonlocal done
            done += 1
            if done == step:
                raise KeyboardInterrupt
            return _real(*arguments, **options)

        monkeypatch.setattr(owner, name, counting)


_PLANTED = {"size": 1, "modificationTime": 1, "dataChange": True, "partitionValues": {"store_date": "2023-11-15"}}
PLANTS = {
    "add outside": {"add": {"path": "../../outside.parquet", "stats": "{}", **_PLANTED}},
    "remove outside": {"remove": {"path": "../../outside.parquet", "deletionTimestamp": 1, "dataChange": True}},
    "huge number": {"add": {"path": "planted.parquet", "stats": f'{{"numRecords":{"9" * 5000}}}', **_PLANTED}},
}


def plant(table_uri: str, action: object) -> None:
    """Add a version to a table as another program with access to the lake can."""
    version = max(int(path.stem) for path in Path(table_uri).glob("_delta_log/*.json")) + 1
    path = Path(table_uri, "_delta_log", entry_name(version))
    path.write_text('{"commitInfo":{"operation":"WRITE"}}\n' + json.dumps(action) + "\n")


@pytest.mark.parametrize(
    ("what", "is_sealed"),
    [
        ("remove outside", True),
        ("huge number", False),
        *(
            pytest.param(*one, marks=pytest.mark.long("each plant, sealed and not"))
            for one in (("add outside", False), ("add outside", True), ("remove outside", False), ("huge number", True))
        ),
    ],
)
def test_a_planted_version_is_found_and_undone(
    whole: GrowingLake, copied: Callable[[], GrowingLake], what: str, is_sealed: bool
) -> None:
    growing = copied()
    uri = growing.lake.uri("messages")
    plant(uri, PLANTS[what])
    if is_sealed:  # by a version of CommitLake that did not check entries so thoroughly
        folder = LogFolder(uri)
        write_seal(folder, folder.read_listing(), replaces_older_seals=True)
    if is_sealed and what != "add outside":
        (finding,) = (
            each for each in find_damaged_table_files(growing.lake, is_deep=False) if each.what == "entries of the log"
        )
        assert finding.count == 1
    else:
        with pytest.raises(LogDamagedError, match="maintain --lake LAKE --repair"):
            open_delta_table(uri)
    plan = plan_repair(growing.lake)
    assert {*plan.logs} == {"messages"}
    assert not repair_lake(growing.lake, plan, "1")
    assert contents(growing.lake) == contents(whole.lake)
    assert plan_repair(growing.lake).is_empty
    growing.write(shop_messages(COUNT, seed=RUNS))
    archive(growing)
    assert len(contents(growing.lake)["messages"]) == (RUNS + 1) * COUNT
    assert check_keys(growing.lake).same


def test_a_huge_version_of_another_program_is_not_read(
    copied: Callable[[], GrowingLake], monkeypatch: pytest.MonkeyPatch
) -> None:
    growing = copied()
    plant(growing.lake.uri("messages"), {"add": {"path": "a.parquet", "stats": "{}", "padding": " " * 100_000}})
    monkeypatch.setattr(log_check, "MAX_ENTRY_BYTES", 50_000)
    monkeypatch.setattr(delta, "DeltaTable", None)  # the engine must not read it either
    with pytest.raises(LogDamagedError, match="expected at most 50,000 bytes"):
        growing.lake.table("messages")
