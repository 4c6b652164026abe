"""Which topics a broker accepts. Their names become folders: this is also what keeps a store within its own folder.

Source: TopicValidator.validateTopic, HookUtils.checkBeforePutMessage.
"""

from __future__ import annotations

import re

from broker_lite.store.errors import MessageRefusedError
from schemas.layouts.topics import MAX_RETRY_TOPIC_LENGTH, MAX_TOPIC_LENGTH, RETRY_PREFIX

VALID_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")


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
