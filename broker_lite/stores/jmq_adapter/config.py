"""Topics, groups and offsets of a broker in JMQ's layout.

JMQ stores topics and applications in a registry outside the broker, and copies them to brokers. This broker is its own
registry: `config/topics.json` and `config/subscriptionGroup.json`, in RocketMQ's format.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from commitlake.broker_lite.stores.jmq.options import MAX_QUEUES, JournalOptions
from commitlake.broker_lite.stores.jmq_adapter.consumed_offsets import ConsumedOffsets
from commitlake.broker_lite.stores.rocketmq.config_files import DelayOffsets, Groups, Topics


class Registry:
    """Topics and groups on disk."""

    def __init__(self, root: Path, clock: Callable[[], int], options: JournalOptions) -> None:
        """Read the files of the store at `root`.

        Raises:
            ConfigFileError: if a file and its `.bak` cannot be read.
        """
        self.topics = Topics(root, clock)
        self.groups = Groups(root, clock)
        self._options = options

    def queue_count_of(self, topic: str) -> int:
        """Return the number of queues of a topic for producers."""
        entry = self.topics.entries.get(topic, {})
        count: int = entry.get("writeQueueNums", self._options.queue_count_of(topic))
        return max(1, min(count, MAX_QUEUES))

    def save_changed(self) -> None:
        """Save changed tables."""
        for file in (self.topics, self.groups):
            file.save_changed()


class JmqConfig:
    """All tables that the broker uses.

    Attributes:
        consumer_offsets: offsets of groups.
        delay_offsets: always empty, because JMQ has no delay levels.
    """

    def __init__(self, root: Path, clock: Callable[[], int], registry: Registry, offsets: ConsumedOffsets) -> None:
        self.topics = registry.topics
        self.groups = registry.groups
        self.consumer_offsets = offsets
        self.delay_offsets = DelayOffsets(root, clock)
