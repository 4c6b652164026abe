"""A lake that has lost logs, or ends of logs: queries fail instead of returning less, and a repair restores them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from commitlake.connectors.lake.delta import seal_log_after_commit
from commitlake.connectors.lake.delta_log.check import LogDamagedError
from commitlake.connectors.lake.delta_log.files import LogFolder, entry_name
from commitlake.connectors.lake.delta_log.newest_versions import read_newest_version
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError
from commitlake.jobs.maintain import command as maintain
from commitlake.jobs.query import command as query
from commitlake.jobs.restore import command as restore
from commitlake.pipelines.archive.work_planning import find_archive_work
from commitlake.pipelines.audit.audited_versions import read_lake_state
from commitlake.pipelines.audit.table_checks import compare_archive_runs
from commitlake.pipelines.message_keys.check import check_keys
from commitlake.pipelines.message_keys.table_update import follow_keys
from commitlake.pipelines.repair.archived_log_ranges import Extents
from commitlake.pipelines.repair.plan import plan_repair
from commitlake.pipelines.repair.run import repair_lake
from commitlake.schemas.errors import ExitCode
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.repairs import archive, contents
from tests.support.table_damages import damage

RUNS = 3
COUNT = 10
TABLES = ("messages", "message_keys", "archive_runs", "store_config")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """A lake of some runs, each of which writes to every table, without checkpoints."""
    growing = GrowingLake(tmp_path_factory.mktemp("whole"))
    for number in range(RUNS):
        growing.configure(number + 1)
        growing.write(shop_messages(COUNT, seed=number))
        growing.archive()
        follow_keys(growing.lake)
    return growing


@pytest.fixture
def growing(whole: GrowingLake, tmp_path: Path) -> GrowingLake:
    """A copy to damage."""
    folder = shutil.copytree(whole.folder, tmp_path / "copy")
    return GrowingLake(Path(folder), bytearray(whole.log), whole.count)


def log_of(growing: GrowingLake, table: str) -> Path:
    return growing.folder / "lake" / table / "_delta_log"


def lose_newest_entry(growing: GrowingLake, table: str) -> None:
    """Delete the newest entry of a log and its seal, as if it had never been."""
    newest = max(path.name for path in log_of(growing, table).glob("*.json"))
    (log_of(growing, table) / newest).unlink()
    (log_of(growing, table) / "_seals" / newest).unlink()


def lose_note(growing: GrowingLake, table: str) -> None:
    (growing.folder / "lake" / "_newest" / f"{table}.json").unlink()


def lose_log(growing: GrowingLake, table: str) -> None:
    shutil.rmtree(log_of(growing, table))


def lose_table(growing: GrowingLake, table: str) -> None:
    shutil.rmtree(log_of(growing, table).parent)


def ask(growing: GrowingLake, capsys: pytest.CaptureFixture[str], table: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = query.main(["--lake", growing.lake.root, "--table", table, "--count", "--quiet"])
    answer = capsys.readouterr()
    return code, answer.out, answer.err


def repair(growing: GrowingLake) -> list[str]:
    return repair_lake(growing.lake, plan_repair(growing.lake), "1")


def state(growing: GrowingLake) -> dict[str, list[str]]:
    """Return the rows of all tables, but for the rows of `archive_runs` that a repair has added."""
    found = contents(growing.lake, *TABLES)
    return {**found, "archive_runs": [row for row in found["archive_runs"] if "'messages': 0" not in row]}


OTHER_LOSS = pytest.mark.long("this table loses another part, and other tables lose this part, each time")


@pytest.mark.some_cases(2)
@pytest.mark.parametrize(
    ("table", "lose"),
    [
        pytest.param(table, lose, marks=() if table == "messages" or place % 3 == number else OTHER_LOSS)
        for place, table in enumerate(TABLES)
        for number, lose in enumerate((lose_newest_entry, lose_log, lose_table))
    ],
)
def test_a_lost_part_of_a_table_is_found_and_restored(
    whole: GrowingLake,
    growing: GrowingLake,
    capsys: pytest.CaptureFixture[str],
    table: str,
    lose: Callable[[GrowingLake, str], None],
) -> None:
    lose(growing, table)
    code, out, err = ask(growing, capsys, table)
    assert (code, out) == (ExitCode.DAMAGE, "")
    assert growing.lake.uri(table) in err
    assert "maintain --lake LAKE --repair" in err
    if table != "store_config":  # which only a run with something new opens
        with pytest.raises(LogDamagedError):
            archive(growing)
    missing = repair(growing)
    archive(growing)
    if (table, lose) in {("store_config", lose_table), ("messages", lose_table)}:
        assert any(table in line for line in missing)  # the data files are also lost, which is reported
    else:
        assert state(growing) == state(whole)
    assert state(growing)["messages"] == state(whole)["messages"]
    assert check_keys(growing.lake).same
    assert compare_archive_runs(growing.lake, read_lake_state(growing.lake)) == []
    assert plan_repair(growing.lake).is_empty


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("lose", [lose_newest_entry, lose_log, lose_table])
def test_lost_messages_are_found_by_following_tables_without_the_note(
    whole: GrowingLake, growing: GrowingLake, capsys: pytest.CaptureFixture[str], lose: Callable[..., None]
) -> None:
    lose(growing, "messages")
    lose_note(growing, "messages")
    code, out, err = ask(growing, capsys, "messages")
    assert (code, out) == (ExitCode.DAMAGE, "")
    assert "--repair" in err
    for look in (lambda: archive(growing), lambda: read_lake_state(growing.lake)):
        with pytest.raises(LogDamagedError, match="--repair"):
            look()
    assert maintain.main(["--lake", growing.lake.root, "--repair", "--quiet"]) in {ExitCode.OK, ExitCode.DAMAGE}
    archive(growing)
    assert state(growing)["messages"] == state(whole)["messages"]
    assert check_keys(growing.lake).same
    assert plan_repair(growing.lake).is_empty


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("lose", [lose_newest_entry, lose_log, lose_table])
def test_a_table_without_a_finished_run_is_found_without_the_note(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str], lose: Callable[..., None]
) -> None:
    lose(growing, "store_config")
    lose_note(growing, "store_config")
    code, out, err = ask(growing, capsys, "store_config")
    assert (code, out) == (ExitCode.DAMAGE, "")
    assert "the rows of archive run 3 are missing" in err
    (finding,) = compare_archive_runs(growing.lake, read_lake_state(growing.lake))
    assert finding.table == "store_config"
    assert any(line.startswith("store_config: ") for line in plan_repair(growing.lake).plan_lines())


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("how", ["deleted", "cut", "zeroed"])
def test_entry_zero_is_restored(whole: GrowingLake, growing: GrowingLake, how: str) -> None:
    for table in TABLES:
        damage(log_of(growing, table) / entry_name(0), how)
    assert not repair(growing)
    archive(growing)
    assert state(growing) == state(whole)
    assert plan_repair(growing.lake).is_empty
    if how == "cut":  # what knows the table by its id goes on
        ids = {str(lake.table("messages").metadata().id) for lake in (growing.lake, whole.lake)}
        assert len(ids) == 1


def test_entry_zero_and_a_later_one_are_restored_together(whole: GrowingLake, growing: GrowingLake) -> None:
    for version in (0, 3):
        damage(log_of(growing, "messages") / entry_name(version), "cut")
    assert not repair(growing)
    archive(growing)
    assert state(growing) == state(whole)


def test_the_table_messages_is_rebuilt_from_its_own_files(whole: GrowingLake, growing: GrowingLake) -> None:
    maintain.main(["--lake", growing.lake.root, "--quiet"])  # the merged files stay beside the new one
    killed = GrowingLake(growing.folder, bytearray(growing.log), growing.count)
    killed.write(shop_messages(COUNT, seed=RUNS))
    commit = killed.archive(finish=False)
    (log_of(growing, "messages") / entry_name(growing.lake.table("messages").version())).unlink()
    lose_log(growing, "messages")
    plan = plan_repair(growing.lake)
    assert plan.adoption is not None
    assert [commit.run_id in path for path in plan.adoption.uncommitted] == [True]
    assert (len(plan.adoption.files), plan.adoption.row_count) == (1, RUNS * COUNT)
    assert not repair_lake(growing.lake, plan, "1")
    assert state(growing)["messages"] == state(whole)["messages"]
    archive(growing)
    assert len(state(growing)["messages"]) == (RUNS + 1) * COUNT
    assert check_keys(growing.lake).same


def test_a_data_file_lost_with_the_log_is_reported(growing: GrowingLake) -> None:
    first = min((growing.folder / "lake" / "messages").rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    damage(first, "cut")
    lose_log(growing, "messages")
    missing = repair(growing)
    assert any(first.name in line for line in missing)
    assert any(f"expected {RUNS * COUNT} messages" in line for line in missing)
    assert len(state(growing)["messages"]) == (RUNS - 1) * COUNT


def test_a_damaged_data_file_is_named_by_restore(
    growing: GrowingLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = min((growing.folder / "lake" / "messages").rglob("*.parquet"))
    damage(path, "zeroed")
    code = restore.main(["--lake", growing.lake.root, "--out", str(tmp_path / "restored"), "--quiet"])
    err = capsys.readouterr().err
    assert code == ExitCode.DAMAGE
    assert path.name in err
    assert "--repair" in err


def test_a_repair_killed_while_rebuilding_messages_is_finished(
    whole: GrowingLake, growing: GrowingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LogFolder.write
    left: list[bool] = []

    def write(folder: LogFolder, name: str, data: bytes, place: str = "_delta_log") -> None:
        if not left.pop():
            raise KeyboardInterrupt
        real(folder, name, data, place)

    for killed_at in range(2):
        lose_log(growing, "messages")
        left[:] = [False, *[True] * killed_at]
        with monkeypatch.context() as patched:
            patched.setattr(LogFolder, "write", write)
            with pytest.raises(KeyboardInterrupt):
                repair(growing)
        assert not repair(growing)
        assert state(growing)["messages"] == state(whole)["messages"]
        assert check_keys(growing.lake).same


def test_a_damaged_note_is_ignored_and_rewritten_with_the_next_seal(growing: GrowingLake) -> None:
    path = growing.folder / "lake" / "_newest" / "messages.json"
    written = path.read_bytes()
    version = growing.lake.table("messages").version()
    for data in (b"", written[:-10], bytes(len(written)), written.replace(b"messages", b"massages")):
        path.write_bytes(data)
        assert read_newest_version(growing.lake.uri("messages")) == -1
        assert growing.lake.table("messages").version() == version
    seal_log_after_commit(growing.lake.uri("messages"))
    assert json.loads(path.read_bytes().splitlines()[0]) == {"table": "messages", "version": version}


def test_a_folder_without_a_lake_is_not_repaired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_bytes(b"x")
    assert maintain.main(["--lake", str(tmp_path), "--repair"]) == ExitCode.USAGE
    assert "is not a lake" in capsys.readouterr().err
    with pytest.raises(LakeError, match="is not a lake"):
        find_archive_work(str(tmp_path), None, Lake(str(tmp_path)))


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ([(0, 10), (10, 20)], [(20, 30)], 0),
        ([(0, 10), (20, 30)], [(10, 20)], 0),
        ([(0, 10), (20, 30)], [(0, 10)], 10),
        ([(0, 30)], [(5, 8), (25, 35)], 8),
    ],
)
def test_extents_share_the_bytes_that_are_in_both(
    first: list[tuple[int, int]], second: list[tuple[int, int]], shared: int
) -> None:
    one, other = (Extents.from_ranges(*np.array(ranges[::-1], np.int64).T) for ranges in (first, second))
    assert one.overlap_bytes(other) == other.overlap_bytes(one) == shared
    assert one.join_with(other).total_bytes == one.total_bytes + other.total_bytes - shared
