"""Queries for messages of an open store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Generator

from commitlake.broker_lite.stores.engine.open_store import OpenStore
from commitlake.broker_lite.stores.engine.pulling import PullLimits, PullResult
from commitlake.broker_lite.stores.engine.reading import DEFAULT_MAX_MESSAGES, GetResult
from commitlake.broker_lite.stores.rocketmq.files import StoreFiles
from commitlake.broker_lite.stores.rocketmq.options import StoreOptions
from commitlake.broker_lite.stores.rocketmq.pulling import for_clients, low_bits, pull_records
from commitlake.broker_lite.stores.rocketmq.reading import DEFAULT_KEY_LIMIT, MAX_TIME_MS, Reader
from commitlake.broker_lite.stores.rocketmq.writing import Writer
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.rocketmq.consumequeue import ConsumeQueueEntry

_NO_LIMIT = 1 << 63


class QueryableStore(OpenStore[Message, Reader]):
    """Read operations of a store; each method takes the store's lock."""

    options: StoreOptions
    _files: StoreFiles
    _writer: Writer
    _reader: Reader

    def get(
        self, topic: str, queue_id: int, queue_offset: int, max_messages: int = DEFAULT_MAX_MESSAGES
    ) -> GetResult[Message]:
        """Return messages of a queue, from a queue offset on.

        Raises:
            StoreFilesError: if a record of the queue is damaged.
        """
        with self._reading() as reader:
            return reader.get(topic, queue_id, queue_offset, max_messages)

    def pull(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        limits: PullLimits,
        codes: Container[int] | None = None,
        accepts_record: Callable[[bytes], bool] | None = None,
    ) -> PullResult:
        """Return records of a queue in the form for clients, from a queue offset on; see `pull_records`."""
        with self._reading():
            return pull_records(self._files, topic, queue_id, queue_offset, limits, codes, accepts_record)

    def entry_at(self, topic: str, queue_id: int, queue_offset: int) -> ConsumeQueueEntry | None:
        """Return the ConsumeQueue entry of a message, or None if the queue has none or only filler."""
        with self._reading() as reader:
            return reader.entry_at(topic, queue_id, queue_offset)

    def queue_codes(self, tags: Collection[str], codes: Collection[int]) -> frozenset[int] | None:
        """Return the tag hashes that the queue entries contain; None if only hashes of another dialect were sent.

        Args:
            tags: tags that a consumer subscribes to.
            codes: hashes of these tags that the consumer sent, computed as in Java.
        """
        dialect = self.options.dialect
        if dialect.is_rocketmq:
            return frozenset(codes)
        return frozenset(low_bits(dialect.tags_code(tag)) for tag in tags) or None

    def record_of(self, message: Message) -> bytes:
        """Return the bytes of a message's record in the form that clients expect."""
        return for_clients(self.record_at(message.physical_offset, message.size))

    def get_by_id(self, msg_id: str) -> Message | None:
        """Return the message with an offset message id, or None if this store does not have it.

        Raises:
            LayoutError: if the text is not an offset message id.
        """
        with self._reading() as reader:
            return reader.by_id(msg_id)

    def get_by_key(
        self, topic: str, key: str, begin_ms: int = 0, end_ms: int = MAX_TIME_MS, limit: int = DEFAULT_KEY_LIMIT
    ) -> list[Message]:
        """Return the newest messages with a key, in the order of the log.

        Args:
            topic: topic under which they are stored; `SCHEDULE_TOPIC_XXXX` for delayed messages.
            key: a UNIQ_KEY, one of the KEYS, or `tags_key(TAGS)`.
            begin_ms: earliest store time.
            end_ms: latest store time.
            limit: maximum number of messages.

        Raises:
            IndexDisabledError: if the store has no index.
        """
        looking = self.find_by_key(topic, key, begin_ms, end_ms, limit)
        while True:
            try:
                next(looking)
            except StopIteration as done:
                found: list[Message] = done.value
                return found

    def find_by_key(
        self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int, limit_bytes: int = _NO_LIMIT
    ) -> Generator[None, None, list[Message]]:
        """Find messages as `get_by_key` does, in small steps, between which the store's lock is released.

        Args:
            topic: see `get_by_key`.
            key: see `get_by_key`.
            begin_ms: see `get_by_key`.
            end_ms: see `get_by_key`.
            limit: maximum number of messages.
            limit_bytes: maximum size of all records together; a single one may be larger.
        """
        with self._reading() as reader:
            steps = reader.by_key(topic, key, begin_ms, end_ms, limit, limit_bytes)
        while True:
            with self._reading():
                try:
                    next(steps)
                except StopIteration as done:
                    found: list[Message] = done.value
                    return found
            yield

    def timestamp_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time of a message, or -1 if there is no message at that offset."""
        with self._reading() as reader:
            return reader.timestamp_at(topic, queue_id, queue_offset)

    def get_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, max_messages: int = DEFAULT_MAX_MESSAGES
    ) -> GetResult[Message]:
        """Return messages of a queue from the first one stored at or after a time; see `get`."""
        with self._reading() as reader:
            return reader.get(topic, queue_id, reader.offset_by_time(topic, queue_id, timestamp_ms), max_messages)

    @property
    def min_physical_offset(self) -> int:
        """Physical offset of the first byte of the log."""
        with self._reading() as reader:
            return reader.log_start

    @property
    def max_physical_offset(self) -> int:
        """Physical offset of the end of the last record: the next one goes there, or to a new segment."""
        with self._reading() as reader:
            return reader.log_end
