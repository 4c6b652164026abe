"""Keys of consumerOffset.json: `topic@group`.

A topic's name cannot contain an `@` (TopicValidator), but a group's name can: a proxy stores the offsets of a
broadcasting group under `orders@billing_broadcast@broadcast`. So the first `@` is the separator.
"""

from __future__ import annotations

OFFSETS_FILES = ("consumerOffset.json", "lmqConsumerOffset.json")
"""With `enableLmq=true`, a broker stores offsets in the second file, and does not read the first."""


def split_offset_key(key: str) -> tuple[str, str]:
    """Return topic and group of a key; the group is everything after the first `@`."""
    topic, _, group = key.partition("@")
    return topic, group
