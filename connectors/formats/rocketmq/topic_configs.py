"""Files config/topics.json and config/subscriptionGroup.json of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from commitlake.connectors.formats.config_files import ConfigFile, read_config
from commitlake.schemas.layouts.boltmq.config_conversion import topics_from_boltmq
from commitlake.schemas.layouts.rocketmq.topics import TOPICS_FILE, TOPICS_TABLE
from commitlake.schemas.remoting.fastjson import parse_fastjson

MAX_BYTES = 256 << 20
"""Maximum size of the file: at 200 bytes per topic, there is room for a million topics."""


def read_topics(root: Path) -> dict[str, Any]:
    """Return the content of topics.json in RocketMQ's format; empty if neither it nor its backup can be used."""
    return read_config_document(root, TOPICS_FILE, TOPICS_TABLE)


def read_config_document(root: Path, file_name: str, table_key: str) -> dict[str, Any]:
    """Return the content of a configuration file, or that of its backup; empty if neither file can be used."""
    return load_config_file(root, file_name, table_key).content or {}


def load_config_file(root: Path, file_name: str, table_key: str) -> ConfigFile[dict[str, Any]]:
    """Load a configuration file, or its backup, as a broker does; a valid one has a JSON object under `table_key`.

    Args:
        root: The store's folder.
        file_name: The file, relative to it.
        table_key: The key under which it has its entries.

    Raises:
        UnsafeFileError: if the file or its folder is a link, is not a regular file, or is larger than MAX_BYTES.
    """

    def parse_config_table(data: bytes) -> dict[str, Any]:
        document = parse_fastjson(data)
        known = topics_from_boltmq(document) if isinstance(document, dict) else {}
        if not isinstance(known.get(table_key), dict):
            raise ValueError(f"JSON without the table {table_key}")  # noqa: TRY004 (of the parsed file)
        return dict(known)

    return read_config(root, file_name, parse_config_table, max_bytes=MAX_BYTES)


def known_topics(root: Path) -> frozenset[str] | None:
    """Return the names of a store's topics; None if topics.json is unreadable."""
    document = read_topics(root)
    return frozenset(map(str, document[TOPICS_TABLE])) if document else None
