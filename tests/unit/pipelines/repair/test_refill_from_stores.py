"""Lost data files of `messages` in a lake whose earlier versions are gone: read from the store again, or named."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.connectors.runtime.local_runner import HERE
from commitlake.jobs.archive import command as archive_command
from commitlake.jobs.audit import command as audit
from commitlake.jobs.dlq import command as dlq
from commitlake.jobs.erase import command as erase
from commitlake.jobs.lag import command as lag
from commitlake.jobs.lineage import command as lineage
from commitlake.jobs.maintain import command as maintain
from commitlake.jobs.offsets import command as offsets
from commitlake.jobs.query import command as query
from commitlake.jobs.replay import command as replay
from commitlake.jobs.restore import command as restore
from commitlake.jobs.tps import command as tps
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.pipelines.snapshot.progress import OffsetKind, OffsetOwner, SnapshotSource, StoreSnapshot
from commitlake.pipelines.snapshot.table_append import append_snapshot
from commitlake.schemas.errors import ExitCode
from tests.support.audited_lakes import judge_nothing
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.repairs import archive_run, contents, forget_earlier_versions
from tests.support.table_damages import damage

TABLES = ("messages", "message_keys", "topic_minutes", "archive_runs")
DAYS = 2
ERASED = "order-3"
LATER = datetime.datetime(2023, 11, 18, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """A lake of three runs over two days, with an erased order, merged, and without any earlier version."""
    growing = GrowingLake(tmp_path_factory.mktemp("whole"))
    messages = shop_messages(60, days=DAYS)
    for first in range(0, len(messages), 20):
        growing.write(messages[first : first + 20])
        archive_run(growing)
    snapshot = StoreSnapshot(
        "broker-a",
        SnapshotSource.FILE,
        {OffsetKind.GROUP: LATER},
        {OffsetOwner(OffsetKind.GROUP, "g", "topic-00", queue_id): 1 for queue_id in range(4)},
    )
    append_snapshot(growing.lake, snapshot)
    asked = ["--key", ERASED, "--reason", "asked", "--yes", "--quiet"]
    assert erase.main(["--lake", growing.lake.root, *asked]) == ExitCode.OK
    forget_earlier_versions(growing.lake)
    return growing


@pytest.fixture
def growing(whole: GrowingLake, tmp_path: Path) -> GrowingLake:
    return whole.copy_to(tmp_path)


def file_of(growing: GrowingLake, number: int = 0) -> Path:
    """Return a data file of `messages`; each has the messages of a day."""
    return Path(sorted(growing.lake.table("messages").file_uris())[number])


def run_audit(growing: GrowingLake) -> int:
    return audit.main(["--lake", growing.lake.root, "--local", "--deep", "--store", str(growing.store)])


def repair(growing: GrowingLake, *more: str) -> int:
    return maintain.main(["--lake", growing.lake.root, "--repair", *more])


def test_files_of_earlier_versions_are_gone(whole: GrowingLake) -> None:
    there = {path for path in Path(whole.lake.uri("messages")).rglob("*.parquet") if "_delta_log" not in path.parts}
    assert there == set(map(Path, whole.lake.table("messages").file_uris()))
    assert len(there) == DAYS
    assert run_audit(whole) == ExitCode.OK


LONG = pytest.mark.long("each reads a lake's data files again")


@pytest.mark.parametrize("how", ["deleted", pytest.param("flipped", marks=LONG)])
def test_a_lost_file_is_read_from_the_store_again(
    whole: GrowingLake, growing: GrowingLake, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = contents(whole.lake, *TABLES)
    damage(file_of(growing), how)
    assert repair(growing, "--store", str(growing.store)) == ExitCode.OK
    assert contents(growing.lake, *TABLES) == expected
    assert f"'{ERASED}'" not in repr(contents(growing.lake, "messages", "message_keys"))
    assert repair(growing) == ExitCode.OK
    capsys.readouterr()
    assert run_audit(growing) == ExitCode.OK, capsys.readouterr().out


@LONG
def test_all_files_lost(whole: GrowingLake, growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(DAYS):
        damage(file_of(growing, number), "deleted")
    assert repair(growing, "--store", str(growing.store)) == ExitCode.OK
    assert contents(growing.lake, *TABLES) == contents(whole.lake, *TABLES)
    capsys.readouterr()
    assert run_audit(growing) == ExitCode.OK, capsys.readouterr().out


@pytest.mark.long("asks all jobs in turn; each is asked in its own tests each time")
def test_without_a_store_each_answer_names_what_is_lost_until_it_is_there_again(
    whole: GrowingLake, growing: GrowingLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = ["--lake", growing.lake.root]
    damage(file_of(growing), "deleted")
    assert repair(growing) == ExitCode.DAMAGE
    (gap,) = growing.lake.table("gaps").to_pyarrow_table().to_pylist()
    assert gap["broker"] == "broker-a"
    commands = [
        (query.main, [*lake, "--key", "order-1", "--format", "json"]),
        (query.main, [*lake, "--sql", "SELECT count(*) FROM messages", "--format", "json"]),
        (lineage.main, [*lake, "--key", "order-1", "--format", "json"]),
        (tps.main, [*lake, "--format", "json"]),
        (lag.main, [*lake, "--format", "json"]),
        (audit.main, [*lake, "--local", "--format", "json"]),
        (dlq.main, [*lake, "--format", "json"]),
        (offsets.main, [*lake, "--group", "g", "--at", "2023-11-18T01:00", "--format", "json"]),
        (offsets.main, [*lake, "--group", "g", "--consume-from", "2023-11-15", "--format", "json"]),
        (replay.main, [*lake, "--topic", "topic-00", "--dry-run", "--format", "json"]),
        (erase.main, [*lake, "--key", "order-30", "--reason", "asked", "--dry-run"]),
        (archive_command.main, [*lake, "--store", str(growing.store), "--local", "--no-quality"]),
        (maintain.main, [*lake, "--repair"]),
    ]
    for main, arguments in commands:
        capsys.readouterr()
        assert main(arguments) == ExitCode.DAMAGE, arguments
        printed = capsys.readouterr()
        sentence = f"between physical offsets {gap['start_offset']} and {gap['end_offset']}"
        assert sentence in (printed.out if "json" in arguments else printed.err), arguments
        if "json" in arguments:
            json.loads(printed.out)
    for number, (options, code) in enumerate([
        ([], ExitCode.DAMAGE),
        (["--to-offset", "1"], ExitCode.USAGE),  # nothing is left of it
        (["--from-offset", str(gap["end_offset"])], ExitCode.OK),
    ]):  # fmt: skip
        capsys.readouterr()
        out = str(tmp_path / f"restored-{number}")
        assert restore.main([*lake, "--out", out, "--on-missing", "skip", *options]) == code
        assert (sentence in capsys.readouterr().err) == (code != ExitCode.OK)
    other_day = [*lake, "--from", "2023-11-16T12:00", "--to", "2023-11-17"]
    assert query.main([*other_day, "--count"]) == ExitCode.OK
    assert replay.main([*other_day, "--topic", "topic-00", "--dry-run"]) == ExitCode.OK
    for main in (tps.main, dlq.main):
        assert main(other_day) == ExitCode.OK
    assert repair(growing, "--store", str(growing.store)) == ExitCode.OK
    for main, arguments in commands:
        assert main(arguments) == ExitCode.OK, arguments
    assert contents(growing.lake, *TABLES) == contents(whole.lake, *TABLES)
    assert contents(growing.lake, "gaps") == {"gaps": []}
    assert run_audit(growing) == ExitCode.OK


@LONG
def test_a_store_that_was_restored_from_another_lake_will_do(
    whole: GrowingLake, growing: GrowingLake, tmp_path: Path
) -> None:
    damage(file_of(growing, 1), "cut")
    target = tmp_path / "restored" / "broker-a"
    restored = restore.main(["--lake", whole.lake.root, "--out", str(target), "--on-missing", "skip"])
    assert restored == ExitCode.DAMAGE  # because of the erased message
    assert repair(growing, "--store", str(target)) == ExitCode.OK
    assert contents(growing.lake, *TABLES) == contents(whole.lake, *TABLES)


def test_each_broker_of_a_lost_file_has_its_own_gap(tmp_path: Path) -> None:
    first, second = GrowingLake(tmp_path / "1"), GrowingLake(tmp_path / "2")
    first.write(shop_messages(20))
    second.write(shop_messages(30, seed=1))
    other = second.store.rename(tmp_path / "broker-b")
    run_archive(HERE, Config(f"{first.store},{other}", first.lake, judge=judge_nothing))
    expected = contents(first.lake, *TABLES)
    forget_earlier_versions(first.lake)
    damage(file_of(first), "deleted")
    assert repair(first) == ExitCode.DAMAGE
    gaps = first.lake.table("gaps").to_pyarrow_table().select(["broker", "start_offset", "end_offset"]).to_pylist()
    assert sorted(tuple(gap.values()) for gap in gaps) == [
        ("broker-a", 0, len(first.log)),
        ("broker-b", 0, len(second.log)),
    ]
    assert repair(first, "--store", str(other)) == ExitCode.DAMAGE
    (gap,) = first.lake.table("gaps").to_pyarrow_table().to_pylist()
    assert gap["broker"] == "broker-a"
    lake = ["--lake", first.lake.root, "--count"]
    assert query.main([*lake, "--broker", "broker-b"]) == ExitCode.OK
    assert query.main([*lake, "--broker", "broker-a"]) == ExitCode.DAMAGE
    assert repair(first, "--store", str(first.store)) == ExitCode.OK
    assert contents(first.lake, *TABLES) == expected


@LONG
def test_a_lost_message_that_was_erased_meanwhile_comes_back_erased(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    messages = shop_messages(40, days=DAYS)
    messages[30] = replace(messages[5], born_timestamp=messages[30].born_timestamp)  # the same order, a day later
    growing.write(messages)
    archive_run(growing)
    forget_earlier_versions(growing.lake)
    damage(file_of(growing), "deleted")
    assert repair(growing) == ExitCode.DAMAGE
    asked = ["--key", "order-5", "--reason", "asked", "--yes", "--quiet"]
    assert erase.main(["--lake", growing.lake.root, *asked]) == ExitCode.DAMAGE  # it may have been lost
    assert repair(growing, "--store", str(growing.store)) == ExitCode.OK
    rows = contents(growing.lake, "messages", "message_keys", "erasures")
    assert len(rows["messages"]) == len(messages)
    assert "'order-5'" not in repr(rows)
    assert sum("'event': 'copy'" in row for row in rows["erasures"]) == 1
