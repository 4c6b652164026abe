"""Messages prepared for an append: checked, compressed and serialized, except for their offsets and time.

Everything that needs no lock is done here, once. The values that only the append knows (offsets, store time) are then
written into the serialized record.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from commitlake.broker_lite.stores.engine.errors import MessageRefusedError
from commitlake.broker_lite.stores.engine.topic_names import check_topic
from commitlake.broker_lite.stores.jmq.options import JournalOptions
from commitlake.broker_lite.stores.jmq.routing import Routing
from commitlake.schemas.layouts.errors import UnserializableError
from commitlake.schemas.layouts.jmq.body import compress_body
from commitlake.schemas.layouts.jmq.journal import HEAD, NewJournalMessage, delay_of, serialize_message

_AT_PLACE = HEAD.offset_of("journal_offset")
_PLACE = struct.Struct(">QBQ")
assert HEAD.offset_of("queue_id") == _AT_PLACE + 8
assert HEAD.offset_of("queue_offset") == _AT_PLACE + 9
_AT_STORED = HEAD.offset_of("store_delay")
_STORED = struct.Struct(">i")
_check_topic = lru_cache(maxsize=4096)(check_topic)
_pack_place, _pack_stored = _PLACE.pack_into, _STORED.pack_into


class PreparedMessage(NamedTuple):
    """Serialized message that only lacks offsets and store time.

    Attributes:
        record: serialized record, except for offsets and store time.
    """

    topic: str
    queue_id: int
    send_timestamp: int
    record: bytearray

    def place(self, queue_offset: int, journal_offset: int, store_timestamp: int) -> None:
        """Write offsets and store time into the record."""
        _pack_place(self.record, _AT_PLACE, journal_offset, self.queue_id, queue_offset)
        _pack_stored(self.record, _AT_STORED, delay_of(store_timestamp, self.send_timestamp))

    def recorded_timestamp(self, store_timestamp: int) -> int:
        """Return the store time in the record, ms; it is at most 24 days from the send time."""
        return self.send_timestamp + delay_of(store_timestamp, self.send_timestamp)


class JournalMessagePreparer:
    """Preparer of messages by a store's options."""

    def __init__(self, options: JournalOptions, routing: Routing, clock: Callable[[], int], max_record: int) -> None:
        self._options = options
        self._routing = routing
        self._clock = clock
        self._max_record_bytes = max_record

    def prepare(self, message: NewJournalMessage, queue_id: int | None = None) -> PreparedMessage:
        """Prepare a message, with the current time as its receive time.

        Args:
            message: message of a producer.
            queue_id: queue that the producer chose; None if the store chooses.

        Raises:
            MessageRefusedError: if a broker would refuse the message, or its fields do not fit in a record.
        """
        received = self._clock()
        _check_topic(message.topic)
        queue_id = self._routing.queue_of(message, queue_id)
        if not message.is_compressed and self._options.compression_level:
            body, is_compressed = compress_body(message.body, self._options.compression_level)
            if is_compressed:
                message = replace(message, body=body, is_compressed=True)
        if len(message.body) > (most := self._options.max_body_size_bytes):
            raise MessageRefusedError(f"body: expected at most {most} bytes in stored form, found {len(message.body)}")
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
            raise MessageRefusedError(f"record: expected at most {self._max_record_bytes} bytes, found {len(record)}")
        return PreparedMessage(message.topic, queue_id, message.send_timestamp, bytearray(record))
