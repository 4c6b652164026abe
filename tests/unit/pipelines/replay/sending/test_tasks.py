"""Replays that several tasks send: each message once, in order, although tasks, driver and connections end or hang."""

from __future__ import annotations

import datetime
import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.rocketmq.producers import tracked_connections
from commitlake.connectors.rocketmq.producers.tracked_connections import TrackedConnection, TrackedConnections
from commitlake.connectors.runtime.local_runner import ThreadRunner
from commitlake.connectors.runtime.runner import Result, Runner, SharedValue, Task
from commitlake.jobs.replay import send
from commitlake.pipelines.replay import ledger as ledger_module
from commitlake.pipelines.replay import planning
from commitlake.pipelines.replay.errors import OtherProcessError, ReplayError
from commitlake.pipelines.replay.ledger import Counts, Ledger, SenderClaim, add_replay_event, read_replay_state
from commitlake.pipelines.replay.plan import QueueMapping, ReplayPlan, ReplayRequest
from commitlake.pipelines.replay.planned_messages import PlannedMessages, open_planned_messages
from commitlake.pipelines.replay.sending import replay_control, share_sender, tasks
from commitlake.pipelines.replay.sending.batches import Batch
from commitlake.pipelines.replay.sending.queue_sender import QueueSender, TargetClient
from commitlake.pipelines.replay.sending.rate_limit import SendPace
from commitlake.pipelines.replay.sending.run import ReplayRun
from commitlake.pipelines.replay.sending.target_client import open_target_client
from commitlake.pipelines.replay.sending.tasks import QueueShare, SendingTask, TaskResult, divide_queues, send_share
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.tables.replays import ReplayEvent
from tests.servers.broker_lite import BrokerLite
from tests.support.lakes import GrowingLake, prepared_lake, shop_messages
from tests.support.replays import ReplayWorld
from tests.support.waiting import let_pass, wait_until

MESSAGES, QUEUES, PARTS = 400, 4, 8
TIMEOUT = datetime.timedelta(seconds=30)
KILLED = "the worker was killed"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerLite]:
    with BrokerLite(tmp_path_factory.mktemp("target")) as running:
        yield running


@pytest.fixture(scope="module")
def client(broker: BrokerLite) -> Iterator[TargetClient]:
    with open_target_client(broker.name_server_address) as made:  # brokers list the connections of its producer group
        yield made


def _archive_shop(growing: GrowingLake) -> None:
    growing.write(shop_messages(MESSAGES))
    growing.archive()


@pytest.fixture
def world(tmp_path: Path, broker: BrokerLite, client: TargetClient, monkeypatch: pytest.MonkeyPatch) -> ReplayWorld:
    """A lake whose messages are in several parts, and a topic with four queues."""
    monkeypatch.setattr(planning, "STRETCH_BYTES", 1 << 10)
    monkeypatch.setattr(planning, "PART_MESSAGES", MESSAGES // PARTS)
    monkeypatch.setattr(share_sender, "MAX_BATCH_MESSAGES", 5)
    monkeypatch.setattr(tracked_connections, "EXECUTING_SECONDS", 0.1)
    made = ReplayWorld(prepared_lake(tmp_path, _archive_shop).lake, broker.name_server_address, client)
    made.make_topic(QUEUES)
    return made


@pytest.fixture
def plan(world: ReplayWorld, monkeypatch: pytest.MonkeyPatch) -> ReplayPlan:
    """The plan of a replay of all messages, of which nothing has been sent."""
    with monkeypatch.context() as patched:
        patched.setattr(send, "_run_replay", lambda *_, **__: ExitCode.OK)
        assert world.replay("--where", "true") == 0
    made = read_replay_state(world.lake, world.replay_id()).plan
    assert len(made.parts) >= PARTS
    return made


class RestartingRunner(ThreadRunner):
    """A runner that starts a task again when it fails, as Spark does."""

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], *, is_io_bound: bool = False
    ) -> Iterator[tuple[int, Result]]:
        """Run a function over tasks."""

        def restarted(task: Task) -> Result:
            for _ in range(100):
                try:
                    return function(task)
                except RuntimeError as error:
                    assert str(error) == KILLED
            raise AssertionError("started 100 times")

        return super().run(restarted, tasks, is_io_bound=is_io_bound)


def planned(world: ReplayWorld, plan: ReplayPlan) -> PlannedMessages:
    return open_planned_messages(world.lake, plan, open_pack_store(world.lake.packs))


def replay_run(world: ReplayWorld, plan: ReplayPlan, runner: Runner | None) -> ReplayRun:
    """Return a run that sends a plan with the limits of its state."""
    state = replace(read_replay_state(world.lake, plan.replay_id), plan=plan)
    return ReplayRun(world.lake, state, ReplayRequest(target_timeout=TIMEOUT), world.client, runner)


def run(world: ReplayWorld, plan: ReplayPlan, workers: int) -> Counts:
    """Send with some tasks; in this process if `workers` is 0."""
    return replay_run(world, plan, RestartingRunner(workers) if workers else None).send_replay()


def check_sent_once_in_order(world: ReplayWorld) -> None:
    expected: dict[int, list[int]] = {queue: [] for queue in range(QUEUES)}
    for row in world.archived():
        expected[row["queue_id"]].append(row["physical_offset"])
    assert world.origins() == expected
    ledger = world.ledger()
    assert [row["physical_offset"] for row in ledger] == [row["physical_offset"] for row in world.archived()]
    places = {(row["target_queue_id"], row["target_offset"]): row["physical_offset"] for row in ledger}
    assert places == {
        (queue, number): origin for queue, found in expected.items() for number, origin in enumerate(found)
    }


def claimed_tasks(world: ReplayWorld, plan: ReplayPlan, count: int, *, is_resumed: bool = False) -> list[SendingTask]:
    """Take a replay over, and return its tasks."""
    shares = divide_queues(planned(world, plan), count)
    claims = Ledger(world.lake, plan.replay_id).claim_replay(len(shares))
    add_replay_event(world.lake, plan.replay_id, ReplayEvent.STARTED, sender_count=len(shares))
    return [
        SendingTask(world.lake, SharedValue(plan), each, claim, world.name_servers, 0.0, TIMEOUT, is_resumed, False)
        for each, claim in zip(shares, claims, strict=True)
    ]


def in_thread(task: SendingTask) -> tuple[threading.Thread, list[TaskResult]]:
    results: list[TaskResult] = []
    thread = threading.Thread(target=lambda: results.append(send_share(task)), daemon=True)
    thread.start()
    return thread, results


@pytest.mark.parametrize("workers", [1, 2, 3, 9])
def test_each_message_is_sent_once_in_the_order_of_its_queue(
    world: ReplayWorld, plan: ReplayPlan, workers: int
) -> None:
    assert run(world, plan, workers) == Counts(MESSAGES, 0)
    check_sent_once_in_order(world)
    assert Ledger(world.lake, plan.replay_id).count_senders() == min(workers, QUEUES)
    assert read_replay_state(world.lake, plan.replay_id).event is ReplayEvent.FINISHED


@pytest.mark.parametrize("limit", [1, 57, 399])
def test_a_limit_is_that_of_all_tasks(world: ReplayWorld, plan: ReplayPlan, limit: int) -> None:
    assert run(world, replace(plan, limit=limit), 3) == Counts(limit, 0)
    assert Counter(itertools.chain(*world.origins().values())) == Counter(
        row["physical_offset"] for row in world.archived()[:limit]
    )


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long("25 kills at other moments")) for seed in (1, 2))]
)
def test_killed_tasks_and_drivers_send_each_message_once(
    world: ReplayWorld, plan: ReplayPlan, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Tasks are killed before and after they send, or record, and the driver is with each third kill."""
    chance = random.Random(seed)
    lock = threading.Lock()
    kills = [0]

    def killed_now(share: float) -> bool:
        with lock:
            is_now = kills[0] < 25 and chance.random() < share
            kills[0] += is_now
            return is_now

    def killed(function: Callable[..., object], share: float) -> Callable[..., object]:
        def at_times(*arguments: object, **others: object) -> object:
            if killed_now(share):
                raise SystemExit(KILLED) if kills[0] % 3 == 0 else RuntimeError(KILLED)
            result = function(*arguments, **others)
            if killed_now(share):
                raise RuntimeError(KILLED)
            return result

        return at_times

    with monkeypatch.context() as patched:
        patched.setattr(QueueSender, "_send_batch", killed(QueueSender._send_batch, 0.08))
        patched.setattr(Ledger, "add_outcomes", killed(Ledger.add_outcomes, 0.05))
        patched.setattr(Ledger, "claim_sender", killed(Ledger.claim_sender, 0.05))
        while True:
            try:
                assert run(world, plan, chance.choice([0, 1, 2, 3, 4])) == Counts(MESSAGES, 0)
                break
            except (SystemExit, RuntimeError) as error:
                assert str(error) == KILLED
    assert kills[0] > 5
    check_sent_once_in_order(world)


class Suspended:
    """Suspends the first thread that sends a batch, before it does, until `continue_` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_reached, self.continue_ = threading.Event(), threading.Event()
        self._first = threading.Lock()
        send_batch = QueueSender._send_batch

        def suspended(sender: QueueSender, batch: Batch, connection: TrackedConnection, *, is_alone: bool) -> int:
            if self._first.acquire(blocking=False):
                self.connection = connection
                self.is_reached.set()
                assert self.continue_.wait(30)
            return send_batch(sender, batch, connection, is_alone=is_alone)

        monkeypatch.setattr(QueueSender, "_send_batch", suspended)


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("successor", ["task", "driver with tasks", "driver"])
def test_a_suspended_task_sends_nothing_after_its_successor_began(
    world: ReplayWorld, plan: ReplayPlan, monkeypatch: pytest.MonkeyPatch, successor: str, *, is_cut: bool
) -> None:
    """The successor waits for what is sent over the old connection; nothing is sent over a new one."""
    monkeypatch.setattr(replay_control, "_LOOK_SECONDS", 60.0)
    suspended = Suspended(monkeypatch)
    (task,) = claimed_tasks(world, plan, 1)
    old, old_results = in_thread(task)
    assert suspended.is_reached.wait(30)
    if is_cut:
        suspended.connection.peer.close()
    if successor == "task":
        new, new_results = in_thread(task)
        ledger = Ledger(world.lake, plan.replay_id)
        wait_until(lambda: ledger._sender_versions()[0] >= task.claim.version + 2, 30)
    else:
        workers = 2 if successor == "driver with tasks" else 0
        counts: list[Counts] = []
        new = threading.Thread(target=lambda: counts.append(run(world, plan, workers)), daemon=True)
        new.start()
        wait_until(lambda: Ledger(world.lake, plan.replay_id)._sender_versions()[0] > task.claim.version + 1, 30)
    assert is_cut or sum(map(len, world.received().values())) < MESSAGES
    new.join(0.5)
    assert is_cut or new.is_alive()
    suspended.continue_.set()
    old.join(30)
    new.join(60)
    assert not old.is_alive()
    assert not new.is_alive()
    assert isinstance(old_results[0].error, OtherProcessError)
    if successor == "task":
        assert new_results == [TaskResult(True)]
    else:
        assert counts == [Counts(MESSAGES, 0)]
    check_sent_once_in_order(world)


def test_two_processes_do_not_wait_for_each_other(
    world: ReplayWorld, plan: ReplayPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task whose batch is in doubt waits for the connections of its successor, which waits for its own."""
    monkeypatch.setattr(replay_control, "_LOOK_SECONDS", 60.0)
    suspended = Suspended(monkeypatch)
    (task,) = claimed_tasks(world, plan, 1)
    old, old_results = in_thread(task)
    assert suspended.is_reached.wait(30)
    wait_until(lambda: sum(map(len, world.received().values())) > MESSAGES // PARTS // 2, 30)
    suspended.connection.peer.close()
    list_connections = TrackedConnections.earlier_connection_count
    others = TrackedConnections(world.client.producer, world.client.admin, plan.replay_id)

    def replaced(connections: TrackedConnections, broker_name: str) -> int:
        connections.open(broker_name)  # and has checked that it is the owner
        if not others._current:
            Ledger(world.lake, plan.replay_id).claim_replay()
            others.open(broker_name)
        return list_connections(connections, broker_name)

    with others, monkeypatch.context() as patched:
        patched.setattr(TrackedConnections, "earlier_connection_count", replaced)
        suspended.continue_.set()
        old.join(20)
    assert isinstance(old_results[0].error, OtherProcessError)
    assert run(world, plan, 0) == Counts(MESSAGES, 0)
    check_sent_once_in_order(world)


def test_a_replaced_task_stops_when_it_looks_for_requests(
    world: ReplayWorld, plan: ReplayPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_control, "_LOOK_SECONDS", 0.05)
    (task,) = claimed_tasks(world, replace(plan, rate=20), 1)
    old, old_results = in_thread(replace(task, ledger_seconds=600.0))
    wait_until(lambda: sum(map(len, world.received().values())) > 0, 30)
    assert send_share(replace(task, plan=SharedValue(plan))) == TaskResult(True)
    old.join(30)
    assert isinstance(old_results[0].error, OtherProcessError)
    check_sent_once_in_order(world)


def test_outcomes_of_several_parts_are_added_together(world: ReplayWorld, plan: ReplayPlan) -> None:
    (task,) = claimed_tasks(world, plan, 1)
    version = world.lake.table("replay_messages").version()
    assert send_share(replace(task, ledger_seconds=600.0)) == TaskResult(True)
    assert world.lake.table("replay_messages").version() == version + 2  # the claim, and the rows
    check_sent_once_in_order(world)


def test_a_task_does_not_wait_for_the_other_tasks_of_its_run(world: ReplayWorld, plan: ReplayPlan) -> None:
    pace = threading.Event()
    first, second = claimed_tasks(world, plan, 2)
    add_replay_event(world.lake, plan.replay_id, ReplayEvent.THROTTLED, rate=10)
    slow, slow_results = in_thread(first)
    assert not pace.wait(0.5)
    add_replay_event(world.lake, plan.replay_id, ReplayEvent.THROTTLED, rate=0)
    assert send_share(replace(second, is_resumed=True)) == TaskResult(True)
    slow.join(30)
    assert slow_results == [TaskResult(True)]
    check_sent_once_in_order(world)


def test_a_claim_of_an_earlier_run_is_refused(world: ReplayWorld, plan: ReplayPlan) -> None:
    (task,) = claimed_tasks(world, plan, 1)
    claimed_tasks(world, plan, 1)
    assert isinstance(send_share(task).error, OtherProcessError)
    assert isinstance(send_share(replace(task, claim=SenderClaim(7, 1, 1))).error, OtherProcessError)
    assert not any(world.received().values())


def test_no_process_of_an_earlier_run_adds_rows(world: ReplayWorld, plan: ReplayPlan) -> None:
    first, second, driver = (Ledger(world.lake, plan.replay_id) for _ in range(3))
    claims = driver.claim_replay(2)
    assert first.claim_sender(claims[0])
    assert second.claim_sender(claims[1])
    first._commit_with_retries([], first._version)
    assert not Ledger(world.lake, plan.replay_id).claim_sender(claims[1])
    with pytest.raises(OtherProcessError):
        second._commit_with_retries([], second._version)
    Ledger(world.lake, plan.replay_id).claim_replay()
    for ledger in (first, driver):
        with pytest.raises(OtherProcessError):
            ledger.check_is_owner()
        with pytest.raises(OtherProcessError):
            ledger._commit_with_retries([], ledger._version)


def test_a_driver_takes_over_while_a_task_of_the_run_before_claims_its_share(
    world: ReplayWorld, plan: ReplayPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, late = (Ledger(world.lake, plan.replay_id) for _ in range(2))
    claims = first.claim_replay(2)
    read_versions = Ledger._sender_versions
    is_claimed = threading.Event()

    def read(ledger: Ledger) -> list[int]:
        found = read_versions(ledger)
        if not is_claimed.is_set():
            is_claimed.set()
            assert late.claim_sender(claims[1])
        return found

    monkeypatch.setattr(Ledger, "_sender_versions", read)
    assert Ledger(world.lake, plan.replay_id).claim_replay(3) == [
        SenderClaim(0, 2, 2),
        SenderClaim(1, 2, 3),
        SenderClaim(2, 2, 1),
    ]
    with pytest.raises(OtherProcessError):
        late.check_is_owner()


def test_a_stop_reaches_tasks_and_the_replay_is_resumed(
    world: ReplayWorld, plan: ReplayPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_control, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(tasks, "_LOOK_SECONDS", 0.05)
    replay = replay_run(world, replace(plan, rate=10), RestartingRunner(2))

    def stop_once_it_sends() -> None:
        wait_until(lambda: sum(map(len, world.received().values())) > 0, 60)
        replay.pace.stop()

    threading.Thread(target=stop_once_it_sends).start()
    sent, failed = replay.send_replay()
    assert 0 < sent < MESSAGES
    assert failed == 0
    state = read_replay_state(world.lake, plan.replay_id)
    assert state.event is ReplayEvent.STOPPED
    assert state.wants_stop
    assert run(world, plan, 3) == Counts(MESSAGES, 0)
    check_sent_once_in_order(world)


def test_a_rate_is_that_of_all_tasks_and_a_new_one_reaches_them(
    world: ReplayWorld, plan: ReplayPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_control, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(share_sender, "_WAVE_SECONDS", 0.2)
    began = datetime.datetime.now(datetime.UTC)
    thread = threading.Thread(target=run, args=(world, replace(plan, rate=10), 2))
    thread.start()
    wait_until(lambda: sum(map(len, world.received().values())) > 10, 60)
    assert (datetime.datetime.now(datetime.UTC) - began).total_seconds() > 0.7
    add_replay_event(world.lake, plan.replay_id, ReplayEvent.THROTTLED, rate=0)
    thread.join(30)  # at the first rate, it would take 40 s
    assert not thread.is_alive()
    check_sent_once_in_order(world)


def test_a_task_that_cannot_continue_stops_the_others(
    world: ReplayWorld, plan: ReplayPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_control, "_LOOK_SECONDS", 0.05)
    send_batch = QueueSender._send_batch

    def refused(sender: QueueSender, *arguments: object, **others: object) -> int:
        if sender.queue.queue_id == 1:
            raise ReplayError("the queue is gone", exit_code=ExitCode.REFUSED)
        return send_batch(sender, *arguments, **others)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(QueueSender, "_send_batch", refused)
        with pytest.raises(ReplayError, match="the queue is gone"):
            run(world, replace(plan, rate=20), 4)
    state = read_replay_state(world.lake, plan.replay_id)
    assert (state.event, state.detail) == (ReplayEvent.FAILED, "the queue is gone")
    assert len(world.ledger()) < MESSAGES
    assert run(world, plan, 0) == Counts(MESSAGES, 0)
    check_sent_once_in_order(world)


def test_queues_are_divided_by_their_messages(world: ReplayWorld, plan: ReplayPlan) -> None:
    def divide(condition: str, count: int, mapping: QueueMapping = QueueMapping.SAME) -> list[QueueShare]:
        changed = replace(plan, condition=condition, target=replace(plan.target, mapping=mapping))
        return divide_queues(planned(world, changed), count)

    assert divide("true", 2) == [QueueShare((0, 2), 0.5), QueueShare((1, 3), 0.5)]
    assert divide("queue_id = 3", 5) == [QueueShare((3,), 1.0)]
    assert divide("queue_id = 2 OR queue_id = 3 AND queue_offset < 5", 2)[1].part == pytest.approx(25 / 125)
    by_key = divide("queue_id = 3", 3, QueueMapping.KEY)
    assert [(each.queues, each.part) for each in by_key] == [((0, 3), 0.5), ((1,), 0.25), ((2,), 0.25)]


@pytest.mark.parametrize("rate", [40.0, 20.0])
def test_a_throttle_to_the_rate_of_one_task_is_applied(
    world: ReplayWorld, plan: ReplayPlan, monkeypatch: pytest.MonkeyPatch, rate: float
) -> None:
    monkeypatch.setattr(replay_control, "_LOOK_SECONDS", 0.05)
    pace = SendPace(80, share=0.5)
    owner = Ledger(world.lake, plan.replay_id)
    with replay_control.watch_replay(
        world.lake, plan.replay_id, pace, world.client.admin, None, print, owner.check_is_owner
    ):
        add_replay_event(world.lake, plan.replay_id, ReplayEvent.THROTTLED, rate=rate)
        wait_until(lambda: pace.total_rate == rate, 20)
    assert pace.rate == rate / 2


def test_a_driver_that_was_replaced_stops_no_task_of_its_successor(
    world: ReplayWorld, plan: ReplayPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_LOOK_SECONDS", 0.05)
    released = threading.Event()

    class WaitingRunner(ThreadRunner):
        def run(
            self, function: Callable[[Task], Result], tasks: Sequence[Task], *, is_io_bound: bool = False
        ) -> Iterator[tuple[int, Result]]:
            assert released.wait(60)
            return super().run(function, tasks, is_io_bound=is_io_bound)

    replay = replay_run(world, plan, WaitingRunner(2))
    failed: list[BaseException] = []

    def send_all() -> None:
        try:
            replay.send_replay()
        except ReplayError as error:
            failed.append(error)

    thread = threading.Thread(target=send_all)
    thread.start()
    wait_until(lambda: read_replay_state(world.lake, plan.replay_id).event is ReplayEvent.STARTED, 20)
    claimed_tasks(world, plan, 2, is_resumed=True)
    replay.pace.stop()
    let_pass(0.5, "several looks of the driver's thread")
    assert not read_replay_state(world.lake, plan.replay_id).wants_stop
    released.set()
    thread.join(60)
    assert [type(error) for error in failed] == [OtherProcessError]
    assert read_replay_state(world.lake, plan.replay_id).event is ReplayEvent.STARTED
    assert not read_replay_state(world.lake, plan.replay_id).wants_stop


def test_a_run_that_was_replaced_and_stopped_leaves_the_state_to_its_successor(
    world: ReplayWorld, plan: ReplayPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = replay_run(world, plan, ThreadRunner(2))

    def stop_after_another_claim(*_: object, **__: object) -> bool:
        Ledger(world.lake, plan.replay_id).claim_replay()
        return False

    monkeypatch.setattr(replay, "_send_by_tasks", stop_after_another_claim)
    with pytest.raises(OtherProcessError):
        replay.send_replay()
    assert read_replay_state(world.lake, plan.replay_id).event is ReplayEvent.STARTED


def test_many_senders_claim_at_the_same_time(world: ReplayWorld, plan: ReplayPlan) -> None:
    claims = Ledger(world.lake, plan.replay_id).claim_replay(24)
    with ThreadPoolExecutor(len(claims)) as pool:
        found = list(pool.map(lambda claim: Ledger(world.lake, plan.replay_id).claim_sender(claim), claims))
    assert found == [True] * len(claims)


def test_a_stop_by_a_host_whose_clock_is_behind_is_seen(
    world: ReplayWorld, plan: ReplayPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed_tasks(world, plan, 2)
    behind = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    with monkeypatch.context() as patched:
        patched.setattr(ledger_module, "_current_time", lambda: behind)
        add_replay_event(world.lake, plan.replay_id, ReplayEvent.STOPPING, detail="no route to the broker")
    assert read_replay_state(world.lake, plan.replay_id).wants_stop
