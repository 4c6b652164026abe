"""Keys of consumerOffset.json: `topic@group`.

A topic's name cannot hold an `@` (TopicValidator), a group's name can: a proxy keeps the offsets of a broadcasting
group under `orders@billing_broadcast@broadcast`. So the first `@` separates the two.
"""

from __future__ import annotations


def split_offset_key(key: str) -> tuple[str, str]:
    """Return topic and group of a key; the group is everything after the first `@`."""
    topic, _, group = key.partition("@")
    return topic, group
