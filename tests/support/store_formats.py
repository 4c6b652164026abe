"""Formats of broker_lite's stores, for tests that apply to all of them: opening, filling and reading small stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from commitlake.broker_lite.stores.jmq import JournalOptions, JournalStore
from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ
from commitlake.schemas.layouts.jmq.offset_json import ConsumedQueue
from tests.support import journal_stores, message_stores
from tests.support.small_stores import Clock, all_messages, crash

FILE_SIZE = 4096
"""Size of a file of the log in a small store of any format."""


@dataclass(frozen=True)
class StoreFormat:
    """Functions with which tests use stores of one format.

    Attributes:
        name: the format's name.
        store: the class of its stores.
        options: options of a small store.
        build: module with its `message` and `fill`.
        log: the folder of its log.
        log_option: the option that sets the size of the log's files.
        queues: the folder of its queues.
        queue_option: the option that sets the size of their files.
        read_log: reads the records of the log from its files.
        offset_name: attribute of messages and results with the offset in the log.
        note_progress: stores and saves a consumer's progress.
    """

    name: str
    store: type[MessageStore | JournalStore]
    options: StoreOptions | JournalOptions
    build: ModuleType
    log: str
    log_option: str
    queues: str
    queue_option: str
    read_log: Callable[[Path], Iterator[Any]]
    offset_name: str
    note_progress: Callable[[Any], None]

    def open(self, root: Path, clock: Callable[[], int] | None = None, **changes: Any) -> Any:
        """Open a small store, with other options."""
        return self.store.open(root, replace(self.options, **changes), clock=clock or Clock())  # type: ignore[arg-type]

    def fill(self, store: Any, count: int, start: int = 0) -> list[Any]:
        """Put messages numbered from `start` on, alternating between two queues."""
        results: list[Any] = self.build.fill(store, count, start)
        return results

    def put(self, store: Any, number: int, queue_id: int = 0) -> Any:
        """Put the message with a number into a queue."""
        if self.store is JournalStore:
            return store.put(self.build.message(number), queue_id)
        return store.put(self.build.message(number, queue_id=queue_id))

    def offset_of(self, found: Any) -> int:
        """Return the log offset of a message, or of the result of a put."""
        return int(getattr(found, self.offset_name))

    def write(self, root: Path, count: int, end: str = "closed", *, has_consumer: bool = False) -> Path:
        """Make a store with messages, and optionally with a consumer's files, that is then "closed" or "crashed"."""
        store = self.open(root)
        self.fill(store, count)
        if has_consumer:
            store.flush()
            self.note_progress(store)
        crash(store) if end == "crashed" else store.close()
        return root

    def found(self, root: Path) -> list[Any]:
        """Return the messages of a store's queues in the order of the log; check that each is also found by its number.

        A RocketMQ store ends at the first damage, so these are all messages of the log, and each is also found by its
        key.
        """
        with self.open(root) as store:
            queues = all_messages(store)
            for (topic, queue_id), messages in queues.items():
                for one in messages:
                    assert store.get(topic, queue_id, one.queue_offset, 1).messages == [one]
            found = sorted((one for messages in queues.values() for one in messages), key=self.offset_of)
            if isinstance(store, MessageStore):
                in_log = [record for record in self.read_log(root) if record.physical_offset < store.log_end]
                assert [one.physical_offset for one in found] == [record.physical_offset for record in in_log]
                for one in found:
                    assert one in store.get_by_key(one.topic, (one.keys or [""])[0], limit=1 << 20)
        return found

    def bodies(self, root: Path) -> list[bytes]:
        """Return the bodies of the messages of a store's queues, in the order of the log."""
        return [one.body for one in self.found(root)]


def bodies_of(numbers: range) -> list[bytes]:
    """Return the bodies of the messages with these numbers."""
    return [f"body {number}".encode() for number in numbers]


def _note_rocketmq_progress(store: MessageStore) -> None:
    store.config.consumer_offsets.commit("orders", "mail", 0, 3)
    store.config.delay_offsets.set(3, 1)
    store.config.groups.create("mail")
    store.config.save()


def _note_jmq_progress(store: JournalStore) -> None:
    store.offsets.acknowledge(ConsumedQueue("orders", "mail", 0), 3)
    store.offsets.save_if_changed()


ROCKETMQ = StoreFormat(
    name="rocketmq",
    store=MessageStore,
    options=message_stores.SMALL,
    build=message_stores,
    log="commitlog",
    log_option="segment_size_bytes",
    queues="consumequeue",
    queue_option="consume_queue_file_size_bytes",
    read_log=message_stores.log_records,
    offset_name="physical_offset",
    note_progress=_note_rocketmq_progress,
)
BOLTMQ_DIALECT = replace(ROCKETMQ, name="boltmq", options=replace(message_stores.SMALL, dialect=BOLTMQ))
JMQ = StoreFormat(
    name="jmq",
    store=JournalStore,
    options=journal_stores.SMALL,
    build=journal_stores,
    log="journal",
    log_option="journal_file_size_bytes",
    queues="queue",
    queue_option="queue_file_size_bytes",
    read_log=journal_stores.journal_records,
    offset_name="journal_offset",
    note_progress=_note_jmq_progress,
)
STORE_FORMATS = {known.name: known for known in (ROCKETMQ, JMQ)}
"""Formats with separate code, by name."""
