"""Files config/topics.json and config/subscriptionGroup.json of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from commitlake.schemas.layouts.boltmq.config import topics_from_boltmq
from commitlake.schemas.layouts.rocketmq.light_queues import LIGHT_PREFIX
from commitlake.schemas.layouts.rocketmq.topics import GIVEN_UP_TOPIC, Kind, kind_of
from commitlake.schemas.remoting.fastjson import parse_fastjson
from commitlake.schemas.store_files import UnsafeFileError, read_file

TOPICS = "config/topics.json"
TABLE = "topicConfigTable"
GROUPS = "config/subscriptionGroup.json"
GROUPS_TABLE = "subscriptionGroupTable"
_MADE_AT_START = frozenset({Kind.DELAY, Kind.HALF, Kind.OP, Kind.TIMER, Kind.SYSTEM})
MAX_BYTES = 256 << 20
"""Maximum size of the file: at 200 bytes per topic, there is room for a million topics."""


def is_listed(topic: str) -> bool:
    """Return whether topics.json must list a topic for the broker to serve it.

    Light queues are not in topics.json. A broker creates its own topics when it starts, except the topic for messages
    whose transaction was given up, which it creates with the first such message.
    """
    if topic.startswith(LIGHT_PREFIX):
        return False
    return topic == GIVEN_UP_TOPIC or kind_of(topic) not in _MADE_AT_START


def read_topics(root: Path) -> dict[str, Any]:
    """Return the document in RocketMQ's format, or, as a broker does, that of `topics.json.bak`.

    Args:
        root: The store's folder.

    Returns:
        The document; empty if neither file can be read and has a table of topics.
    """
    return read_table(root, TOPICS, TABLE)


def read_table(root: Path, name: str, table: str) -> dict[str, Any]:
    """Return the document of a configuration file, or that of its backup.

    Args:
        root: The store's folder.
        name: The file, relative to it.
        table: The key under which it has its entries.

    Returns:
        The document; empty if neither file can be read and has such a table.
    """
    path = root / name
    return _read_file(path, table) or _read_file(backup_of(path), table)


def backup_of(path: Path) -> Path:
    """Return the file with the previous content."""
    return path.with_name(f"{path.name}.bak")


def read_topics_file(path: Path) -> dict[str, Any]:
    """Return the document of one file in RocketMQ's format; empty if it is unreadable or has no table of topics.

    Raises:
        UnsafeFileError: if the file or its folder is a link, is not a regular file, or is larger than MAX_BYTES.
    """
    return _read_file(path, TABLE)


def _read_file(path: Path, table: str) -> dict[str, Any]:
    try:
        document = parse_fastjson(read_file(path, below=path.parents[1], limit=MAX_BYTES))
    except UnsafeFileError:
        raise
    except (OSError, ValueError):
        return {}
    known = topics_from_boltmq(document) if isinstance(document, dict) else {}
    return dict(known) if isinstance(known.get(table), dict) else {}


def known_topics(root: Path) -> frozenset[str] | None:
    """Return the names of a store's topics; None if topics.json is unreadable."""
    document = read_topics(root)
    return frozenset(map(str, document[TABLE])) if document else None
