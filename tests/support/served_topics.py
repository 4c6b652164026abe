"""A topic of a running broker, and the lake that archives it: messages before and after a time, and a group."""

from __future__ import annotations

import datetime
import operator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.rocketmq import Admin, ClientOptions, OutgoingMessage, Producer, Puller
from commitlake.jobs.snapshot.command import main as snapshot
from commitlake.pipelines.offsets.live_queues import OffsetClient
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.remoting.routes import MessageQueue
from commitlake.schemas.remoting.topic_and_group_configs import SubscriptionGroupConfig
from commitlake.schemas.times import EPOCH, MILLISECOND
from tests.support.lakes import archive_store
from tests.support.topic_reading import make_topic, wait_for
from tests.support.waiting import let_pass

BROKER = "broker-a"


@dataclass
class ServedTopic:
    """A topic with some queues, and the lake of its broker.

    Attributes:
        name_servers: Name servers of the broker.
        store: The broker's store folder.
        lake: The lake.
        topic: Name of the topic.
        client: Client of the broker.
    """

    name_servers: str
    store: Path
    lake: Lake
    topic: str
    client: OffsetClient

    def make(self, queues: int, *groups: str) -> None:
        """Create the topic and the groups, and wait until the name server knows them."""
        make_topic(self.client.admin, self.topic, queues)
        self.client.puller.routing.forget_route(self.topic)
        for group in groups:
            self.client.admin.create_group(SubscriptionGroupConfig(group))

    @property
    def queues(self) -> list[MessageQueue]:
        """Return the topic's queues."""
        return sorted(self.client.puller.queues(self.topic))

    def send(self, count: int, prefix: str = "n") -> datetime.datetime:
        """Send messages to each queue, and return a time before the first of them and after all earlier ones."""
        let_pass(0.003, "what was sent before was stored in an earlier millisecond")
        stored: dict[MessageQueue, list[int]] = {queue: [] for queue in self.queues}
        with Producer("Served", ClientOptions(self.name_servers)) as producer:
            for number in range(count):
                for queue, offsets in stored.items():
                    message = OutgoingMessage(self.topic, b"x", keys=(f"{prefix}{number}",))
                    offsets.append(producer.send(message, queue=queue).queue_offset)
        for queue, offsets in stored.items():  # a broker acknowledges a message before it dispatches it to its queue
            wait_for(partial(self.client.puller.max_offset, queue), partial(operator.lt, offsets[-1]))
        first_ms = min(self.read(queue, offsets[0])[0].store_timestamp for queue, offsets in stored.items())
        return EPOCH + first_ms * MILLISECOND

    def read(self, queue: MessageQueue, start: int = 0) -> list[Message]:
        """Return all messages of a queue from an offset on."""
        return list(self.client.puller.read(queue, start, self.client.puller.max_offset(queue)))

    def commit(self, group: str, offset: int) -> None:
        """Set a group's offset in each queue."""
        for queue in self.queues:
            self.client.admin.offsets.commit(queue, group, offset)

    def offsets(self, group: str) -> list[int | None]:
        """Return the group's offset in each queue, as the broker reports it."""
        return [self.client.admin.offsets.committed(queue, group) for queue in self.queues]

    def keep(self) -> datetime.datetime:
        """Archive the new messages, take a snapshot of the groups, and return the time after that."""
        archive_store(self.store, self.lake, BROKER)
        return self.take_snapshot()

    def take_snapshot(self) -> datetime.datetime:
        """Take a snapshot of the groups, and return the time after that."""
        assert snapshot(["--lake", self.lake.root, "--namesrv", self.name_servers, "--quiet"]) == 0
        return datetime.datetime.now(datetime.UTC)


def offset_client_of(name_servers: str) -> OffsetClient:
    """Open clients of a broker, which the caller closes."""
    options = ClientOptions(name_servers, request_seconds=10)
    return OffsetClient(Admin(options), Puller("Served", options))
