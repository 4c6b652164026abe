"""Topic names that can be names of folders, because a queue's files are stored under its topic's name."""

from __future__ import annotations

from functools import lru_cache

_MAX_NAME_BYTES = 255
_NO_NAMES = frozenset({"", ".", ".."})
_KNOWN = 1 << 14


@lru_cache(_KNOWN)
def can_be_folder(topic: str) -> bool:
    """Return whether a topic can be the name of exactly one folder."""
    return (
        topic not in _NO_NAMES
        and "/" not in topic
        and topic.isprintable()
        and len(topic.encode("utf-8", "replace")) <= _MAX_NAME_BYTES
    )
