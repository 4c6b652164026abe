"""Small stores in JMQ's layout for tests: options, messages, and readers of their files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from commitlake.broker_lite.stores.jmq import JournalOptions, JournalPutResult, JournalStore
from commitlake.schemas.layouts.jmq.journal import JournalMessage, NewJournalMessage, parse_message
from commitlake.schemas.layouts.jmq.queue_file import ENTRY, JmqQueueEntry, parse_entry
from commitlake.schemas.layouts.rocketmq.hosts import Host
from tests.support.small_stores import queue_bytes, records_in

CLIENT = Host.of("192.168.1.10", 50123)
BROKER = Host.of("10.0.0.1", 50088)
SENT_MS = 1_700_000_000_123

SMALL = JournalOptions(
    journal_file_size_bytes=4096,
    queue_file_size_bytes=22 * 8,
    consume_file_size_bytes=1024,
    max_body_size_bytes=2048,
    queue_count=2,
    server_address=BROKER,
)
"""Every kind of file rolls after a few messages."""


def message(number: int = 0, topic: str = "orders", **changes: object) -> NewJournalMessage:
    """Return a message whose body and business id contain its number."""
    values: dict[str, object] = {
        "body": f"body {number}".encode(),
        "app": "shop",
        "business_id": f"order-{number}",
        "properties": (("city", "Berlin"),),
    }
    return NewJournalMessage(
        topic=topic,
        send_timestamp=SENT_MS,
        client_address=CLIENT,
        **values | changes,  # type: ignore[arg-type]
    )


def fill(store: JournalStore, count: int, start: int = 0, topic: str = "orders") -> list[JournalPutResult]:
    """Put messages numbered from `start` on, alternating between two queues."""
    return [store.put(message(number, topic), number % 2) for number in range(start, start + count)]


def journal_records(root: Path) -> Iterator[JournalMessage]:
    """Read the records of a store's journal from its files, independently of the store."""
    return records_in(root / "journal", parse_message, lambda record: record.journal_offset)


def queue_entries(root: Path, topic: str = "orders", queue_id: int = 0) -> list[JmqQueueEntry]:
    """Return the used entries of a queue's files."""
    data = queue_bytes(root / "queue", topic, queue_id)
    entries = [parse_entry(data, position) for position in range(0, len(data), ENTRY.size)]
    return [entry for entry in entries if entry is not None]
