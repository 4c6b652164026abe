"""A lake, and a broker to which its messages are sent."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.rocketmq import Admin, ClientOptions, Producer, ProducerOptions, Puller
from commitlake.connectors.rocketmq.log_extent import log_extent
from commitlake.jobs.replay.command import main as replay
from commitlake.pipelines.replay.plan_part_rows import COLUMNS
from commitlake.pipelines.replay.sending.queue_sender import TargetClient
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.tables.messages import MESSAGES
from tests.support.topic_reading import make_topic

SCHEMA = arrow_schema(MESSAGES.select_columns(COLUMNS))
AT = datetime.datetime(2026, 11, 17, 14, 0, 0, 123_000, datetime.UTC)
_numbers = itertools.count()


def rows_of(properties: list[Mapping[str, str]], flags: list[int] | None = None, **others: object) -> pa.Table:
    """Return numbered rows of `messages`."""
    rows = [
        {
            "broker": "broker-a",
            "physical_offset": 100 * number,
            "msg_id": f"ID{number}",
            "topic": "orders",
            "queue_id": number % 2,
            "queue_offset": number // 2,
            "store_timestamp": AT,
            "born_timestamp": AT - datetime.timedelta(seconds=1),
            "sys_flag": 0,
            "flag": 0 if flags is None else flags[number],
            "properties": list(found.items()),
            "format": "rocketmq",
        }
        | others
        for number, found in enumerate(properties)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


@contextmanager
def target_client(name_servers: str) -> Iterator[TargetClient]:
    """Open clients of a target."""
    options = ClientOptions(name_servers, request_seconds=10)
    with (
        Producer("Replays", options, ProducerOptions(send_seconds=10)) as producer,
        Puller("Replays", options) as puller,
        Admin(options) as admin,
    ):
        yield TargetClient(producer, puller, admin, name_servers)


@dataclass
class ReplayWorld:
    """A lake, and a topic of a running broker.

    Attributes:
        lake: the lake.
        name_servers: name servers of the target.
        client: client of the target.
        topic: topic of the target, which no other test uses.
    """

    lake: Lake
    name_servers: str
    client: TargetClient
    topic: str = field(default_factory=lambda: f"Replayed{next(_numbers)}")

    def make_topic(self, queues: int = 4, *, perm: int = 6) -> None:
        """Create the topic, and wait until the name server knows it."""
        make_topic(self.client.admin, self.topic, queues, perm=perm)

    def replay(self, *arguments: str, into: str | None = None) -> int:
        """Run `commitlake replay` without confirmation."""
        place = ["--lake", self.lake.root, "--namesrv", self.name_servers, "--to-topic", into or self.topic]
        return replay([*place, "--yes", "--quiet", *arguments])

    def act(self, action: str, *arguments: str) -> int:
        """Run another action of `replay`."""
        return replay([action, *arguments, "--lake", self.lake.root])

    def received(self, topic: str | None = None) -> dict[int, list[Message]]:
        """Return all messages of the topic by queue, once the broker has dispatched all acknowledged messages."""
        puller, admin = self.client.puller, self.client.admin
        for broker in admin.route(topic or self.topic).broker_datas:
            log_extent(admin, broker.broker_name)
        return {
            queue.queue_id: list(puller.read(queue, 0, puller.max_offset(queue)))
            for queue in puller.queues(topic or self.topic)
        }

    def origins(self) -> dict[int, list[int]]:
        """Return the original physical offsets of the messages of each queue, in order."""
        return {
            queue: [int(message.properties["ORIGIN_PHYSICAL_OFFSET"]) for message in messages]
            for queue, messages in self.received().items()
        }

    def archived(self) -> list[dict[str, Any]]:
        """Return all messages of the lake, in the order of the log."""
        rows: list[dict[str, Any]] = DeltaTable(self.lake.uri("messages")).to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: row["physical_offset"])

    def ledger(self) -> list[dict[str, Any]]:
        """Return the rows of `replay_messages`, in the order of the log."""
        rows: list[dict[str, Any]] = DeltaTable(self.lake.uri("replay_messages")).to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: row["physical_offset"])

    def replay_id(self) -> str:
        """Return the id of the newest replay."""
        rows = DeltaTable(self.lake.uri("replays")).to_pyarrow_table().sort_by("at").to_pylist()
        return str([row["replay_id"] for row in rows if row["event"] == "planned"][-1])
