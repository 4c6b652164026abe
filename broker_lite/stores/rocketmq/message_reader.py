"""Queries for messages of a store in RocketMQ's layout: by queue and offset, by time, by id, by key.

Queues and index point to records. Every record is verified before it is returned (magic, own offset, lengths, CRC), and
a record found by the index is checked for the requested topic and key. Source: DefaultMessageStore.getMessage,
queryMessage.
"""

from __future__ import annotations

from collections.abc import Generator

from commitlake.broker_lite.errors import IndexDisabledError, StoreFilesError
from commitlake.broker_lite.stores.engine.queue_reader import GetResult, GetStatus, QueueReader, locate_offset
from commitlake.broker_lite.stores.rocketmq.consume_queue import QueueUnit
from commitlake.broker_lite.stores.rocketmq.queues import AnyQueue
from commitlake.broker_lite.stores.rocketmq.store_files import StoreFiles
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.rocketmq.consumequeue import PRE_BLANK, ConsumeQueueEntry
from commitlake.schemas.layouts.rocketmq.indexfile import tags_index_key
from commitlake.schemas.layouts.rocketmq.message_id import parse_message_id
from commitlake.schemas.layouts.rocketmq.properties import UNIQ_KEY

MAX_TIME_MS = (1 << 63) - 1
DEFAULT_KEY_LIMIT = 64
"""Maximum number of messages in a broker's answer."""


class MessageReader(QueueReader[Message, AnyQueue]):
    """Reader of messages in a store in RocketMQ's layout; the caller holds the store's lock."""

    def __init__(self, files: StoreFiles) -> None:
        super().__init__(files.log, files.queues)
        self._index = files.index

    def entry_at(self, topic: str, queue_id: int, queue_offset: int) -> ConsumeQueueEntry | None:
        """Return the queue entry of a message; None if the queue has none or only filler at that offset."""
        queue = self._queues.find(topic, queue_id)
        unit = next(queue.read_queue_units(queue_offset), None) if queue is not None else None
        if unit is None or unit.entry == PRE_BLANK or not unit.first_number <= queue_offset < unit.following:
            return None
        return unit.entry

    def timestamp_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time of a message, ms, or -1 if there is none; only the start of its record is read."""
        entry = self.entry_at(topic, queue_id, queue_offset)
        timestamp = None if entry is None else self._log.store_timestamp_at(entry.physical_offset)
        return -1 if timestamp is None else timestamp

    def get(self, topic: str, queue_id: int, queue_offset: int, max_messages: int) -> GetResult[Message]:
        """Return at most `max_messages` messages of a queue from a queue offset on."""
        queue = self._queues.find(topic, queue_id)
        where = locate_offset(queue, self._log.start, queue_offset)
        if queue is None or where.status is not GetStatus.FOUND:
            return GetResult(where.status, [], *where[1:])
        low, high = where.min_offset, where.max_offset
        messages: list[Message] = []
        following = queue_offset
        for unit in queue.read_queue_units(queue_offset):
            if unit.first_number >= queue_offset + max_messages:
                following = unit.first_number  # after a gap in the queue
                break
            following = unit.following
            if unit.entry != PRE_BLANK:
                messages.append(self._read_message(queue, unit))
        status = GetStatus.FOUND if messages else GetStatus.NO_MATCHED_MESSAGE
        return GetResult(status, messages, following, low, high)

    def _read_message(self, queue: AnyQueue, unit: QueueUnit) -> Message:
        try:
            return self._log.parse_at(unit.entry.physical_offset)
        except LayoutError as error:
            found = f"the message with queue offset {unit.first_number} of {queue.topic}/{queue.queue_id}"
            raise StoreFilesError(f"{found}: {error}") from error

    def message_by_id(self, msg_id: str) -> Message | None:
        """Return the message with an offset message id, or None if the id names another store or no message."""
        wanted = parse_message_id(msg_id)
        message = self._log.message_at(wanted.physical_offset)
        return message if message is not None and message.store_host == wanted.store_host else None

    def messages_by_key(
        self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int, limit_bytes: int
    ) -> Generator[None, None, list[Message]]:
        """Find the newest messages with a key in small steps, and yield after each of them."""
        if self._index is None:
            raise IndexDisabledError(
                "the store has no index of keys, because keep_index is False or the store is BoltMQ's"
            )
        found: dict[int, Message] = {}
        size = 0
        for offset in self._index.lookup_in_steps(topic, key, begin_ms, end_ms):
            if len(found) >= limit:
                break
            yield
            message = None if offset is None else self._log.message_at(offset)
            if message is None or message.topic != topic or not begin_ms <= message.store_timestamp <= end_ms:
                continue
            if _has_key(message, key):
                size += message.size
                if found and size > limit_bytes:
                    break
                found[message.physical_offset] = message
        return [found[offset] for offset in sorted(found)]


def _has_key(message: Message, key: str) -> bool:
    tags = message.tags
    return (
        key == message.properties.get(UNIQ_KEY)
        or key in (message.keys or ())
        or (tags is not None and key == tags_index_key(tags))
    )
