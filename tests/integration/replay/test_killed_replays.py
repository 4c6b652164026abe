"""Replays into a real RocketMQ, while the replay and the broker are killed: each message is there once, in order.

    TEST_KILLS=100 TEST_MESSAGES=1000000 pytest tests/integration/replay/test_killed_replays.py

kills the replay 100 times and the broker 20 times while a million messages are sent. The long tests do the same through
a network that holds connections for longer than the replay waits for an answer, and cuts them while it still has what
was sent over them.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.delaying_proxy import DelayingProxy, Faults
from tests.servers.remoting import max_offset
from tests.servers.rocketmq import BrokerOptions, RocketMQ
from tests.support.counted_replays import check_each_once_in_order
from tests.support.kills import kill_count, message_count
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.replays import ReplayWorld, target_client
from tests.support.waiting import let_pass, wait_until

MESSAGES = message_count(20_000)
RATE = 1_000 if MESSAGES <= 20_000 else MESSAGES // 250
"""Messages per second: so slow that the kills come while it sends, also where a broker takes long to start again."""
MAX_SECONDS = 3.0 if MESSAGES <= 20_000 else 8.0
"""Maximum time before the replay is killed."""
TOPICS, QUEUES = 5, 4
OPTIONS = BrokerOptions(flush_disk_type="SYNC_FLUSH")
SENDING = 0.7
"""Share of the kills that come after the replay has sent something; the others come at any moment from its start on."""
FAULTS = Faults(hold=0.002, hold_seconds=17, cut=0.006, cut_seconds=5, large_bytes=2000)
SLOW = "its faults take minutes; each kind of fault is met each time by a short replay to broker_lite"
FINISHED, KILLED = 0, -9
PATIENCE_SECONDS = 300


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("5.5.0", False), id="5.5.0"),
        pytest.param(("5.5.0", True), id="5.5.0-slow", marks=[pytest.mark.long(SLOW), pytest.mark.timeout(7200)]),
        pytest.param(("4.9.7", True), id="4.9.7-slow", marks=[pytest.mark.long(SLOW), pytest.mark.timeout(7200)]),
    ],
)
def kind(request: pytest.FixtureRequest) -> tuple[str, bool]:
    """The version of the servers, and whether the network is slow."""
    found: tuple[str, bool] = request.param
    return found


@pytest.fixture(scope="module")
def servers(kind: tuple[str, bool], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQ]:
    """A broker that flushes before it answers, so that acknowledged messages survive its end."""
    with RocketMQ(kind[0], tmp_path_factory.mktemp("target"), options=OPTIONS) as running:
        yield running


@pytest.fixture(scope="module")
def network(kind: tuple[str, bool], servers: RocketMQ) -> Iterator[DelayingProxy]:
    """The network between the replay and the servers."""
    faults = FAULTS if kind[1] else Faults()
    with DelayingProxy(servers.name_server_address, servers.broker_address, faults) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def world(servers: RocketMQ, network: DelayingProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplayWorld]:
    """A lake of five topics, and one topic of the broker's that takes them all."""
    growing = GrowingLake(tmp_path_factory.mktemp("lake"))
    growing.write(shop_messages(MESSAGES, TOPICS))
    growing.archive()
    with target_client(servers.name_server_address) as client:
        made = ReplayWorld(growing.lake, network.name_server_address, client)
        made.make_topic(QUEUES)
        yield made


def start(world: ReplayWorld, *arguments: str) -> subprocess.Popen[bytes]:
    """Start `commitlake replay` as users do."""
    command = [sys.executable, "-m", "commitlake.jobs.cli.main", "replay", *arguments]
    with Path(world.lake.root, "printed.txt").open("ab") as printed:
        command += ["--lake", world.lake.root, "--rate", str(RATE)]
        return subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT)


def begin(world: ReplayWorld) -> subprocess.Popen[bytes]:
    """Start a replay of all messages."""
    target = ["--namesrv", world.name_servers, "--to-topic", world.topic, "--yes"]
    return start(world, *target, "--where", "true")


def test_killed_replays_deliver_each_message_once_in_order(
    world: ReplayWorld, servers: RocketMQ, network: DelayingProxy, kind: tuple[str, bool]
) -> None:
    chance = random.Random(MESSAGES)
    kills, broker_kills = kill_count(2), kill_count(1, share=5)
    ends = ["replay"] * kills + ["broker"] * broker_kills
    chance.shuffle(ends)
    process = begin(world)
    codes = []
    for end in ends:
        # A replay that has not begun to send finds no topic without the broker, and ends.
        if end == "broker" or chance.random() < SENDING:
            before = _sent(world, servers)
            wait_until(lambda: _sent(world, servers) > before or process.poll() is not None, PATIENCE_SECONDS)  # noqa: B023
        let_pass(chance.uniform(0.0, MAX_SECONDS), "it is killed at any moment")
        if end == "broker":
            servers.kill_broker()
            let_pass(chance.uniform(0.0, 1.0), "it is away for a while")
            servers.start_broker()
            continue
        process.kill()
        codes.append(process.wait())
        if codes[-1] == FINISHED:
            break
        process = start(world, "resume", world.replay_id()) if _is_planned(world) else begin(world)
    assert process.wait() == FINISHED
    assert codes.count(KILLED) >= min(2, kills)
    last = Path(world.lake.root, "printed.txt").read_text().splitlines()[-1]
    assert f"{MESSAGES:,} messages read back from the target and compared with the lake: no differences" in last
    print(f"{kind}: {codes.count(KILLED)} kills, {network.held} writes held, {network.cuts} connections cut; {last}")
    assert not kind[1] or network.held + network.cuts
    check_each_once_in_order(world, servers, QUEUES)


def _sent(world: ReplayWorld, servers: RocketMQ) -> int:
    return sum(max_offset(servers.broker_address, world.topic, queue) for queue in range(QUEUES))


def _is_planned(world: ReplayWorld) -> bool:
    return Path(world.lake.uri("replays"), "_delta_log", "00000000000000000001.json").exists()
