"""Replays into a real RocketMQ by tasks of a Spark cluster, while executors, drivers and the broker are killed.

TEST_KILLS=40 TEST_MESSAGES=100000 pytest tests/integration/replay/test_replays_on_spark.py
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from commitlake.jobs.cli.process import list_descendant_ids
from commitlake.pipelines.replay.ledger import add_replay_event, read_replay_state
from commitlake.schemas.tables.replays import ReplayEvent
from tests.servers.remoting import max_offset
from tests.servers.rocketmq import BrokerOptions, RocketMQ
from tests.servers.spark_classes import class_archive, quick_start
from tests.servers.spark_cluster import SparkCluster
from tests.support.counted_replays import check_each_once_in_order
from tests.support.kills import kill_count, message_count
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.replays import ReplayWorld, target_client
from tests.support.topic_reading import wait_for
from tests.support.waiting import let_pass, wait_until

MESSAGES = message_count(20_000)
RATE = 200
"""Messages per second while processes are killed: so slow that the kills come while it sends."""
TOPICS, QUEUES = 5, 4
OPTIONS = BrokerOptions(flush_disk_type="SYNC_FLUSH")
FINISHED = 0
PATIENCE_SECONDS = 400
SHARE_OF_EXECUTORS, SHARE_OF_DRIVERS = 0.6, 0.25
"""Shares of the kills; the others are the broker's."""
pytestmark = pytest.mark.timeout(7200)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQ]:
    """A broker that flushes before it answers, so that acknowledged messages survive its end."""
    with RocketMQ("5.5.0", tmp_path_factory.mktemp("target"), options=OPTIONS) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Two workers with a core each."""
    with SparkCluster(tmp_path_factory.mktemp("cluster"), workers=2) as running:
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


def start(world: ReplayWorld, cluster: SparkCluster, *arguments: str) -> subprocess.Popen[bytes]:
    """Start `commitlake replay --spark` on the cluster."""
    command = [sys.executable, "-m", "commitlake.jobs.launch.submit", "--master", cluster.master]
    quick = f"spark.executor.defaultJavaOptions={quick_start(class_archive())}"
    command += ["--executor-memory", "1g", "--conf", quick, "--conf", "spark.task.maxFailures=1000"]
    command += ["--conf", f"spark.pyspark.python={sys.executable}"]
    command += ["replay", *arguments, "--lake", world.lake.root, "--spark"]
    with Path(world.lake.root, "printed.txt").open("ab") as printed:
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        return subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT, env=environment)


def kill_driver(driver: subprocess.Popen[bytes]) -> None:
    """Kill the driver and its JVM."""
    for pid in [*list_descendant_ids(driver.pid), driver.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert driver.wait() == -signal.SIGKILL


def test_killed_executors_and_drivers_deliver_each_message_once_in_order(
    world: ReplayWorld, servers: RocketMQ, cluster: SparkCluster
) -> None:
    chance = random.Random(MESSAGES)
    kills: Counter[str] = Counter()
    target = ["--namesrv", world.name_servers, "--to-topic", world.topic, "--yes", "--where", "true"]
    driver = start(world, cluster, *target, "--rate", str(RATE))
    short = ["executor", "driver", "broker", "executor"]
    wanted = kill_count(len(short))
    for number in range(wanted):
        kind = short[number] if wanted == len(short) else _choose(chance)
        before = _sent(world, servers)
        wait_until(lambda: _sent(world, servers) > before or driver.poll() is not None, PATIENCE_SECONDS)  # noqa: B023
        assert driver.poll() is None, Path(world.lake.root, "printed.txt").read_text()
        let_pass(chance.uniform(0.0, 2.0), "it is killed at any moment")
        kills[kind] += 1
        match kind:
            case "executor":
                # Those of a driver that was killed end, before the next driver has its own.
                executors = wait_for(cluster.executors, bool, PATIENCE_SECONDS)
                with suppress(ProcessLookupError):
                    os.kill(chance.choice(executors), signal.SIGKILL)
            case "driver":
                kill_driver(driver)
                driver = start(world, cluster, "resume", world.replay_id())
            case _:
                servers.kill_broker()
                let_pass(chance.uniform(0.0, 1.0), "it is away for a while")
                servers.start_broker()
    add_replay_event(world.lake, world.replay_id(), ReplayEvent.THROTTLED, rate=0)
    assert driver.wait(PATIENCE_SECONDS) == FINISHED, Path(world.lake.root, "printed.txt").read_text()
    last = Path(world.lake.root, "printed.txt").read_text().splitlines()[-1]
    assert f"{MESSAGES:,} messages read back from the target and compared with the lake: no differences" in last
    print(f"{dict(kills)} killed; {last}")
    check_each_once_in_order(world, servers, QUEUES)
    assert read_replay_state(world.lake, world.replay_id()).event is ReplayEvent.FINISHED


def _choose(chance: random.Random) -> str:
    number = chance.random()
    return (
        "executor"
        if number < SHARE_OF_EXECUTORS
        else "driver"
        if number < SHARE_OF_EXECUTORS + SHARE_OF_DRIVERS
        else "broker"
    )


def _sent(world: ReplayWorld, servers: RocketMQ) -> int:
    return sum(max_offset(servers.broker_address, world.topic, queue) for queue in range(QUEUES))
