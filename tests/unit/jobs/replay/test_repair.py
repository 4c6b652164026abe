"""After a repair of the tables of replays, a replay continues without sending a message twice, or is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from commitlake.connectors.lake.committer import append_rows
from commitlake.connectors.lake.delta import open_delta_table
from commitlake.connectors.lake.delta_log.files import LogFolder
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.rocketmq import Puller
from commitlake.jobs.maintain.command import main as maintain
from commitlake.pipelines.repair import replay_tables
from commitlake.pipelines.repair.delta_log import ReplacedFiles
from commitlake.pipelines.repair.plan import plan_repair
from commitlake.pipelines.repair.run import repair_lake
from commitlake.pipelines.replay import ledger as ledger_module
from commitlake.pipelines.replay.ledger import Ledger, read_replay_states
from commitlake.pipelines.replay.sending import share_sender
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.tables.replays import ReplayEvent
from tests.support.replays import ReplayWorld
from tests.support.table_damages import damage

TOPIC = "topic-01"
LOSSES = ("last entry deleted", "last entry cut", "last entry empty", "log deleted", "file deleted", "file cut")
OTHER_TABLE = pytest.mark.long("one of the two tables has this damage each time")
CASES = [
    pytest.param(table, how, marks=() if (place + number) % 2 == 0 else OTHER_TABLE)
    for place, table in enumerate(("replays", "replay_messages"))
    for number, how in enumerate(LOSSES)
]


def damage_table(lake: Lake, table: str, how: str) -> None:
    """Damage a table in one of the ways of `LOSSES`."""
    folder = Path(lake.root) / table
    part, _, way = how.rpartition(" ")
    if part == "last entry":
        damage(max(folder.glob("_delta_log/*.json")), way)
    elif part == "log":
        shutil.rmtree(folder / "_delta_log")
    else:
        named = sorted(open_delta_table(str(folder)).file_uris())
        damage(Path(named[0]), way)


def repair(lake: Lake) -> int:
    return maintain(["--lake", lake.root, "--repair", "--quiet"])


@pytest.fixture
def stopped(world: ReplayWorld, monkeypatch: pytest.MonkeyPatch) -> ReplayWorld:
    """A world with a replay of 80 messages that has sent and recorded some waves, and was killed then."""
    added = 0
    add = Ledger.add_outcomes

    def add_three_times(ledger: Ledger, rows: pa.Table) -> None:
        nonlocal added
        added += 1
        if added > 3:
            raise RuntimeError("killed")
        add(ledger, rows)

    with monkeypatch.context() as patched:
        patched.setattr(share_sender, "_WAVE_SECONDS", 0.01)
        patched.setattr(Ledger, "add_outcomes", add_three_times)
        assert world.replay("--topic", TOPIC, "--rate", "1000") == ExitCode.FAILED
    monkeypatch.setattr(ledger_module, "_process_start_time", lambda _: None)  # the process that began to send is gone
    assert 0 < len(world.ledger()) < sum(map(len, world.origins().values())) < 80
    return world


@pytest.mark.some_cases(2)
@pytest.mark.parametrize(("table", "how"), CASES)
def test_a_replay_with_lost_rows_sends_no_message_twice_after_a_repair(
    stopped: ReplayWorld, table: str, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = stopped.replay_id()
    sent = sum(map(len, stopped.origins().values()))
    damage_table(stopped.lake, table, how)
    if how.startswith(("last", "log")):
        assert stopped.act("list") == ExitCode.DAMAGE
    assert repair(stopped.lake) == ExitCode.DAMAGE  # rows are lost
    assert repair(stopped.lake) == ExitCode.OK
    assert maintain(["--lake", stopped.lake.root, "--quiet"]) == ExitCode.OK
    assert stopped.act("list") == ExitCode.OK
    capsys.readouterr()
    states = read_replay_states(stopped.lake)
    resumed = stopped.act("resume", name, "--rate", "100000", "--quiet")
    error = capsys.readouterr().err
    if name in states and states[name].event is not ReplayEvent.PLANNED:
        assert states[name].has_lost_rows
        assert resumed == ExitCode.OK, error
        assert sorted(offset for queue in stopped.origins().values() for offset in queue) == sorted(
            row["physical_offset"] for row in stopped.archived() if row["topic"] == TOPIC
        )
        assert len(stopped.ledger()) == 80
    else:
        assert resumed == ExitCode.USAGE
        assert "has no replay" in error or "cannot be resumed: a repair of the lake has lost rows" in error
        assert sum(map(len, stopped.origins().values())) == sent


@pytest.mark.long("repairs that are killed are tested each time in pipelines/repair")
def test_a_killed_repair_leaves_no_replay_without_its_mark(
    stopped: ReplayWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = stopped.replay_id()
    damage(max(Path(stopped.lake.uri("replays")).glob("_delta_log/*.json")), "cut")
    damage(max(Path(stopped.lake.uri("replay_messages")).glob("_delta_log/*.json")), "cut")
    damaged = Path(shutil.copytree(stopped.lake.root, tmp_path / "damaged"))
    for step in range(1, 40, 3):
        shutil.rmtree(stopped.lake.root)
        shutil.copytree(damaged, stopped.lake.root)
        if not killed_at(step, stopped.lake, monkeypatch):
            break
        repair(stopped.lake)
        assert read_replay_states(stopped.lake)[name].has_lost_rows, step
    assert step > 5


def killed_at(step: int, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Repair a lake, and kill it at a file that it writes. Returns whether it came to that."""
    left = step

    def killing(call: Callable[..., object]) -> Callable[..., object]:
        def called(*arguments: object, **options: object) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
            return call(*arguments, **options)

        return called

    with monkeypatch.context() as patched:
        patched.setattr(LogFolder, "write", killing(LogFolder.write))
        patched.setattr(ReplacedFiles, "copy_file", killing(ReplacedFiles.copy_file))
        patched.setattr(replay_tables, "append_rows", killing(append_rows))
        try:
            repair_lake(lake, plan_repair(lake), "1")
        except KeyboardInterrupt:
            return True
    return False


def test_a_replay_with_lost_rows_is_refused_if_the_target_has_deleted_messages(
    stopped: ReplayWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = stopped.origins()
    damage_table(stopped.lake, "replay_messages", "last entry cut")
    repair(stopped.lake)
    monkeypatch.setattr(Puller, "min_offset", lambda *_: 1)
    assert stopped.act("resume", stopped.replay_id(), "--quiet") == ExitCode.REFUSED
    assert "begins at queue offset 1, expected 0 or less: the target has deleted messages" in capsys.readouterr().err
    assert stopped.origins() == sent


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("how", ["last entry cut", "file deleted"])
def test_a_replay_whose_copies_are_lost_sends_only_what_is_left(
    world: ReplayWorld, how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def end(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "add_outcomes", end)
        assert world.replay("--topic", TOPIC, "--mask", "keys=null") == ExitCode.FAILED
    sent = world.origins()
    damage_table(world.lake, "replay_rows", how)
    assert repair(world.lake) == ExitCode.DAMAGE
    assert repair(world.lake) == ExitCode.OK
    capsys.readouterr()
    assert world.act("resume", world.replay_id(), "--quiet") == ExitCode.DAMAGE
    assert "the plan has 80 messages to send, but the lake has only 0 of them" in capsys.readouterr().err
    assert world.origins() == sent
