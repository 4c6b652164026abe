"""Rules for topic names. They also keep files within the store, because names become folders.

Source: TopicValidator.validateTopic, HookUtils.checkBeforePutMessage.
"""

from __future__ import annotations

import re

from commitlake.broker_lite.errors import MessageRefusedError
from commitlake.schemas.layouts.rocketmq.topics import (
    BOLTMQ_SCHEDULE_TOPIC,
    CHECKPOINT_TOPIC,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    MAX_RETRY_TOPIC_LENGTH,
    MAX_TOPIC_LENGTH,
    OFFSET_MOVED_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_PREFIX,
    TRACE_TOPIC_PREFIX,
)

VALID_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
BROKER_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        BOLTMQ_SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_TOPIC,
        GIVEN_UP_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        CHECKPOINT_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_TOPIC,
    }
)
"""Topics that only the broker writes, besides those that begin with `rmq_sys_`."""


def is_broker_topic(topic: str) -> bool:
    """Return whether only the broker itself may write to a topic.

    RocketMQ accepts sends to topics such as `rmq_sys_wheel_timer`, which lets a client choose where the broker
    delivers. The only exception here are topics for clients' traces.
    """
    if topic.startswith(SYSTEM_PREFIX):
        return not topic.startswith(TRACE_TOPIC_PREFIX)
    return topic in BROKER_TOPICS


def max_topic_length(topic: str) -> int:
    """Return the maximum length of a topic's name, which is larger for retry topics, as they contain a group's name."""
    return MAX_RETRY_TOPIC_LENGTH if topic.startswith(RETRY_PREFIX) else MAX_TOPIC_LENGTH


def is_valid_topic(topic: str) -> bool:
    """Return whether a broker accepts the name of a topic."""
    return VALID_NAME.fullmatch(topic) is not None and len(topic) <= max_topic_length(topic)


def check_topic(topic: str) -> None:
    """Raise an error if a broker does not accept the name of a topic.

    Raises:
        MessageRefusedError: if the name breaks a rule.
    """
    if not VALID_NAME.fullmatch(topic):
        raise MessageRefusedError(
            f"topic: expected a name of one or more letters, digits or %|_-, found {topic[:100]!r}"
        )
    if len(topic) > (limit := max_topic_length(topic)):
        raise MessageRefusedError(
            f"topic: expected a name of at most {limit} characters, found {len(topic)}: {topic[:100]!r}..."
        )
