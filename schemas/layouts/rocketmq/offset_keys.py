"""Keys of consumerOffset.json: `topic@group`.

A topic's name cannot contain an `@` (TopicValidator), but a group's name can: a broker 5.x stores the offset of a
broadcasting group under `orders@billing@broadcast`. It is the smallest one at which a client of the group last pulled.
So the first `@` is the separator. Source: BroadcastOffsetManager (5.5.0).
"""

from __future__ import annotations

OFFSETS_FILES = ("consumerOffset.json", "lmqConsumerOffset.json")
"""With `enableLmq=true`, a broker stores offsets in the second file, and does not read the first."""

BROADCAST_SUFFIX = "@broadcast"
"""End of a group's name in the keys of offsets that a broker stores for a broadcasting group."""


def plain_group(group: str) -> str:
    """Return a group's own name, given its name in a key of an offset."""
    return group.removesuffix(BROADCAST_SUFFIX)


def split_offset_key(key: str) -> tuple[str, str]:
    """Return topic and group of a key; the group is everything after the first `@`."""
    topic, _, group = key.partition("@")
    return topic, group
