"""`lake.replay`: rows that an analyst has chosen are sent once, however often and whenever the call is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

import commitlake
from commitlake.connectors.lake.committer import commit_with_transaction, open_or_create_table
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.rocketmq import Admin
from commitlake.connectors.rocketmq.producers import tracked_connections
from commitlake.pipelines.analysis.lake import AnalysisLake
from commitlake.pipelines.replay import ledger, named_replay, replay_rows
from commitlake.pipelines.replay.errors import OtherProcessError, ReplayError
from commitlake.pipelines.replay.ledger import Counts, Ledger, add_replay_event, read_events, read_replay_state
from commitlake.pipelines.replay.named_replay import ReplayResult
from commitlake.pipelines.replay.sending import run, share_sender
from commitlake.pipelines.replay.sending.queue_sender import TargetClient
from commitlake.pipelines.replay.sending.rate_limit import SendPace
from commitlake.pipelines.replay.sending.run import ReplayRun
from commitlake.pipelines.replay.sending.target_client import open_target_client
from commitlake.schemas.errors import UsageError
from commitlake.schemas.tables.replays import ReplayEvent
from tests.servers.broker_lite import BrokerLite
from tests.support.lakes import GrowingLake, prepared_lake, shop_messages
from tests.support.logs import new_message
from tests.support.replays import ReplayWorld
from tests.support.sending_runner import SendingRunner
from tests.support.waiting import wait_until

MESSAGES, QUEUES = 400, 4
NAME = "orders-again"
CHOSEN = 134
"""Number of messages of which the physical offset is divisible by 3: see `choose`."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerLite]:
    """The target broker."""
    with BrokerLite(tmp_path_factory.mktemp("target")) as running:
        yield running


@pytest.fixture(scope="module")
def client(broker: BrokerLite) -> Iterator[TargetClient]:
    """Clients of the target broker."""
    with open_target_client(broker.name_server_address) as made:
        yield made


def _archive_shop(growing: GrowingLake) -> None:
    growing.write(shop_messages(MESSAGES))
    growing.archive()


@pytest.fixture
def world(tmp_path: Path, broker: BrokerLite, client: TargetClient, monkeypatch: pytest.MonkeyPatch) -> ReplayWorld:
    """A lake with messages of five topics, and a topic of the broker's with four queues."""
    monkeypatch.setattr(tracked_connections, "EXECUTING_SECONDS", 0.1)
    made = ReplayWorld(prepared_lake(tmp_path, _archive_shop).lake, broker.name_server_address, client)
    made.make_topic(QUEUES)
    return made


@pytest.fixture
def lake(world: ReplayWorld) -> AnalysisLake[pa.Table]:
    """The lake without Spark."""
    return commitlake.open(world.lake.root)


def choose(lake: AnalysisLake[pa.Table], remainder: int = 0) -> pa.Table:
    """Return every third message, in an order of no meaning, with a column that the lake does not have."""
    rows = lake.messages().sort_by("physical_offset").to_pylist()
    chosen = [row | {"own": "x"} for number, row in enumerate(rows) if number % 3 == remainder]
    return pa.Table.from_pylist(chosen[::-1]).select(["own", "physical_offset", "broker", "topic"])


def by_queue(world: ReplayWorld, frame: pa.Table) -> dict[int, list[int]]:
    """Return the physical offsets of chosen messages by queue, in the order of the log."""
    wanted = set(frame.column("physical_offset").to_pylist())
    found: dict[int, list[int]] = {queue: [] for queue in range(QUEUES)}
    for row in world.archived():
        if row["physical_offset"] in wanted:
            found[row["queue_id"]].append(row["physical_offset"])
    return found


def send(world: ReplayWorld, lake: AnalysisLake[pa.Table], frame: pa.Table, **others: Any) -> ReplayResult:
    arguments: dict[str, Any] = {"name": NAME, "namesrv": world.name_servers, "to_topic": world.topic, "dry_run": False}
    return lake.replay(frame, **(arguments | others))


def plan_and_die(world: ReplayWorld, lake: AnalysisLake[pa.Table], frame: pa.Table, **others: Any) -> None:
    """Plan a replay, and be killed before any message is sent."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ReplayRun, "send_replay", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            send(world, lake, frame, **others)


def test_exactly_the_chosen_rows_are_sent_in_the_order_of_their_queues(
    world: ReplayWorld, lake: AnalysisLake[pa.Table]
) -> None:
    frame = choose(lake)
    result = send(world, lake, frame)
    assert (result.state, result.messages, result.sent, result.failed) == ("finished", CHOSEN, CHOSEN, 0)
    assert (result.differences, result.already_replayed) == (0, 0)
    assert str(result.verification).endswith("no differences")
    assert world.origins() == by_queue(world, frame)
    archived = {row["physical_offset"]: row for row in world.archived()}
    bodies = lake.messages(columns=["physical_offset"], body="bytes").to_pylist()
    stored = {row["physical_offset"]: row["body"] for row in bodies}
    for message in (message for queue in world.received().values() for message in queue):
        offset = int(message.properties["ORIGIN_PHYSICAL_OFFSET"])
        assert message.body == stored[offset]
        assert message.properties["REPLAY_ID"] == NAME
        assert dict(archived[offset]["properties"]).items() <= message.properties.items()


def test_the_same_call_sends_nothing_again(world: ReplayWorld, lake: AnalysisLake[pa.Table]) -> None:
    frame = choose(lake)
    send(world, lake, frame, verify=False)
    before = world.origins()
    again = send(world, lake, frame.sort_by("physical_offset"))
    assert (again.state, again.sent, again.messages) == ("finished", CHOSEN, CHOSEN)
    assert again.verification is not None  # the first call had left it out
    assert send(world, lake, frame, dry_run=True).state == "finished"
    assert world.origins() == before
    assert world.act("list") == 0
    assert world.act("verify", NAME) == 0


def test_a_dry_run_writes_nothing(world: ReplayWorld, lake: AnalysisLake[pa.Table]) -> None:
    frame = choose(lake)
    without_target = lake.replay(frame, name=NAME)
    assert (without_target.state, without_target.messages, without_target.groups) == ("dry run", CHOSEN, None)
    assert sum(queue.messages for queue in without_target.queues) == CHOSEN
    assert send(world, lake, frame, dry_run=True).groups == {world.topic: ()}
    for table in ("replays", "replay_rows", "replay_messages"):
        assert lake.table(table, or_empty=True).num_rows == 0
    assert sum(map(len, world.origins().values())) == 0


def test_a_name_is_of_one_choice_and_one_target(world: ReplayWorld, lake: AnalysisLake[pa.Table]) -> None:
    send(world, lake, choose(lake))
    with pytest.raises(ReplayError, match=f"the name {NAME} is that of a replay of other messages"):
        send(world, lake, choose(lake, 1))
    with pytest.raises(ReplayError, match=r"was planned with to_topic='.*' and queues='same', found None"):
        send(world, lake, choose(lake), to_topic=None)
    for options in ({}, {"dry_run": True}):
        with pytest.raises(ReplayError, match=r"was planned with namesrv='.*', found '10\.0\.0\.7:9876'") as caught:
            send(world, lake, choose(lake), namesrv="10.0.0.7:9876", **options)
        assert f"replay resume {NAME} --namesrv 10.0.0.7:9876'" in caught.value.hint
    assert send(world, lake, choose(lake), namesrv=f"10.0.0.7:9876; {world.name_servers}").state == "finished"
    assert world.replay("--topic", "topic-01") == 0
    with pytest.raises(ReplayError, match=r"is that of a replay that lake\.replay did not plan"):
        send(world, lake, choose(lake), name=world.replay_id())


def test_rows_that_are_not_in_the_lake_are_named(world: ReplayWorld, lake: AnalysisLake[pa.Table]) -> None:
    frame = choose(lake).select(["broker", "physical_offset"])
    wrong = pa.table({"broker": ["broker-a", "broker-z"], "physical_offset": [7, 7]})
    with pytest.raises(ReplayError, match=r"2 of the chosen rows are not in .*, such as broker 'broker-a', .* 7$"):
        send(world, lake, pa.concat_tables([frame, wrong]))
    assert lake.table("replays", or_empty=True).num_rows == 0


def test_nothing_is_sent_for_an_empty_choice(world: ReplayWorld, lake: AnalysisLake[pa.Table]) -> None:
    result = send(world, lake, choose(lake).slice(0, 0))
    assert (result.state, result.messages) == ("nothing to send", 0)
    assert lake.table("replays", or_empty=True).num_rows == 0


def test_messages_of_an_unfinished_replay_need_again(world: ReplayWorld, lake: AnalysisLake[pa.Table]) -> None:
    frame = choose(lake)
    plan_and_die(world, lake, frame)
    with pytest.raises(ReplayError, match=f"belong to the replay {NAME}, which has not finished"):
        send(world, lake, frame, name="other")
    assert send(world, lake, frame, name="third", again=True).sent == CHOSEN


def test_replayed_messages_are_left_out_and_system_topics_refused(
    tmp_path: Path, broker: BrokerLite, client: TargetClient
) -> None:
    growing = GrowingLake(tmp_path)
    replayed = (("REPLAY_ID", "earlier"), ("ORIGIN_MSG_ID", "x"))
    growing.write([
        new_message(0, topic="orders", queue_id=0),
        new_message(1, topic="orders", queue_id=0, properties=replayed),
        new_message(2, topic="RMQ_SYS_TRANS_HALF_TOPIC", queue_id=0),
    ])  # fmt: skip
    growing.archive()
    world = ReplayWorld(growing.lake, broker.name_server_address, client)
    world.make_topic(QUEUES)
    lake = commitlake.open(growing.lake.root)
    with pytest.raises(ReplayError, match=r"1 of the chosen messages is in system topics .* \(RMQ_SYS_TRANS_HALF"):
        send(world, lake, lake.messages())
    frame = lake.messages(topic="orders")
    result = send(world, lake, frame)
    assert (result.sent, result.already_replayed) == (1, 1)
    with pytest.raises(ReplayError, match="other messages"):
        send(world, lake, frame, include_replayed=True)
    assert send(world, lake, frame, name="all", include_replayed=True).sent == 2


@pytest.mark.parametrize(
    ("owner", "step"),
    [
        (named_replay, "copy_chosen_messages"),
        (named_replay, "write_copied_rows"),
        (named_replay, "record_replay"),
        (ReplayRun, "send_replay"),
        (named_replay, "verify_replay"),
    ],
)
def test_a_call_that_was_killed_after_a_step_is_completed_by_the_next(
    world: ReplayWorld, lake: AnalysisLake[pa.Table], monkeypatch: pytest.MonkeyPatch, owner: object, step: str
) -> None:
    frame = choose(lake)
    original: Callable[..., object] = getattr(owner, step)

    def kill(*arguments: object, **others: object) -> None:
        original(*arguments, **others)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(owner, step, kill)
        with pytest.raises(KeyboardInterrupt):
            send(world, lake, frame)
    assert send(world, lake, frame).sent == CHOSEN
    assert world.origins() == by_queue(world, frame)


def test_a_killed_process_is_followed_by_one_that_sends_the_rest(
    world: ReplayWorld, lake: AnalysisLake[pa.Table]
) -> None:
    frame = choose(lake)
    code = (
        "import commitlake, pyarrow.ipc as ipc, sys\n"
        "frame = ipc.open_file(sys.argv[1]).read_all()\n"
        f"commitlake.open({world.lake.root!r}).replay(frame, name={NAME!r}, namesrv={world.name_servers!r}, "
        f"to_topic={world.topic!r}, rate=40, dry_run=False)\n"
    )
    path = Path(world.lake.root).parent / "frame.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, frame.schema) as writer:
        writer.write_table(frame)
    process = subprocess.Popen([sys.executable, "-c", code, str(path)])
    wait_until(lambda: sum(map(len, world.origins().values())) > 20 or process.poll() is not None, 60)
    with pytest.raises(OtherProcessError, match="of this host is sending the replay"):
        send(world, lake, frame)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert 0 < sum(map(len, world.origins().values())) < CHOSEN
    result = send(world, lake, frame)
    assert (result.state, result.sent, result.differences) == ("finished", CHOSEN, 0)
    assert world.origins() == by_queue(world, frame)


def test_calls_at_the_same_time_send_each_message_once(
    world: ReplayWorld, lake: AnalysisLake[pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_sender, "MAX_BATCH_MESSAGES", 3)
    frame = choose(lake)

    def try_to_send(_: int) -> object:
        try:
            return send(world, lake, frame, rate=200).state
        except ReplayError as error:
            return error

    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(try_to_send, range(3)))
    assert all(result == "finished" or isinstance(result, OtherProcessError) for result in results), results
    assert send(world, lake, frame).sent == CHOSEN
    assert world.origins() == by_queue(world, frame)


def test_a_process_that_is_late_to_send_its_own_plan_searches_the_target_first(
    world: ReplayWorld, lake: AnalysisLake[pa.Table]
) -> None:
    frame = choose(lake)
    with pytest.MonkeyPatch.context() as patched:
        original = ReplayRun.send_replay

        def send_after_another(late: ReplayRun) -> Counts:
            patched.setattr(ReplayRun, "send_replay", original)
            assert send(world, lake, frame, verify=False).sent == CHOSEN
            return original(late)

        patched.setattr(ReplayRun, "send_replay", send_after_another)
        assert send(world, lake, frame).sent == CHOSEN
    assert world.origins() == by_queue(world, frame)


def test_tasks_of_a_runner_send_rows_of_a_frame(world: ReplayWorld, lake: AnalysisLake[pa.Table]) -> None:
    frame = choose(lake)
    places = {"broker-a": frame.sort_by("physical_offset").column("physical_offset").to_numpy()}
    request = named_replay.NamedReplay(name=NAME, name_servers=world.name_servers, target_topic=world.topic)
    runner = SendingRunner(3)
    result = named_replay.send_named_replay(Lake(world.lake.root), places, request, runner, is_dry_run=False)
    assert (result.sent, result.differences, len(runner.sent)) == (CHOSEN, 0, 3)
    assert Ledger(world.lake, NAME).count_senders() == 3
    assert world.origins() == by_queue(world, frame)


def test_a_replay_whose_plan_is_lost_is_not_planned_again(world: ReplayWorld, lake: AnalysisLake[pa.Table]) -> None:
    frame = choose(lake)
    send(world, lake, frame)
    world.lake.table("replays").delete()
    with pytest.raises(ReplayError, match=f"has lost the plan of the replay {NAME}, which may have sent messages"):
        send(world, lake, frame)


def test_a_plan_that_may_have_begun_before_rows_were_lost_is_not_sent(
    world: ReplayWorld, lake: AnalysisLake[pa.Table]
) -> None:
    frame = choose(lake)
    plan_and_die(world, lake, frame)
    add_replay_event(world.lake, NAME, ReplayEvent.ROWS_LOST)
    with pytest.raises(ReplayError, match="it is not known whether it has begun, or was withdrawn"):
        send(world, lake, frame)
    assert sum(map(len, world.origins().values())) == 0


def test_a_call_without_limits_keeps_those_of_the_replay(
    world: ReplayWorld, lake: AnalysisLake[pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = choose(lake)
    plan_and_die(world, lake, frame, rate=5000, pause_if_lag=("billing", 7))
    used: list[tuple[float, float, object]] = []

    def watch_limits(tables: Lake, name: str, pace: SendPace, admin: Admin, lag: Any, tell: Any) -> Any:
        used.append((pace.total_rate, pace.speed, lag))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run, "watch_replay", watch_limits)
        for requested, options in ((None, {}), (4000.0, {}), (None, {}), (None, {"rate": 3000}), (None, {})):
            if requested is not None:
                add_replay_event(world.lake, NAME, ReplayEvent.THROTTLED, rate=requested, speed=2.0)
            with pytest.raises(KeyboardInterrupt):
                send(world, lake, frame, **options)
    assert [rate for rate, _, _ in used] == [5000, 4000, 4000, 3000, 3000]
    assert [speed for _, speed, _ in used] == [0, 2, 2, 2, 2]
    assert {lag for _, _, lag in used} == {("billing", 7)}
    throttled = [row["rate"] for row in read_events(world.lake, NAME) if row["event"] == ReplayEvent.THROTTLED]
    assert throttled == [4000, 3000]
    places = {"broker-a": frame.sort_by("physical_offset").column("physical_offset").to_numpy()}
    request = named_replay.NamedReplay(name=NAME, name_servers=world.name_servers, target_topic=world.topic)
    with pytest.raises(ReplayError, match="keeps to 2 times the pace at which the messages were stored"):
        named_replay.send_named_replay(Lake(world.lake.root), places, request, SendingRunner(3), is_dry_run=False)


def test_a_plan_that_is_lost_before_any_process_has_begun_to_send_is_named(
    world: ReplayWorld, lake: AnalysisLake[pa.Table]
) -> None:
    frame = choose(lake)
    plan_and_die(world, lake, frame)
    world.lake.table("replays").delete()
    with pytest.raises(ReplayError, match=f"^a repair of the lake has lost the plan of the replay {NAME}: choose"):
        send(world, lake, frame)
    assert send(world, lake, frame, name="other").sent == CHOSEN


@pytest.mark.parametrize("are_all_first", [False, True])
def test_copies_are_committed_after_those_of_others(
    world: ReplayWorld, lake: AnalysisLake[pa.Table], monkeypatch: pytest.MonkeyPatch, *, are_all_first: bool
) -> None:
    calls = 0

    def commit_too_late(*arguments: Any, **others: Any) -> bool:
        nonlocal calls
        calls += 1
        if are_all_first or calls == 1:
            open_or_create_table(world.lake, "replay_rows")
            return False
        return commit_with_transaction(*arguments, **others)

    frame = choose(lake)
    monkeypatch.setattr(ledger, "_MAX_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(replay_rows, "commit_with_transaction", commit_too_late)
    if are_all_first:
        monkeypatch.setattr(ledger, "_TRY_SECONDS", 1)
        with pytest.raises(
            ReplayError, match=r"to the table 'replay_rows' first for 1 s\. Nothing was sent: try again"
        ):
            send(world, lake, frame)
        assert read_events(world.lake, NAME) == []
    else:
        assert send(world, lake, frame).sent == CHOSEN


def test_a_replay_that_was_withdrawn_is_not_continued(world: ReplayWorld, lake: AnalysisLake[pa.Table]) -> None:
    frame = choose(lake)
    send(world, lake, frame)
    add_replay_event(world.lake, NAME, ReplayEvent.UNDONE)
    with pytest.raises(ReplayError, match="was undone: choose another name"):
        send(world, lake, frame)
    assert read_replay_state(world.lake, NAME).event is ReplayEvent.UNDONE


def test_bad_arguments_are_named(world: ReplayWorld, lake: AnalysisLake[pa.Table]) -> None:
    frame = choose(lake)
    with pytest.raises(UsageError, match="name: expected the name of a replay, 1 to 64 letters"):
        send(world, lake, frame, name="no spaces")
    with pytest.raises(UsageError, match="namesrv: expected the name servers of the target, found none"):
        send(world, lake, frame, namesrv=None)
    with pytest.raises(UsageError, match="frame: expected each message once, found 134 rows more"):
        send(world, lake, pa.concat_tables([frame, frame]))
