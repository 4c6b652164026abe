"""Keys of consumerOffset.json: `topic@group`.

A topic's name cannot hold an `@` (TopicValidator), a group's name can: a proxy keeps the offsets of a broadcasting
group under `orders@billing_broadcast@broadcast`. So the first `@` separates the two.
"""

from __future__ import annotations

OFFSETS_FILES = ("consumerOffset.json", "lmqConsumerOffset.json")
"""A broker keeps groups' offsets in the second one, and does not read the first, where it has `enableLmq=true`."""


def split_offset_key(key: str) -> tuple[str, str]:
    """Return topic and group of a key; the group is everything after the first `@`."""
    topic, _, group = key.partition("@")
    return topic, group
