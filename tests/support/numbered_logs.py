"""Logs whose messages have given queue offsets."""

from __future__ import annotations

from pathlib import Path

from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage, serialize_message
from tests.support.logs import BROKER_HOST, START_MS, write_store

LARGE = 1 << 18


def write_numbered(root: Path, messages: list[tuple[NewMessage, int]]) -> Path:
    """Create a log of one segment whose records have the given queue offsets."""
    data = b""
    for number, (message, queue_offset) in enumerate(messages):
        data += serialize_message(
            message, queue_offset=queue_offset, physical_offset=len(data), store_timestamp=START_MS + number,
            store_host=BROKER_HOST,
        )  # fmt: skip
    return write_store(root, [(0, data.ljust(LARGE, b"\0"))])
