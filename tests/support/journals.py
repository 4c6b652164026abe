"""Small journals for tests: records, files, stores on disk."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from commitlake.schemas.layouts.jmq.journal import (
    END_RESERVE,
    JournalMessage,
    NewJournalMessage,
    serialize_filler,
    serialize_message,
)
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.segment_names import segment_name

BROKER = Host.of("10.0.0.2", 50088)
CLIENT = Host.of("10.0.0.1", 50123)
SENT_MS = 1_700_000_000_123
QUEUES = 4


def new_message(number: int = 0, topic: str = "orders", body: bytes = b"body", **changes: object) -> NewJournalMessage:
    """Return a message that differs by its number."""
    values: dict[str, object] = {
        "topic": topic,
        "body": body,
        "send_timestamp": SENT_MS + number,
        "client_address": CLIENT,
        "app": f"shop-{number % 3}",
        "business_id": f"order-{number}",
        "business_tag": number % 5,
        "priority": number % 10,
        "is_ordered": number % 2 == 1,
        "properties": (("city", "Zürich"), (f"a=b\\{number % 2}", "c\nd")),
    }
    return NewJournalMessage(**{**values, **changes})  # type: ignore[arg-type]


def original_body(message: JournalMessage) -> bytes:
    """Return a message's body, decompressed if it is stored compressed."""
    return zlib.decompress(message.body) if message.is_compressed else message.body


def messages(count: int, seed: int = 1, max_body: int = 200) -> list[NewJournalMessage]:
    """Return messages with bodies of many sizes."""
    chance = random.Random(seed)
    return [
        new_message(number, topic=f"topic-{number % 3}", body=chance.randbytes(chance.randrange(max_body)))
        for number in range(count)
    ]


def records(messages: Iterable[NewJournalMessage], base_offset: int = 0, first_number: int = 0) -> list[bytes]:
    """Return consecutive records from a journal offset on."""
    offset, out = base_offset, []
    for number, message in enumerate(messages, first_number):
        out.append(
            serialize_message(
                message,
                queue_id=number % QUEUES,
                queue_offset=number // QUEUES,
                journal_offset=offset,
                receive_timestamp=message.send_timestamp + 5,
                store_timestamp=message.send_timestamp + 9,
                server_address=BROKER,
            )
        )
        offset += len(out[-1])
    return out


def closed_file(messages: Iterable[NewJournalMessage], size: int, base_offset: int = 0) -> bytes:
    """Return a file that the broker has finished: records, FILLER, zeros."""
    data = b"".join(records(messages, base_offset))
    assert len(data) + END_RESERVE <= size
    return (data + serialize_filler(size - len(data))).ljust(size, b"\0")


def open_file(messages: Iterable[NewJournalMessage], size: int, base_offset: int = 0) -> bytes:
    """Return a file that the broker is still writing: records, zeros."""
    data = b"".join(records(messages, base_offset))
    assert len(data) + END_RESERVE <= size
    return data.ljust(size, b"\0")


def write_journal(root: Path, files: Sequence[tuple[int, bytes]]) -> Path:
    """Create a store folder with these journal files, by base offset."""
    folder = root / "journal"
    folder.mkdir(parents=True, exist_ok=True)
    for base_offset, data in files:
        (folder / segment_name(base_offset)).write_bytes(data)
    return root
