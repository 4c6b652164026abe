"""The topics that a broker has: those it starts with, those it makes, and who may read and write them.

Source: TopicConfigManager, TopicValidator (5.5.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_lite.broker.options import BrokerOptions
from broker_lite.store.config_files import Topics
from broker_lite.store.topic_names import is_valid_topic
from schemas.layouts.topics import (
    AUTO_CREATE_TOPIC,
    BOLTMQ_SCHEDULE_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_PREFIX,
    TRACE_TOPIC,
)
from schemas.remoting.configs import DataVersion, TopicConfig, TopicConfigs
from schemas.remoting.json_fields import from_json, to_json
from schemas.remoting.routes import PERM_INHERIT, PERM_READ, PERM_WRITE

READ_WRITE = PERM_READ | PERM_WRITE
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
TEMPLATE_QUEUES = 8
SCHEDULE_QUEUES = 18
CLUSTER_QUEUES = 16

TRANSACTION_TOPICS = {HALF_TOPIC: 1, OP_TOPIC: 1, GIVEN_UP_TOPIC: 1}
"""Where messages are kept that somebody has yet to decide, or that nobody decided."""

NOT_FOR_PRODUCERS = frozenset(
    {SCHEDULE_TOPIC, BOLTMQ_SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, GIVEN_UP_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC}
)
"""What only the broker itself writes."""
_SYSTEM_TOPICS = NOT_FOR_PRODUCERS | {AUTO_CREATE_TOPIC, "BenchmarkTest", TRACE_TOPIC}


class TopicTable:
    """Topics by name, kept in `topics.json`."""

    def __init__(self, config: Topics, options: BrokerOptions, layout_topics: Mapping[str, int]) -> None:
        """Make the topics that every broker has.

        Args:
            config: the table on the disk.
            options: the broker's.
            layout_topics: those that the store's layout needs, with the number of their queues.
        """
        self._config = config
        self._known: dict[str, tuple[Any, TopicConfig]] = {}
        inherit = PERM_INHERIT if options.auto_create_topics else 0
        for name, queues, perm in (
            (AUTO_CREATE_TOPIC, TEMPLATE_QUEUES, READ_WRITE | PERM_INHERIT)
            if options.auto_create_topics
            else ("", 0, 0),
            (SELF_TEST_TOPIC, 1, READ_WRITE),
            (OFFSET_MOVED_TOPIC, 1, READ_WRITE),
            *((topic, queues, READ_WRITE) for topic, queues in layout_topics.items()),
            (options.cluster, CLUSTER_QUEUES, READ_WRITE | inherit),
            (options.name, 1, READ_WRITE | inherit),
            (f"{options.cluster}_REPLY_TOPIC", 1, READ_WRITE),
            (TRACE_TOPIC, 1, READ_WRITE) if options.trace_topic else ("", 0, 0),
        ):
            if name and is_valid_topic(name) and name not in config.entries:
                self.put(TopicConfig(name, queues, queues, perm, attributes={}))
        self._system = _SYSTEM_TOPICS | {options.cluster, options.name, f"{options.cluster}_REPLY_TOPIC"}

    def find(self, topic: str) -> TopicConfig | None:
        """The topic, if there is one."""
        entry = self._config.entries.get(topic)
        if entry is None:
            return None
        known = self._known.get(topic)
        if known is None or known[0] is not entry:
            # The store makes a new entry wherever it changes one.
            known = self._known[topic] = (entry, from_json(TopicConfig, {"topicName": topic} | entry))
        return known[1]

    def put(self, config: TopicConfig) -> None:
        """Make a topic, or change it; what others have written beside its settings stays."""
        known = self._config.entries.get(config.topic_name, {})
        self._config.put(config.topic_name, known | to_json(config))

    def remove(self, topic: str) -> None:
        """Forget a topic."""
        self._known.pop(topic, None)
        self._config.remove_entry(topic)

    def ensure(self, topic: str, queues: int, perm: int = READ_WRITE) -> TopicConfig:
        """A topic of the broker's own making."""
        config = self.find(topic)
        if config is None:
            config = TopicConfig(topic, queues, queues, perm, attributes={})
            self.put(config)
        return config

    def find_for_send(self, topic: str, template: str, queues: int) -> TopicConfig | None:
        """The topic that a producer sends to, made after a model's if it is not there yet; None where it may not be.

        Args:
            topic: its name.
            template: the model's.
            queues: how many the producer wants at most.
        """
        config = self.find(topic)
        if config is not None:
            return config
        if topic.startswith(RETRY_PREFIX):
            return self.ensure(topic, 1)
        model = self.find(template)
        if model is None or not model.perm & PERM_INHERIT:
            return None
        count = max(0, min(queues, model.write_queue_nums))
        config = TopicConfig(topic, count, count, model.perm & ~PERM_INHERIT, model.topic_filter_type, attributes={})
        self.put(config)
        return config

    def is_system(self, topic: str) -> bool:
        """Whether administrators must leave it alone."""
        return topic in self._system or topic.startswith(SYSTEM_PREFIX)

    @property
    def change_count(self) -> int:
        """Rises with every change."""
        count: int = self._config.document["dataVersion"]["counter"]
        return count

    @property
    def data_version(self) -> DataVersion:
        """Which state of the table this is."""
        return from_json(DataVersion, self._config.document["dataVersion"])

    def all(self) -> TopicConfigs:
        """Every topic, as it is registered."""
        configs = {topic: config for topic in list(self._config.entries) if (config := self.find(topic))}
        return TopicConfigs(configs, self.data_version)
