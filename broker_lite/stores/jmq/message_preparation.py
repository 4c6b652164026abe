"""Messages prepared for an append: checked, routed to a queue, compressed and serialized, without offsets and time.

Everything that needs no lock is done here, once. The values that only the append knows (offsets, store time) are then
written into the serialized record.
"""

from __future__ import annotations

import random
import struct
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from commitlake.broker_lite.errors import MessageRefusedError
from commitlake.broker_lite.stores.engine.topic_names import check_topic
from commitlake.broker_lite.stores.jmq.options import JournalOptions
from commitlake.schemas.layouts.errors import UnserializableError
from commitlake.schemas.layouts.jmq.journal import (
    HEAD,
    NewJournalMessage,
    compress_body,
    serialize_message,
    stored_delay_ms,
)
from commitlake.schemas.layouts.rocketmq.key_hashes import java_hash

_POSITIVE = 0x7FFFFFFF
_AT_PLACE = HEAD.offset_of("journal_offset")
_PLACE = struct.Struct(">QBQ")
assert HEAD.offset_of("queue_id") == _AT_PLACE + 8
assert HEAD.offset_of("queue_offset") == _AT_PLACE + 9
_AT_STORED = HEAD.offset_of("store_delay")
_STORED = struct.Struct(">i")
_check_topic = lru_cache(maxsize=4096)(check_topic)
_pack_place, _pack_stored = _PLACE.pack_into, _STORED.pack_into


def ordered_queue_id(business_id: str, queue_count: int) -> int:
    """Return the queue id of an ordered message, computed from its business id."""
    return (java_hash(business_id) & _POSITIVE) % queue_count


class QueueSelector:
    """Selector of the queue in which a message is stored; several threads may use it.

    The queue of an ordered message is determined by the hash of its business id, so that all messages of one id are in
    one queue, in order. Any other message goes to a random queue, by the weights of the topic's queues if it has some.
    If the number of a topic's queues changes, ids move to other queues.

    JMQ's clients work like this, but their hash is not published. Here it is Java's hash of a string, without its sign.
    """

    def __init__(
        self,
        options: JournalOptions,
        chance: random.Random | None = None,
        queue_count_of: Callable[[str], int] | None = None,
    ) -> None:
        """Create a selector with the queues that a store's options define.

        Args:
            chance: source of randomness.
            queue_count_of: returns the number of queues of a topic, if the options do not determine it.
        """
        self._queue_count_of = queue_count_of or options.queue_count_of
        self._chance = chance or random.Random()  # noqa: S311 (not for security)
        self._cumulated = {topic: tuple(accumulate(weights)) for topic, weights in options.queue_weights.items()}

    def choose_queue_id(self, message: NewJournalMessage, requested_queue_id: int | None = None) -> int:
        """Return the queue id for a message: computed if it is ordered, otherwise the requested one or a random one.

        Args:
            requested_queue_id: queue that its producer chose; None if the store chooses.

        Raises:
            MessageRefusedError: if an ordered message has no business id, or belongs to another queue than the wanted
            one; or if the topic has no such queue.
        """
        count = self._queue_count_of(message.topic)
        if requested_queue_id is not None and not 0 <= requested_queue_id < count:
            raise MessageRefusedError(f"queue_id: expected 0 to {count - 1}, found {requested_queue_id}")
        if message.is_ordered:
            return self._compute_ordered_queue_id(message, count, requested_queue_id)
        if requested_queue_id is not None:
            return requested_queue_id
        cumulated = self._cumulated.get(message.topic)
        if cumulated is None:
            return int(self._chance.random() * count)
        return bisect_right(cumulated, self._chance.random() * cumulated[-1])

    @staticmethod
    def _compute_ordered_queue_id(message: NewJournalMessage, queue_count: int, requested_queue_id: int | None) -> int:
        if not message.business_id:
            raise MessageRefusedError("business_id: an ordered message needs a business id, found none")
        queue_id = ordered_queue_id(message.business_id, queue_count)
        if requested_queue_id not in (None, queue_id):
            raise MessageRefusedError(
                f"queue_id: ordered messages with the business id {message.business_id!r} belong to queue {queue_id}, "
                f"found {requested_queue_id}: leave the queue out"
            )
        return queue_id


class PreparedMessage(NamedTuple):
    """Serialized message ready to be appended, in which only offsets and store time are missing.

    Attributes:
        record: serialized record, except for offsets and store time.
    """

    topic: str
    queue_id: int
    send_timestamp: int
    record: bytearray

    def set_offsets(self, queue_offset: int, journal_offset: int, store_timestamp: int) -> None:
        """Write offsets and store time into the serialized record."""
        _pack_place(self.record, _AT_PLACE, journal_offset, self.queue_id, queue_offset)
        _pack_stored(self.record, _AT_STORED, stored_delay_ms(store_timestamp, self.send_timestamp))

    def recorded_timestamp(self, store_timestamp: int) -> int:
        """Return the store time in the form that fits in the record, ms: at most 24 days from the send time."""
        return self.send_timestamp + stored_delay_ms(store_timestamp, self.send_timestamp)


class JournalMessagePreparer:
    """Converter of messages to prepared messages, with a store's options."""

    def __init__(
        self, options: JournalOptions, routing: QueueSelector, clock: Callable[[], int], max_record: int
    ) -> None:
        self._options = options
        self._routing = routing
        self._clock = clock
        self._max_record_bytes = max_record

    def prepare(self, message: NewJournalMessage, queue_id: int | None = None) -> PreparedMessage:
        """Check and serialize a message, except for its offsets and store time; the receive time is the current time.

        Args:
            message: message of a producer.
            queue_id: queue that the producer chose; None if the store chooses.

        Raises:
            MessageRefusedError: if a broker would refuse the message, or its fields do not fit in a record.
        """
        received = self._clock()
        _check_topic(message.topic)
        queue_id = self._routing.choose_queue_id(message, queue_id)
        if not message.is_compressed and self._options.compression_level:
            body, is_compressed = compress_body(message.body, self._options.compression_level)
            if is_compressed:
                message = replace(message, body=body, is_compressed=True)
        if len(message.body) > (most := self._options.max_body_size_bytes):
            raise MessageRefusedError(
                f"body: expected at most {most} bytes in the form in which it is stored, found {len(message.body)}"
            )
        try:
            record = serialize_message(
                message,
                queue_id=queue_id,
                queue_offset=0,
                journal_offset=0,
                receive_timestamp=received,
                store_timestamp=received,
                server_address=self._options.server_address,
            )
        except UnserializableError as error:
            raise MessageRefusedError(str(error)) from error
        if len(record) > self._max_record_bytes:
            raise MessageRefusedError(
                f"expected a record of at most {self._max_record_bytes} bytes for a message, found {len(record)}"
            )
        return PreparedMessage(message.topic, queue_id, message.send_timestamp, bytearray(record))
