"""A message that a real RocketMQ calls too large: a replay and the sink pass over it, and send the others."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from commitlake.connectors.rocketmq.sink.options import SinkOptions
from tests.servers.rocketmq import VERSIONS, BrokerOptions, RocketMQ
from tests.support.lakes import GrowingLake
from tests.support.logs import new_message
from tests.support.replays import ReplayWorld, target_client
from tests.support.waiting import wait_until

LIMIT = 64 << 10
OPTIONS = BrokerOptions(max_message_size_bytes=LIMIT, segment_size_bytes=16 << 20)
LARGE, COUNT = 5, 12
"""The number of the message that is too large, and how many there are."""


@pytest.mark.long("a broker of its own; refused messages of replays and of the sink have unit tests")
@pytest.mark.parametrize(
    "version",
    [VERSIONS[0], pytest.param(VERSIONS[1], marks=pytest.mark.long("the same path as with the newest RocketMQ"))],
)
def test_one_message_that_is_too_large_does_not_stop_the_others(version: str, tmp_path: Path) -> None:
    bodies = [bytes(2 * LIMIT if number == LARGE else 100) for number in range(COUNT)]
    growing = GrowingLake(tmp_path / "grown")
    growing.write(new_message(number, body=body, queue_id=0) for number, body in enumerate(bodies))
    growing.archive()
    with (
        RocketMQ(version, tmp_path / "server", options=OPTIONS) as servers,
        target_client(servers.name_server_address) as client,
    ):
        world = ReplayWorld(growing.lake, servers.name_server_address, client)
        world.make_topic(1)
        assert world.replay("--where", "true", "--verify") == 3
        assert [row["outcome"] == "sent" for row in world.ledger()] == [number != LARGE for number in range(COUNT)]
        assert len(world.received()[0]) == COUNT - 1

        rows = pa.RecordBatch.from_pydict(
            {"body": bodies, "topic": [world.topic] * COUNT, "target_broker": [servers.broker_name] * COUNT,
             "target_queue_id": pa.array([0] * COUNT, pa.int32())}
        )  # fmt: skip
        with SinkOptions.parse({"namesrv": servers.name_server_address}).open_sender() as sender:
            statuses = sender.send(rows).column("status").to_pylist()
        assert statuses == ["refused" if number == LARGE else "sent" for number in range(COUNT)]
        wait_until(lambda: len(world.received()[0]) == 2 * (COUNT - 1), 60)
