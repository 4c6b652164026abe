"""The topics that a broker has: those it starts with, those it makes, and who may read and write them.

Source: TopicConfigManager, TopicValidator (5.5.0).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from commitlake.broker_lite.broker.limits import check_limit
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.stores.engine.topic_names import BROKER_TOPICS, is_valid_topic
from commitlake.broker_lite.stores.rocketmq.config_files import MAX_QUEUES, Topics
from commitlake.schemas.layouts.rocketmq.light_queues import LIGHT_PREFIX
from commitlake.schemas.layouts.rocketmq.topics import (
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
from commitlake.schemas.remoting.configs import DataVersion, TopicConfig, TopicConfigs
from commitlake.schemas.remoting.errors import BodyError
from commitlake.schemas.remoting.json_fields import from_json, to_json
from commitlake.schemas.remoting.routes import PERM_INHERIT, PERM_READ, PERM_WRITE

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
        self._max_topics = options.max_topics
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

    def names(self) -> list[str]:
        """Return the names of all topics."""
        return list(self._config.entries)

    def has(self, topic: str) -> bool:
        """Return whether there is an entry of the topic, usable or not."""
        return topic in self._config.entries

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

    def check_room(self, count: int) -> None:
        """Refuse more topics than there may be.

        Raises:
            LimitError: if there is no room for so many more.
        """
        if count:
            check_limit("topics (see --max-topics)", self._max_topics, len(self._config.entries) + count)

    def put(self, config: TopicConfig) -> None:
        """Make a topic, or change it; what others have written beside its settings stays."""
        known = self._config.entries.get(config.topic_name, {})
        self._config.put(config.topic_name, known | to_json(config))

    def remove(self, topic: str) -> None:
        """Forget a topic."""
        self._known.pop(topic, None)
        self._config.remove_entry(topic)

    def ensure(self, topic: str, queues: int, perm: int = READ_WRITE) -> TopicConfig:
        """Return the topic of a group, made if it is not there.

        Raises:
            LimitError: if there are too many topics.
        """
        config = self.find(topic)
        if config is None:
            self.check_room(1)
            queues = min(queues, MAX_QUEUES)
            config = TopicConfig(topic, queues, queues, perm, attributes={})
            self.put(config)
        return config

    def config_for_send(self, topic: str, template: str, queues: int) -> TopicConfig | None:
        """Return the settings of the topic that a producer sends to, or those with which `made` is to make it.

        Args:
            topic: its name; a retry topic's group must be known.
            template: the name of the topic after whose model it is made.
            queues: how many the producer wants at most.

        Returns:
            None where the topic may not be made.

        Raises:
            LimitError: if there are too many topics.
        """
        config = self.find(topic)
        if config is not None:
            return config
        self.check_room(1)
        if topic.startswith(RETRY_PREFIX):
            return TopicConfig(topic, 1, 1, READ_WRITE, attributes={})
        model = self.find(template)
        if model is None or not model.perm & PERM_INHERIT:
            return None
        count = max(0, min(queues, model.write_queue_nums))
        return TopicConfig(topic, count, count, model.perm & ~PERM_INHERIT, model.topic_filter_type, attributes={})

    @contextmanager
    def made(self, config: TopicConfig) -> Iterator[None]:
        """Make a topic for a first message, if it is not there; it goes again if the message is refused."""
        is_new = config.topic_name not in self._config.entries
        if is_new:
            self.put(config)
        try:
            yield
        except BaseException:
            if is_new:
                self.remove(config.topic_name)
            raise

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
