"""Putting messages into a store: one lock, within which the log, the queue and the index get their parts.

A message has its queue offset and its place in the log in the same moment, so the log's order is every queue's order.
What can be refused is refused before anything is written, a full disk too; what fails later (a disk that breaks) makes
the store unusable until it is opened anew, because recovery alone can bring log and queues together again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from broker_lite.store.checks import check_batch, check_message
from broker_lite.store.consume_queue import ConsumeQueue
from broker_lite.store.dispatch import Dispatching, is_queued
from broker_lite.store.errors import MessageRefusedError, StoreUnusableError
from broker_lite.store.files import StoreFiles
from broker_lite.store.options import StoreOptions
from broker_lite.store.progress import Progress
from schemas.layouts.commitlog import NewMessage, serialize_message
from schemas.layouts.consumequeue import ENTRY
from schemas.layouts.errors import UnserializableError
from schemas.layouts.hosts import Host
from schemas.layouts.message_id import serialize_message_id


class PutResult(NamedTuple):
    """Where a message was stored.

    Attributes:
        physical_offset: of its record in the CommitLog.
        size: of its record.
        queue_offset: its number in its queue.
        store_timestamp: the store's clock, ms.
        store_host: the store's address.
    """

    physical_offset: int
    size: int
    queue_offset: int
    store_timestamp: int
    store_host: Host

    @property
    def msg_id(self) -> str:
        """The offset message id."""
        return serialize_message_id(self.store_host, self.physical_offset)


class _Entries(NamedTuple):
    """What a message adds to its queue and to the index, known before it is written."""

    topic: str
    queued: bool
    tags_code: int
    index_keys: tuple[str, ...]


class Writer:
    """Appends messages; several threads may.

    Attributes:
        lock: held while files are written or read.
        failure: what made the store unusable, if anything did.
        is_closed: whether it takes no more messages.
        last: how far it has come.
    """

    def __init__(self, options: StoreOptions, clock: Callable[[], int], files: StoreFiles) -> None:
        self.lock = threading.RLock()
        self.failure: BaseException | None = None
        self.is_closed = False
        self.last = Progress(files.log.end)
        self._options = options
        self._clock = clock
        self._log = files.log
        self._queues = files.queues
        self._index = files.index
        self._topics = files.config.topics
        self._dispatching = Dispatching(options)

    def put(self, messages: Sequence[NewMessage]) -> list[PutResult]:
        """Append messages of one queue, together.

        Raises:
            MessageRefusedError: if a broker would refuse one of them; nothing was written.
            DiskFullError: if there is no room; nothing was written.
            StoreUnusableError: if the store was closed, or failed before.
        """
        limit = self._options.max_message_size_bytes
        for message in messages:
            check_message(message, limit)
        first = messages[0]
        with self.lock:
            if self.is_closed:
                raise StoreUnusableError("expected an open store, found it closed")
            self.check_usable()
            queue = self._queues.find_or_create(first.topic, first.queue_id)
            results = self._append(queue, messages)
            self._topics.ensure(first.topic, first.queue_id)
        return results

    def put_batch(self, messages: Sequence[NewMessage]) -> list[PutResult]:
        """Append a batch, as `put`; a batch has rules of its own."""
        check_batch(messages, self._options.max_message_size_bytes)
        return self.put(messages)

    def check_usable(self) -> None:
        """Refuse to write to a store whose files are not what they should be.

        Raises:
            StoreUnusableError: if a write or a sync failed before.
        """
        if self.failure is not None:
            raise StoreUnusableError(f"expected a sound store, found: {self.failure}") from self.failure

    def _append(self, queue: ConsumeQueue, messages: Sequence[NewMessage]) -> list[PutResult]:
        store_timestamp = self._clock()
        serialize = partial(self._serialize, queue.max_offset, messages, store_timestamp)
        entries = [self._entries_for(message, store_timestamp) for message in messages]
        records = serialize(self._log.end)
        self._log.check_size(sum(map(len, records)))
        queue.files.prepare(len(messages) * ENTRY.size)
        if self._index is not None:
            self._index.check_room(sum(len(entry.index_keys) for entry in entries))
        offset, records = self._log.append(records, serialize)
        try:
            results = self._dispatch(queue, entries, offset, store_timestamp, records)
        except BaseException as error:
            # The log has the messages and the queue does not: the next would get the same queue offset.
            self.failure = error
            raise StoreUnusableError(
                f"the message at {offset} is in the log, but not in its queue or the index: {error}"
            ) from error
        self.last = Progress(self._log.end, store_timestamp, results[-1].physical_offset)
        return results

    def _entries_for(self, message: NewMessage, store_timestamp: int) -> _Entries:
        properties = dict(message.properties)
        return _Entries(
            message.topic,
            is_queued(message.sys_flag),
            self._dispatching.code_for(message.topic, properties, store_timestamp),
            self._dispatching.keys_for(properties, message.sys_flag),
        )

    def _serialize(
        self, queue_offset: int, messages: Sequence[NewMessage], store_timestamp: int, offset: int
    ) -> list[bytes]:
        """The records of messages that stand one after another from a physical offset on."""
        records = []
        for message in messages:
            queued = is_queued(message.sys_flag)
            try:
                record = serialize_message(
                    message,
                    queue_offset=queue_offset if queued else 0,
                    physical_offset=offset,
                    store_timestamp=store_timestamp,
                    store_host=self._options.store_host,
                )
            except (UnserializableError, UnicodeEncodeError) as error:
                raise MessageRefusedError(str(error)) from error
            if len(record) > self._log.max_record_bytes:
                raise MessageRefusedError(
                    f"record: expected at most {self._log.max_record_bytes} bytes, found {len(record)}"
                )
            records.append(record)
            offset += len(record)
            queue_offset += queued
        return records

    def _dispatch(
        self,
        queue: ConsumeQueue,
        entries: Sequence[_Entries],
        offset: int,
        store_timestamp: int,
        records: Sequence[bytes],
    ) -> list[PutResult]:
        index, store_host = self._index, self._options.store_host
        results = []
        for (topic, queued, tags_code, index_keys), record in zip(entries, records, strict=True):
            size = len(record)
            queue_offset = queue.max_offset if queued else 0
            if queued:
                queue.append(offset, size, tags_code)
            if index is not None:
                index.put(topic, index_keys, offset, store_timestamp)
            results.append(PutResult(offset, size, queue_offset, store_timestamp, store_host))
            offset += size
        return results
