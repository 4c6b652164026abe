"""A consumer group that consumes some messages and fails on others, as a test requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from commitlake.connectors.rocketmq import ClientOptions, Puller
from commitlake.connectors.rocketmq.network import Network
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.headers import SendBackRequest
from commitlake.schemas.remoting.routes import MessageQueue


class FailingGroup:
    """A group that behaves like RocketMQ's own consumer: it sends back failed messages, and moves its offsets.

    Attributes:
        puller: puller of the group.
    """

    def __init__(self, group: str, options: ClientOptions) -> None:
        self.puller = Puller(group, options)
        self._group = group
        self._network = Network(options)

    def close(self) -> None:
        """Close all connections."""
        self.puller.close()
        self._network.close()

    def messages(self, topic: str) -> list[tuple[MessageQueue, Message]]:
        """Return all messages of a topic."""
        return [
            (queue, message)
            for queue in self.puller.queues(topic)
            for message in self.puller.read(queue, 0, self.puller.max_offset(queue))
        ]

    def send_back(self, queue: MessageQueue, message: Message, delay_level: int) -> None:
        """Fail on a message, which is retried after the delay of a level, or becomes a dead letter with -1."""
        header = SendBackRequest(message.physical_offset, self._group, delay_level, message.msg_id, queue.topic)
        address = self.puller.routing.master_address(queue.broker_name)
        self._network.send_and_wait(address, RequestCode.CONSUMER_SEND_MSG_BACK, header)

    def pass_all(self, topic: str) -> None:
        """Move the group's offsets to the ends of a topic's queues."""
        for queue in self.puller.queues(topic):
            self.puller.commit_offset(queue, self.puller.max_offset(queue))


@contextmanager
def failing_group(group: str, name_servers: str) -> Iterator[FailingGroup]:
    """Open a group, and close it."""
    made = FailingGroup(group, ClientOptions(name_servers))
    try:
        yield made
    finally:
        made.close()
