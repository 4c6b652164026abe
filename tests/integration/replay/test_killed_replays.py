"""Replays into a real RocketMQ, while the replay and the broker are killed: each message is there once, in order."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.java_programs import consume_all
from tests.servers.rocketmq import BrokerOptions, RocketMQ
from tests.support.kills import kill_count
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.replays import ReplayWorld, target_client
from tests.support.waiting import let_pass

MESSAGES = 20_000
RATE = 2_000
"""Messages per second: so slow that the kills come while it sends."""
TOPICS, QUEUES = 5, 4
OPTIONS = BrokerOptions(flush_disk_type="SYNC_FLUSH")
FINISHED, KILLED = 0, -9


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQ]:
    """A broker that flushes before it answers, so that what it has acknowledged survives its end."""
    with RocketMQ("5.5.0", tmp_path_factory.mktemp("target"), options=OPTIONS) as running:
        yield running


@pytest.fixture(scope="module")
def world(servers: RocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplayWorld]:
    """A lake of five topics, and one topic of the broker's that takes them all."""
    growing = GrowingLake(tmp_path_factory.mktemp("lake"))
    growing.write(shop_messages(MESSAGES, TOPICS))
    growing.archive()
    with target_client(servers.name_server_address) as client:
        made = ReplayWorld(growing.lake, servers.name_server_address, client)
        made.make_topic(QUEUES)
        yield made


def start(world: ReplayWorld, *arguments: str) -> subprocess.Popen[bytes]:
    """Start `commitlake replay` as users do."""
    command = [sys.executable, "-m", "commitlake.jobs.cli.main", "replay", *arguments, "--quiet"]
    return subprocess.Popen([*command, "--lake", world.lake.root, "--rate", str(RATE)])


def begin(world: ReplayWorld) -> subprocess.Popen[bytes]:
    """Start a replay of all messages."""
    target = ["--namesrv", world.name_servers, "--to-topic", world.topic, "--yes"]
    return start(world, *target, "--where", "true")


def test_each_message_is_there_once_in_order_whatever_is_killed(world: ReplayWorld, servers: RocketMQ) -> None:
    chance = random.Random(MESSAGES)
    kills, broker_kills = kill_count(6), kill_count(1, share=5)
    ends = ["replay"] * kills + ["broker"] * broker_kills
    chance.shuffle(ends)
    process = begin(world)
    codes = []
    for end in ends:
        let_pass(chance.uniform(0.5, 3.0), "it is killed at any moment")
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
    assert codes.count(KILLED) >= min(3, kills)
    rows = world.archived()
    expected: dict[int, list[int]] = {queue: [] for queue in range(QUEUES)}
    for row in rows:
        expected[row["queue_id"]].append(row["physical_offset"])
    found = origins_for_java(servers, world.topic)
    assert {queue: len(origins) for queue, origins in found.items()} == {
        queue: len(origins) for queue, origins in expected.items()
    }
    assert found == expected
    ledger = world.ledger()
    assert [row["physical_offset"] for row in ledger] == [row["physical_offset"] for row in rows]
    places = {(row["target_queue_id"], row["target_offset"]): row["physical_offset"] for row in ledger}
    assert places == {(queue, number): origin for queue in found for number, origin in enumerate(found[queue])}


def origins_for_java(servers: RocketMQ, topic: str) -> dict[int, list[int]]:
    """Of each queue, the physical offsets that its messages had at first, as RocketMQ's own client gets them."""
    found: dict[int, list[int]] = {queue: [] for queue in range(QUEUES)}
    for row in consume_all(servers, topic):
        found[row["queue_id"]].append(int(row["properties"]["ORIGIN_PHYSICAL_OFFSET"]))
    return found


def _is_planned(world: ReplayWorld) -> bool:
    return Path(world.lake.replays, "_delta_log", "00000000000000000001.json").exists()
