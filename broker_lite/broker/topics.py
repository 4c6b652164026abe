"""Topics of a broker: the initial ones, automatic creation, and permissions.

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
from commitlake.schemas.layouts.rocketmq.topics import (
    AUTO_CREATE_TOPIC,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    LIGHT_PREFIX,
    OFFSET_MOVED_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    SELF_TEST_TOPIC,
    SYSTEM_PREFIX,
    TRACE_TOPIC,
)
from commitlake.schemas.remoting.errors import BodyError
from commitlake.schemas.remoting.json_fields import from_json, to_json
from commitlake.schemas.remoting.routes import PERM_INHERIT, PERM_READ, PERM_WRITE
from commitlake.schemas.remoting.topic_and_group_configs import DataVersion, TopicConfig, TopicConfigs

READ_WRITE = PERM_READ | PERM_WRITE
TEMPLATE_QUEUES = 8
SCHEDULE_QUEUES = 18
CLUSTER_QUEUES = 16

TRANSACTION_TOPICS = {HALF_TOPIC: 1, OP_TOPIC: 1, GIVEN_UP_TOPIC: 1}
"""Topics of half messages, of their outcomes, and of half messages that were discarded undecided."""

MAX_SERVED_QUEUES = 65_536
"""Clients cannot use a topic with more queues, and it must not keep the other topics from being registered."""
_logger = logging.getLogger(__name__)
_SYSTEM_TOPICS = BROKER_TOPICS | {AUTO_CREATE_TOPIC, "BenchmarkTest", TRACE_TOPIC}


class TopicTable:
    """Topics by name, kept in `topics.json`."""

    def __init__(self, config: Topics, options: BrokerOptions, layout_topics: Mapping[str, int]) -> None:
        """Create the topics that every broker has.

        Args:
            config: stored table of topics.
            layout_topics: topics that the store's layout needs, with their numbers of queues.
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
        """Return whether the topic table has an entry for a topic, even if the entry is invalid."""
        return topic in self._config.entries

    def find(self, topic: str) -> TopicConfig | None:
        """Return the topic's settings, or None if it does not exist or its entry is invalid."""
        entry = self._config.entries.get(topic)
        if entry is None:
            # As in RocketMQ, light queues have no settings; only the store itself writes to them.
            return TopicConfig(topic, 1, 1, PERM_READ) if topic.startswith(LIGHT_PREFIX) else None
        known = self._known.get(topic)
        if known is None or known[0] is not entry:
            # The store replaces an entry whenever it changes one.
            known = self._known[topic] = (entry, _parse_entry(topic, entry))
        return known[1]

    def check_topic_limit(self, new_topic_count: int) -> None:
        """Raise an error if more topics would exceed the limit.

        Raises:
            CommandError: if `new_topic_count` more topics exceed the limit.
        """
        if new_topic_count:
            check_limit("topics (see --max-topics)", self._max_topics, len(self._config.entries) + new_topic_count)

    def put(self, config: TopicConfig) -> None:
        """Create or update a topic; fields of its stored entry that this broker does not use are kept."""
        known = self._config.entries.get(config.topic_name, {})
        self._config.put(config.topic_name, known | to_json(config))

    def remove(self, topic: str) -> None:
        """Remove a topic."""
        self._known.pop(topic, None)
        self._config.remove_entry(topic)

    def find_or_create(self, topic: str, queue_count: int, perm: int = READ_WRITE) -> TopicConfig:
        """Return the settings of a topic, after creating it if it does not exist.

        Raises:
            CommandError: if there are too many topics.
        """
        config = self.find(topic)
        if config is None:
            self.check_topic_limit(1)
            queue_count = min(queue_count, MAX_QUEUES)
            config = TopicConfig(topic, queue_count, queue_count, perm, attributes={})
            self.put(config)
        return config

    def config_for_send(self, topic: str, template_topic: str, max_queue_count: int) -> TopicConfig | None:
        """Return the settings of a topic for a producer; for a missing topic, the settings with which to create it.

        Args:
            topic: name of the topic; the group of a retry topic must be known.
            template_topic: name of the topic whose settings a new topic copies.
            max_queue_count: maximum number of queues that the producer asks for.

        Returns:
            None if the topic may not be created.

        Raises:
            CommandError: if there are too many topics.
        """
        config = self.find(topic)
        if config is not None:
            return config
        self.check_topic_limit(1)
        if topic.startswith(RETRY_PREFIX):
            return TopicConfig(topic, 1, 1, READ_WRITE, attributes={})
        model = self.find(template_topic)
        if model is None or not model.perm & PERM_INHERIT:
            return None
        count = max(0, min(max_queue_count, model.write_queue_nums))
        return TopicConfig(topic, count, count, model.perm & ~PERM_INHERIT, model.topic_filter_type, attributes={})

    @contextmanager
    def create_with_rollback(self, config: TopicConfig) -> Iterator[None]:
        """Create a missing topic before a block stores its first message, and remove it if the block fails."""
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
        """Return whether the topic is one of the broker's own, which administrators may not change."""
        return topic in self._system or topic.startswith(SYSTEM_PREFIX)

    @property
    def change_count(self) -> int:
        """Counter that rises with every change of the table."""
        count: int = self._config.document["dataVersion"]["counter"]
        return count

    @property
    def data_version(self) -> DataVersion:
        """Version of the topic table, which increases with every change."""
        return from_json(DataVersion, self._config.document["dataVersion"])

    def all_configs(self) -> TopicConfigs:
        """Return the settings of all valid topics, as sent to name servers."""
        configs = {topic: config for topic in list(self._config.entries) if (config := self.find(topic))}
        return TopicConfigs(configs, self.data_version)


def _parse_entry(topic: str, entry: Any) -> TopicConfig | None:
    """Parse a topic's entry; log an error and return None if the entry is invalid."""
    try:
        config = from_json(TopicConfig, {"topicName": topic} | entry)
    except BodyError as error:
        _logger.error("topic %.200s is not served: its entry in topics.json is invalid: %s", topic, error)
        return None
    counts = (config.read_queue_nums, config.write_queue_nums)
    if min(counts) < 0 or max(counts) > MAX_SERVED_QUEUES:
        _logger.error(
            "topic %.200s is not served: expected at most %d queues, found %s", topic, MAX_SERVED_QUEUES, counts
        )
        return None
    return config
