"""Tests of `commitlake replay` with a damaged lake or target, or one that changes during the replay."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from deltalake import DeltaTable

from commitlake.connectors.rocketmq import Admin, ClientOptions
from commitlake.jobs.maintain.command import main as maintain
from commitlake.jobs.replay import send
from commitlake.jobs.replay.command import main
from commitlake.pipelines.replay import plan, planning
from commitlake.pipelines.replay.ledger import Ledger, read_replay_states
from commitlake.pipelines.replay.other_replays import record_plan
from commitlake.pipelines.replay.sending import queue_sender
from commitlake.pipelines.replay.sending.run import ReplayRun
from commitlake.pipelines.replay.sending.share_sender import ShareSender
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.remoting.routes import ClusterInfo
from commitlake.schemas.tables.replays import ReplayEvent
from tests.servers.broker_lite import BrokerLite
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.replays import ReplayWorld, target_client
from tests.support.waiting import let_pass

TOPIC = "topic-01"
PARTS, OF_PART = 5, 80


@pytest.fixture
def in_parts(world: ReplayWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReplayWorld:
    """A lake of five small files, which a replay sends in five parts."""
    growing = GrowingLake(tmp_path / "grown")
    for seed in range(PARTS):
        growing.write(shop_messages(OF_PART, seed=seed))
        growing.archive()
    monkeypatch.setattr(planning, "STRETCH_BYTES", 1 << 10)
    monkeypatch.setattr(planning, "PART_MESSAGES", OF_PART)
    return ReplayWorld(growing.lake, world.name_servers, world.client, world.topic)


def is_each_sent_once(world: ReplayWorld) -> bool:
    """Return whether each message of the lake is in the target once."""
    found = Counter(offset for queue in world.origins().values() for offset in queue)
    return found == Counter(row["physical_offset"] for row in world.archived())


@pytest.mark.parametrize(
    "is_cleaned",
    [True, pytest.param(False, marks=pytest.mark.long("maintained in the same way, and cleaned, each time"))],
)
def test_a_lake_may_be_maintained_during_a_replay(
    in_parts: ReplayWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, is_cleaned: bool
) -> None:
    send_part = ShareSender._send_part
    sent: list[None] = []

    def maintained(*arguments: object) -> bool:
        result = send_part(*arguments)  # type: ignore[arg-type]
        if not sent:
            assert maintain(["--lake", in_parts.lake.root, "--quiet"]) == 0
            if is_cleaned:  # as after a day
                for path in set(Path(in_parts.lake.uri("messages")).glob("store_date=*/*.parquet")) - files_now(
                    in_parts
                ):
                    path.unlink()
        sent.append(None)
        return result

    with monkeypatch.context() as patched:
        patched.setattr(ShareSender, "_send_part", maintained)
        code = in_parts.replay("--where", "true")
    assert len(files_now(in_parts)) < PARTS
    if is_cleaned:
        assert code != 0
        assert "Traceback" not in capsys.readouterr().err
        assert in_parts.act("resume", in_parts.replay_id(), "--quiet") == 0
    else:
        assert code == 0
        assert len(sent) >= PARTS
    assert is_each_sent_once(in_parts)


def files_now(world: ReplayWorld) -> set[Path]:
    """Return the data files of the newest version."""
    return {Path(uri) for uri in DeltaTable(world.lake.uri("messages")).file_uris()}


def test_expired_bodies_are_reported_and_the_rest_is_sent(
    in_parts: ReplayWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    packs = sorted(path for path in Path(in_parts.lake.bodies_root).rglob("*") if path.is_file())
    packs[0].unlink()
    assert in_parts.replay("--where", "true") == 3
    outcomes = Counter(row["outcome"] for row in in_parts.ledger())
    assert outcomes == {"no_body": OF_PART, "sent": (PARTS - 1) * OF_PART}
    assert f"{OF_PART} messages could not be sent" in capsys.readouterr().err
    # No message is left to send: the bodies cannot be recovered.
    assert read_replay_states(in_parts.lake)[in_parts.replay_id()].event is ReplayEvent.FINISHED


def test_messages_of_an_unfinished_replay_are_refused(
    world: ReplayWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose_the_ledger(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "add_outcomes", lose_the_ledger)
        assert world.replay("--topic", TOPIC) == 1
    first = world.replay_id()
    assert world.replay("--topic", TOPIC, "--queue", "1") == 4
    assert f"20 of these messages belong to the replay {first}, which has not finished" in capsys.readouterr().err
    assert world.replay("--topic", "topic-02", "--queue", "1") == 0
    assert world.act("resume", first, "--quiet") == 0
    assert sum(map(len, world.received().values())) == 80 + 20
    place = ["--lake", world.lake.root, "--namesrv", world.name_servers, "--to-topic", world.topic]
    assert main([*place, "--topic", TOPIC, "--dry-run"]) == 0
    assert f"80 of these messages belong to the replay {first} to the same queues, which is finished" in (
        capsys.readouterr().err
    )
    assert world.replay("--topic", TOPIC) == 0  # a finished replay does not prevent another one


def test_another_replay_that_cannot_be_read_is_warned_of(
    world: ReplayWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(plan, "VERSION", plan.VERSION + 1)  # a later version's
        assert world.replay("--topic", TOPIC, "--limit", "1") == 0
    later = world.replay_id()
    capsys.readouterr()
    assert world.replay("--topic", TOPIC, "--limit", "1") == 0
    assert f"whether the replay {later} has the same messages is not known: the plan of the replay has version" in (
        capsys.readouterr().err
    )


def test_the_pace_does_not_catch_up_after_an_outage_of_the_target(
    world: ReplayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    post = queue_sender.QueueSender._send_batch
    posted: list[float] = []

    def away_at_first(self: queue_sender.QueueSender, *arguments: object, **named: object) -> int:
        if not posted:
            let_pass(2, "the target is away")
        posted.append(time.monotonic())
        return post(self, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(queue_sender.QueueSender, "_send_batch", away_at_first)
    times = [row["store_timestamp"] for row in world.archived() if (row["topic"], row["queue_id"]) == (TOPIC, 1)]
    speed = (times[1] - times[0]).total_seconds() / 0.5
    assert world.replay("--topic", TOPIC, "--queue", "1", "--limit", "4", "--speed", f"{speed:.0f}x") == 0
    assert len(posted) == 4
    # The last three are due 0.5 s apart; a pace that caught up would send them at once.
    assert posted[-1] - posted[0] > 0.8


def test_a_resumed_replay_keeps_its_pace(world: ReplayWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    paces: list[tuple[float, float, tuple[str, int] | None]] = []

    def stop(self: ReplayRun, *, is_resumed: bool) -> bool:
        paces.append((self.pace.rate, self.pace.speed, self._plan.lag_limit))
        return False

    monkeypatch.setattr(ReplayRun, "_send_in_this_process", stop)
    world.replay("--topic", TOPIC, "--rate", "50/s", "--speed", "2x", "--pause-if-lag", "billing>9")
    name = world.replay_id()
    world.act("resume", name, "--quiet")
    world.act("resume", name, "--quiet", "--rate", "7", "--pause-if-lag", "mail>1")
    world.act("resume", name, "--quiet")
    assert paces == [(50, 2, ("billing", 9)), (50, 2, ("billing", 9)), (7, 2, ("mail", 1)), (7, 2, ("billing", 9))]


def test_only_one_of_two_simultaneous_replays_sends(world: ReplayWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(2, timeout=60)
    codes: list[int] = []

    def at_once(*arguments: object) -> None:
        together.wait()
        record_plan(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(planning, "record_plan", at_once)
    # Only the main thread handles signals: a replay in another thread cannot be stopped by them.
    monkeypatch.setattr(send, "call_on_first_signal", lambda _: nullcontext())
    threads = [threading.Thread(target=lambda: codes.append(world.replay("--topic", TOPIC))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes.count(0) <= 1
    assert set(codes) <= {0, 4}
    assert sum(map(len, world.received().values())) == 80 * codes.count(0)


def test_a_replay_is_not_sent_if_another_one_ended_while_it_was_planned(
    world: ReplayWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other: list[str] = []

    def after_another(*arguments: object) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(planning, "record_plan", record_plan)
            assert world.replay("--topic", TOPIC) == 0
        other.append(world.replay_id())
        record_plan(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(planning, "record_plan", after_another)
    assert world.replay("--topic", TOPIC) == ExitCode.REFUSED
    assert f"while this replay was planned, the replay {other[0]} sent 80 of the same messages" in (
        capsys.readouterr().err
    )
    assert sum(map(len, world.received().values())) == 80
    monkeypatch.undo()
    assert world.replay("--topic", TOPIC) == 0


@pytest.fixture
def used_disk() -> Iterator[Path]:
    """A folder on a disk that has files; that of other tests may be in memory, where nearly nothing is used."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_a_replay_to_a_full_target_fails_and_can_be_resumed(
    world: ReplayWorld, used_disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(queue_sender, "_FIRST_WAIT_SECONDS", 0.01)
    usage = shutil.disk_usage(used_disk)
    limit = 100 * usage.used // usage.total - 1
    if limit < 1:
        pytest.skip("the disk is nearly empty: no limit of a broker is below what is used")
    full = ("--disk-percent", f"{limit},{limit},{limit}")
    with BrokerLite(used_disk / "full") as server, Admin(ClientOptions(server.name_server_address)) as admin:
        admin.create_topic("Full", 4)
    with BrokerLite(used_disk / "full", options=full) as server, target_client(server.name_server_address) as client:
        target = ReplayWorld(world.lake, server.name_server_address, client, "Full")
        assert target.replay("--topic", TOPIC, "--patience", "1s") == 1
        assert f"'commitlake replay resume {world.replay_id()}' continues the replay" in capsys.readouterr().err
        assert sum(map(len, target.received().values())) == 0
    with BrokerLite(used_disk / "full") as server, target_client(server.name_server_address) as client:
        target = ReplayWorld(world.lake, server.name_server_address, client, "Full")
        assert target.act("resume", target.replay_id(), "--quiet", "--namesrv", server.name_server_address) == 0
        assert sum(map(len, target.received().values())) == 80


def test_a_target_without_brokers_is_not_reported_as_lacking_the_topic(
    world: ReplayWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Admin, "clusters", lambda _: ClusterInfo())  # a name server forgets a broker that is killed
    assert world.replay("--topic", TOPIC, into="NoSuchTopic") == 1
    assert "the target's name server knows no broker now, and so no topic" in capsys.readouterr().err
