"""`lake.replay` of DataFrames: tasks of the session send what an analyst has filtered and joined."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import commitlake
from commitlake.pipelines.replay.ledger import Ledger
from commitlake.schemas.errors import UsageError
from tests.servers.broker_lite import BrokerLite
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.replays import ReplayWorld, target_client

MESSAGES, QUEUES = 400, 4


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


def test_a_joined_frame_is_sent_once_by_tasks(world: ReplayWorld, spark: SparkSession) -> None:
    lake = commitlake.open(world.lake.root, spark)
    topics = spark.createDataFrame([("topic-01", "own"), ("topic-03", "own")], ["topic", "owner"])
    frame = lake.messages(body="text").join(topics, "topic").where(F.col("queue_offset") % 2 == 0)
    arguments: dict[str, Any] = {"name": "joined", "namesrv": world.name_servers, "to_topic": world.topic}
    planned = lake.replay(frame, **arguments)
    wanted = {
        queue: [
            row["physical_offset"]
            for row in world.archived()
            if row["topic"] in ("topic-01", "topic-03") and row["queue_offset"] % 2 == 0 and row["queue_id"] == queue
        ]
        for queue in range(QUEUES)
    }
    count = sum(map(len, wanted.values()))
    assert (planned.state, planned.messages, planned.groups) == ("dry run", count, {world.topic: ()})
    result = lake.replay(frame, dry_run=False, **arguments)
    assert (result.state, result.sent, result.differences) == ("finished", count, 0)
    assert Ledger(world.lake, "joined").count_senders() > 0
    assert world.origins() == wanted
    again = lake.replay(frame.orderBy(F.rand()), dry_run=False, **arguments)
    assert (again.state, again.sent) == ("finished", count)
    assert world.origins() == wanted
    twice = spark.createDataFrame([("topic-01", "a"), ("topic-01", "b")], ["topic", "owner"])
    with pytest.raises(UsageError, match="frame: expected each message once"):
        lake.replay(lake.messages().join(twice, "topic"), name="twice")
    with pytest.raises(UsageError, match="expected one column 'broker', found none"):
        lake.replay(lake.messages(columns=["physical_offset"]), name="none")


def test_a_session_needs_a_rate_and_not_a_speed(world: ReplayWorld, spark: SparkSession) -> None:
    lake = commitlake.open(world.lake.root, spark)
    with pytest.raises(UsageError, match="speed cannot be used with tasks on Spark"):
        lake.replay(lake.messages(), name="fast", namesrv=world.name_servers, speed=2.0, dry_run=False)
