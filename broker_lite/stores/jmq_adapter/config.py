"""What a broker in JMQ's layout knows of topics and groups, and how far they are.

JMQ keeps topics and applications in a registry of its own, outside the broker, and copies them to brokers. This broker
is its own registry: `config/topics.json` and `config/subscriptionGroup.json`, in RocketMQ's form.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from commitlake.broker_lite.stores.jmq.options import MAX_QUEUES, JournalOptions
from commitlake.broker_lite.stores.jmq_adapter.consumed import ConsumedOffsets
from commitlake.broker_lite.stores.rocketmq.config_files import DelayOffsets, Groups, Topics


class Registry:
    """Topics and groups on the disk."""

    def __init__(self, root: Path, clock: Callable[[], int], options: JournalOptions) -> None:
        """Read the files of the store at `root`.

        Raises:
            ConfigFileError: if one cannot be read, nor its `.bak`.
        """
        self.topics = Topics(root, clock)
        self.groups = Groups(root, clock)
        self._options = options

    def queue_count_of(self, topic: str) -> int:
        """How many queues of a topic are written to."""
        entry = self.topics.entries.get(topic, {})
        count: int = entry.get("writeQueueNums", self._options.queue_count_of(topic))
        return max(1, min(count, MAX_QUEUES))

    def save_changed(self) -> None:
        """Write what has changed."""
        for file in (self.topics, self.groups):
            file.save_changed()


class JmqConfig:
    """All tables that the broker asks for.

    Attributes:
        consumer_offsets: how far groups are.
        delay_offsets: always empty: JMQ has no delay levels.
    """

    def __init__(self, root: Path, clock: Callable[[], int], registry: Registry, offsets: ConsumedOffsets) -> None:
        self.topics = registry.topics
        self.groups = registry.groups
        self.consumer_offsets = offsets
        self.delay_offsets = DelayOffsets(root, clock)
