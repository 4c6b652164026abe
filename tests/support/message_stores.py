"""Small stores for tests of broker_lite: options, messages, and readers of their files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from commitlake.broker_lite.stores.rocketmq import MessageStore, PutResult, StoreOptions
from commitlake.schemas.layouts.rocketmq.commitlog import Message, NewMessage, parse_message
from commitlake.schemas.layouts.rocketmq.consumequeue import ENTRY, ConsumeQueueEntry, parse_entry
from commitlake.schemas.layouts.rocketmq.hosts import Host
from tests.support.small_stores import queue_bytes, records_in

PRODUCER = Host.of("192.168.1.10", 50123)
BROKER = Host.of("10.0.0.1", 10911)
BORN_MS = 1_700_000_000_123

SMALL = StoreOptions(
    segment_size_bytes=4096,
    consume_queue_file_size_bytes=20 * 8,
    index_slots=7,
    index_entries=24,
    max_message_size_bytes=2048,
    store_host=BROKER,
)
"""Every kind of file rolls after a few messages."""


def message(number: int = 0, topic: str = "orders", queue_id: int = 0, **changes: object) -> NewMessage:
    """Return a message whose body, key and UNIQ_KEY contain its number."""
    values: dict[str, object] = {
        "body": f"body {number}".encode(),
        "properties": (("UNIQ_KEY", f"U{number:031d}"), ("KEYS", f"order-{number}"), ("TAGS", f"tag{number % 3}")),
    }
    values |= changes
    return NewMessage(
        topic=topic,
        queue_id=queue_id,
        born_timestamp=BORN_MS,
        born_host=PRODUCER,
        **values,  # type: ignore[arg-type]
    )


def fill(store: MessageStore, count: int, start: int = 0, topic: str = "orders") -> list[PutResult]:
    """Put messages numbered from `start` on, alternating between two queues."""
    return [store.put(message(number, topic, queue_id=number % 2)) for number in range(start, start + count)]


def log_records(root: Path) -> Iterator[Message]:
    """Read the records of a store's log from its files, independently of the store."""
    return records_in(root / "commitlog", parse_message, lambda record: record.physical_offset)


def queue_entries(root: Path, topic: str = "orders", queue_id: int = 0) -> list[ConsumeQueueEntry]:
    """Return the used entries of a queue's files."""
    data = queue_bytes(root / "consumequeue", topic, queue_id)
    entries = [parse_entry(data, position) for position in range(0, len(data), ENTRY.size)]
    return [entry for entry in entries if entry.is_valid]
