"""Filler records of any size, which brokers skip.

A filler is a valid record with magic, lengths and CRC, so that a broker that recovers its log continues after it. Its
transaction type is ROLLBACK, which no broker has written since 4.0 but every broker can read: it gets neither a
ConsumeQueue entry nor an index entry, so no consumer ever sees it. Its body is zeros.
"""

from __future__ import annotations

from collections.abc import Iterator

from commitlake.schemas.layouts.rocketmq.commitlog import MIN_RECORD_SIZE, NewMessage, serialize_message
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.sysflag import TransactionType

TOPIC = "FILLER"
"""Topic of a filler; a filler too small for it has its first letters."""
MIN_FILLER_BYTES = MIN_RECORD_SIZE + 1
_MAX_BYTES = 4 << 20
"""Brokers hold a record in memory, and accept no larger body by default."""
_NOBODY = Host.of("0.0.0.0", 0)  # noqa: S104 (nothing listens there)


def fillers(offset: int, size: int, store_timestamp: int) -> Iterator[bytes]:
    """Yield consecutive records that fill a range.

    Args:
        offset: physical offset of the range.
        size: size of the range, bytes; at least `MIN_FILLER_BYTES`.
        store_timestamp: store time of a neighbouring record, ms, since brokers search by the times of records.
    """
    while size:
        # The rest must have room for a record.
        piece = size if size <= _MAX_BYTES else min(_MAX_BYTES, size - MIN_FILLER_BYTES)
        yield filler(offset, piece, store_timestamp)
        offset += piece
        size -= piece


def filler(offset: int, size: int, store_timestamp: int) -> bytes:
    """Return one record of exactly the given size."""
    topic = TOPIC[: size - MIN_RECORD_SIZE]
    body = bytes(size - MIN_RECORD_SIZE - len(topic))
    message = NewMessage(topic, body, store_timestamp, _NOBODY, sys_flag=int(TransactionType.ROLLBACK))
    return serialize_message(
        message, queue_offset=0, physical_offset=offset, store_timestamp=store_timestamp, store_host=_NOBODY
    )
