"""A replay into a real RocketMQ that is undone for a group: the messages that the group then receives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.connectors.rocketmq import OutgoingMessage
from commitlake.schemas.remoting.topic_and_group_configs import SubscriptionGroupConfig
from tests.servers.java_programs import run_java
from tests.servers.rocketmq import VERSIONS, RocketMQ
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.replays import ReplayWorld, target_client

GROUP, QUEUES, MESSAGES, BEFORE, AFTER = "Undone", 4, 400, 3, 2


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQ]:
    """The target."""
    with RocketMQ(VERSIONS[0], tmp_path_factory.mktemp("undone-")) as running:
        yield running


@pytest.mark.long("undone replays have unit tests, and a group receives from offsets that are set each time")
def test_a_group_receives_no_message_of_an_undone_replay(servers: RocketMQ, tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(MESSAGES))
    growing.archive()
    with target_client(servers.name_server_address) as client:
        world = ReplayWorld(growing.lake, servers.name_server_address, client)
        world.make_topic(QUEUES)
        client.admin.create_group(SubscriptionGroupConfig(GROUP))
        queues = sorted(client.puller.queues(world.topic))

        def send(count: int) -> None:
            for queue in queues:
                for _ in range(count):
                    client.producer.send(OutgoingMessage(world.topic, b"other"), queue=queue)

        def undo() -> int:
            return world.act("undo", world.replay_id(), "--apply", "--yes", "--quiet")

        send(BEFORE)
        for queue in queues:
            client.admin.offsets.commit(queue, GROUP, 0)
        assert world.replay("--where", "true") == 0
        send(AFTER)
        sent = MESSAGES // QUEUES
        assert undo() == 3  # what others sent before is not skipped
        assert [client.admin.offsets.committed(queue, GROUP) for queue in queues] == [0] * QUEUES
        for queue in queues:
            client.admin.offsets.commit(queue, GROUP, BEFORE)
        assert undo() == 0
        assert [client.admin.offsets.committed(queue, GROUP) for queue in queues] == [BEFORE + sent] * QUEUES
        expected = QUEUES * AFTER
        arguments = [world.name_servers, "concurrent", world.topic, GROUP, "*", "1", str(expected), "60"]
        rows = run_java(servers, "Consumers", arguments)
        assert sorted(row["queue_id"] for row in rows) == sorted(list(range(QUEUES)) * AFTER)
        first = BEFORE + sent
        assert {row["queue_offset"] for row in rows} == {first, first + 1}
