"""Small stores of broker_lite, for tests that apply to all formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

from commitlake.broker_lite.stores.engine.open_store import OpenStore
from commitlake.broker_lite.stores.engine.queue_reader import GetResult
from commitlake.broker_lite.stores.engine.record_log import StoredMessage
from commitlake.schemas.layouts.errors import LayoutError

STORED_MS = 1_700_000_000_456
M = TypeVar("M")
S = TypeVar("S", bound=StoredMessage)


class Clock:
    """A clock that only moves when it is advanced."""

    def __init__(self, now_ms: int = STORED_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        """Return the time, in ms since 1970."""
        return self.now_ms


class ReadableStore(Protocol[S]):
    """A store whose queues can be read."""

    @property
    def queues(self) -> list[tuple[str, int]]:
        """Return topic and id of every queue."""

    def min_offset(self, topic: str, queue_id: int, /) -> int:
        """Return the offset of a queue's first message."""

    def get(self, topic: str, queue_id: int, queue_offset: int, max_messages: int, /) -> GetResult[S]:
        """Return a queue's messages from an offset on."""


def crash(store: OpenStore[Any, Any]) -> None:
    """Leave a store as a killed process does: files unchanged, `abort` present, no lock."""
    store._flusher.stop()
    store._writer.is_closed = True
    store._mappings.unmap_all()
    store._lock.release()


def all_messages(store: ReadableStore[S]) -> dict[tuple[str, int], list[S]]:
    """Return all messages of the queues, by topic and queue."""
    return {
        (topic, queue_id): store.get(topic, queue_id, store.min_offset(topic, queue_id), 1 << 30).messages
        for topic, queue_id in store.queues
    }


def records_in(
    log: Path, parse: Callable[[bytes, int], tuple[M, int] | None], offset_of: Callable[[M], int]
) -> Iterator[M]:
    """Read the records of a log from its files, independently of the store.

    Args:
        log: the folder of the files.
        parse: reads the record at a position.
        offset_of: returns the offset stored in a record; a file ends before the first record with another offset.
    """
    for file in sorted(log.iterdir()):
        data, position = file.read_bytes(), 0
        try:
            while (parsed := parse(data, position)) and offset_of(parsed[0]) == int(file.name) + position:
                yield parsed[0]
                position += parsed[1]
        except LayoutError:
            continue


def queue_bytes(folder: Path, topic: str, queue_id: int) -> bytes:
    """Return the concatenated content of a queue's files; `folder` contains the files of all queues."""
    return b"".join(file.read_bytes() for file in sorted((folder / topic / str(queue_id)).iterdir()))
