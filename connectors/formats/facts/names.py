"""Which names of topics can be folders: a queue's files are kept under the name that its records have."""

from __future__ import annotations

from functools import lru_cache

_MOST_NAME_BYTES = 255
_NO_NAMES = frozenset({"", ".", ".."})
_KNOWN = 1 << 14


@lru_cache(_KNOWN)
def can_be_folder(topic: str) -> bool:
    """Whether a topic can be the name of a folder, and of none but its own."""
    return (
        topic not in _NO_NAMES
        and "/" not in topic
        and topic.isprintable()
        and len(topic.encode("utf-8", "replace")) <= _MOST_NAME_BYTES
    )
