"""Tasks of a replay, and its driver, are killed at any moment; tasks outlive their driver, and send on.

TEST_KILLS=40 pytest tests/integration/replay/test_killed_tasks.py
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from commitlake.jobs.cli.process import list_descendant_ids
from commitlake.jobs.replay import send
from commitlake.pipelines.replay.ledger import add_replay_event, read_replay_state
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.tables.replays import ReplayEvent
from tests.servers.broker_lite import BrokerLite
from tests.support.kills import kill_count
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.replays import ReplayWorld, target_client
from tests.support.waiting import let_pass, wait_until

MESSAGES, RATE, QUEUES = 20_000, 150, 4
SHARE_OF_TASKS = 0.6
PATIENCE_SECONDS = 300
pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplayWorld]:
    """A lake of five topics, and one topic of broker_lite that takes them all."""
    growing = GrowingLake(tmp_path_factory.mktemp("lake"))
    growing.write(shop_messages(MESSAGES))
    growing.archive()
    with (
        BrokerLite(tmp_path_factory.mktemp("target")) as broker,
        target_client(broker.name_server_address) as client,
    ):
        made = ReplayWorld(growing.lake, broker.name_server_address, client)
        made.make_topic(QUEUES)
        yield made


def start(world: ReplayWorld, tasks: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.support.replay_processes", world.lake.root, world.replay_id(), str(tasks)]
    with Path(world.lake.root, "printed.txt").open("ab") as printed:
        return subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT)


@pytest.mark.long("killed executors and drivers are tested each time in test_replays_on_spark")
def test_killed_tasks_and_drivers_deliver_each_message_once_in_order(
    world: ReplayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(send, "_run_replay", lambda *_, **__: ExitCode.OK)
        assert world.replay("--where", "true", "--rate", str(RATE)) == 0
    chance = random.Random(MESSAGES)
    driver = start(world, 2)
    kills = {"task": 0, "driver": 0}
    tasks = 2
    for _ in range(kill_count(4)):
        before = _sent(world)
        is_of_task = bool(tasks) and chance.random() < SHARE_OF_TASKS
        wait_until(partial(_has_sent_or_ended, world, driver, before, needs_task=is_of_task), PATIENCE_SECONDS)
        assert driver.poll() is None, Path(world.lake.root, "printed.txt").read_text()
        let_pass(chance.uniform(0.0, 1.5), "it is killed at any moment")
        if is_of_task:
            kills["task"] += 1
            with suppress(ProcessLookupError, IndexError):
                os.kill(chance.choice(_tasks(driver.pid)), signal.SIGKILL)
            continue
        kills["driver"] += 1
        driver.kill()
        assert driver.wait() == -signal.SIGKILL
        tasks = chance.choice([0, 1, 2, 3])
        driver = start(world, tasks)
    add_replay_event(world.lake, world.replay_id(), ReplayEvent.THROTTLED, rate=0)
    assert driver.wait(PATIENCE_SECONDS) == 0, Path(world.lake.root, "printed.txt").read_text()
    print(f"killed: {kills}")
    assert read_replay_state(world.lake, world.replay_id()).event is ReplayEvent.FINISHED
    expected: dict[int, list[int]] = {queue: [] for queue in range(QUEUES)}
    for row in world.archived():
        expected[row["queue_id"]].append(row["physical_offset"])
    assert world.origins() == expected
    ledger = {(row["target_queue_id"], row["target_offset"]): row["physical_offset"] for row in world.ledger()}
    assert len(world.ledger()) == MESSAGES
    assert ledger == {
        (queue, number): origin for queue, found in expected.items() for number, origin in enumerate(found)
    }


def _has_sent_or_ended(world: ReplayWorld, driver: subprocess.Popen[bytes], before: int, *, needs_task: bool) -> bool:
    if driver.poll() is not None:
        return True
    return _sent(world) > before and (not needs_task or bool(_tasks(driver.pid)))


def _tasks(driver: int) -> list[int]:
    return [pid for pid in list_descendant_ids(driver) if b"spawn_main" in _command_line(pid)]


def _command_line(pid: int) -> bytes:
    with suppress(OSError):  # it has ended
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _sent(world: ReplayWorld) -> int:
    return sum(map(world.client.puller.max_offset, world.client.puller.queues(world.topic)))
