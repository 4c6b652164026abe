"""Small stores for the tests of broker_lite: options, messages, clocks, and ways to look into the files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from commitlake.broker_lite.stores.rocketmq import MessageStore, PutResult, StoreOptions
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.commitlog import Message, NewMessage, parse_message
from commitlake.schemas.layouts.rocketmq.consumequeue import ENTRY, Entry, parse_entry
from commitlake.schemas.layouts.rocketmq.hosts import Host

PRODUCER = Host.of("192.168.1.10", 50123)
BROKER = Host.of("10.0.0.1", 10911)
BORN_MS = 1_700_000_000_123
STORED_MS = 1_700_000_000_456

SMALL = StoreOptions(
    segment_size_bytes=4096,
    consume_queue_file_size_bytes=20 * 8,
    index_slots=7,
    index_entries=24,
    max_message_size_bytes=2048,
    store_host=BROKER,
)
"""Every kind of file rolls after a few messages."""


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self, now_ms: int = STORED_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        """The time, in ms since 1970."""
        return self.now_ms


def message(number: int = 0, topic: str = "orders", queue_id: int = 0, **changes: object) -> NewMessage:
    """A message whose body, key and UNIQ_KEY tell its number."""
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
    """Put messages with the numbers from `start` on, by turns into two queues."""
    return [store.put(message(number, topic, queue_id=number % 2)) for number in range(start, start + count)]


def crash(store: MessageStore) -> None:
    """Leave a store as a killed process does: files as they are, `abort` there, the lock gone."""
    store._flusher.stop()
    store._writer.is_closed = True
    store._files.mappings.unmap_all()
    store._lock.release()


def all_messages(store: MessageStore) -> dict[tuple[str, int], list[Message]]:
    """Everything that the queues give, by topic and queue."""
    return {
        (topic, queue_id): store.get(topic, queue_id, store.min_offset(topic, queue_id), 1 << 30).messages
        for topic, queue_id in store.queues
    }


def log_records(root: Path) -> Iterator[Message]:
    """The records of a store's log, read from the files without the store's help."""
    for segment in sorted((root / "commitlog").iterdir()):
        data, position = segment.read_bytes(), 0
        try:
            while (parsed := parse_message(data, position)) and parsed[0].physical_offset == int(
                segment.name
            ) + position:
                yield parsed[0]
                position += parsed[1]
        except LayoutError:
            continue


def queue_entries(root: Path, topic: str = "orders", queue_id: int = 0) -> list[Entry]:
    """The used entries of a queue's files."""
    files = sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())
    data = b"".join(file.read_bytes() for file in files)
    entries = [parse_entry(data, position) for position in range(0, len(data), ENTRY.size)]
    return [entry for entry in entries if entry.is_valid]
