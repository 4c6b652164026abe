"""Which topics a broker accepts. Their names become folders: this is also what keeps a store within its own folder.

Source: TopicValidator.validateTopic, HookUtils.checkBeforePutMessage.
"""

from __future__ import annotations

import re

from commitlake.broker_lite.stores.engine.errors import MessageRefusedError
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
    }
)
"""Topics that only the broker writes, beside those that begin with `rmq_sys_`."""


def is_broker_topic(topic: str) -> bool:
    """Return whether only the broker itself may write to a topic.

    RocketMQ accepts sends to `rmq_sys_wheel_timer` and the like: whoever sends there chooses where the broker delivers.
    Clients' traces are the one exception.
    """
    if topic.startswith(SYSTEM_PREFIX):
        return not topic.startswith(TRACE_TOPIC_PREFIX)
    return topic in BROKER_TOPICS


def max_topic_length(topic: str) -> int:
    """How long a topic may be; the topic of a group's retries has the group's name in it and may be longer."""
    return MAX_RETRY_TOPIC_LENGTH if topic.startswith(RETRY_PREFIX) else MAX_TOPIC_LENGTH


def is_valid_topic(topic: str) -> bool:
    """Whether a broker would accept the topic."""
    return VALID_NAME.fullmatch(topic) is not None and len(topic) <= max_topic_length(topic)


def check_topic(topic: str) -> None:
    """Refuse what a broker would refuse.

    Raises:
        MessageRefusedError: says which rule is broken.
    """
    if not VALID_NAME.fullmatch(topic):
        raise MessageRefusedError(f"topic: expected one or more of %|a-zA-Z0-9_-, found {topic[:100]!r}")
    if len(topic) > (limit := max_topic_length(topic)):
        raise MessageRefusedError(f"topic: expected at most {limit} characters, found {len(topic)}: {topic[:100]!r}...")
