"""The topics that a broker has: those it starts with, those it makes, and who may read and write them.

Source: TopicConfigManager, TopicValidator (5.5.0).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from broker_lite.broker.options import BrokerOptions
from broker_lite.store.config_files import MAX_QUEUES, Topics
from broker_lite.store.topic_names import BROKER_TOPICS, is_valid_topic
from schemas.layouts.light_queues import LIGHT_PREFIX
from schemas.layouts.topics import (
    AUTO_CREATE_TOPIC,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    SELF_TEST_TOPIC,
    SYSTEM_PREFIX,
    TRACE_TOPIC,
)
from schemas.remoting.configs import DataVersion, TopicConfig, TopicConfigs
from schemas.remoting.errors import BodyError
from schemas.remoting.json_fields import from_json, to_json
from schemas.remoting.routes import PERM_INHERIT, PERM_READ, PERM_WRITE

READ_WRITE = PERM_READ | PERM_WRITE
TEMPLATE_QUEUES = 8
SCHEDULE_QUEUES = 18
CLUSTER_QUEUES = 16

TRANSACTION_TOPICS = {HALF_TOPIC: 1, OP_TOPIC: 1, GIVEN_UP_TOPIC: 1}
"""Where messages are kept that somebody has yet to decide, or that nobody decided."""

MAX_SERVED_QUEUES = 65_536
"""A topic with more of them cannot be used by clients, and must not keep the others from being registered."""
_logger = logging.getLogger(__name__)
_SYSTEM_TOPICS = BROKER_TOPICS | {AUTO_CREATE_TOPIC, "BenchmarkTest", TRACE_TOPIC}


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
        self._known: dict[str, tuple[Any, TopicConfig | None]] = {}
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
            # RocketMQ keeps no settings of light queues, either; only the store itself enters messages there.
            return TopicConfig(topic, 1, 1, PERM_READ) if topic.startswith(LIGHT_PREFIX) else None
        known = self._known.get(topic)
        if known is None or known[0] is not entry:
            # The store makes a new entry wherever it changes one.
            known = self._known[topic] = (entry, _parsed(topic, entry))
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
            queues = min(queues, MAX_QUEUES)
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


def _parsed(topic: str, entry: Any) -> TopicConfig | None:
    """Return a topic's settings, or None for an entry of the file that nobody can use; each is logged once."""
    try:
        config = from_json(TopicConfig, {"topicName": topic} | entry)
    except BodyError as error:
        _logger.error("topic %.200s is not served, its entry in topics.json is wrong: %s", topic, error)
        return None
    counts = (config.read_queue_nums, config.write_queue_nums)
    if min(counts) < 0 or max(counts) > MAX_SERVED_QUEUES:
        _logger.error(
            "topic %.200s is not served: expected at most %d queues, found %s", topic, MAX_SERVED_QUEUES, counts
        )
        return None
    return config
