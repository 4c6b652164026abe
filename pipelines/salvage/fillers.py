"""Records that brokers step over, of any size that a record can have.

A filler is a whole record, magic, lengths and CRC, so that a broker which recovers its log goes on behind it. It is of
the transaction type ROLLBACK, which no broker has written since 4.0, and every broker reads: it gets no ConsumeQueue
entry and no index entry, and so no consumer ever sees it. Its body is zeros.
"""

from __future__ import annotations

from collections.abc import Iterator

from commitlake.schemas.layouts.rocketmq.commitlog import MIN_RECORD_SIZE, NewMessage, serialize_message
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.sysflag import TransactionType

TOPIC = "FILLER"
"""Of a filler that has room for all of it; a smaller one has the first letters."""
MIN_FILLER_BYTES = MIN_RECORD_SIZE + 1
_MOST_BYTES = 4 << 20
"""A broker holds all of a record in memory, and takes no larger body by default."""
_NOBODY = Host.of("0.0.0.0", 0)  # noqa: S104 (nothing listens there)


def fillers(offset: int, size: int, store_timestamp: int) -> Iterator[bytes]:
    """Records that fill a stretch, one behind the other.

    Args:
        offset: physical offset of the first.
        size: bytes of the stretch, `MIN_FILLER_BYTES` or more.
        store_timestamp: ms, of a record beside it: brokers find their way by the times of records.
    """
    while size:
        # What is left must be a record again.
        piece = size if size <= _MOST_BYTES else min(_MOST_BYTES, size - MIN_FILLER_BYTES)
        yield filler(offset, piece, store_timestamp)
        offset += piece
        size -= piece


def filler(offset: int, size: int, store_timestamp: int) -> bytes:
    """One record of exactly a size."""
    topic = TOPIC[: size - MIN_RECORD_SIZE]
    body = bytes(size - MIN_RECORD_SIZE - len(topic))
    message = NewMessage(topic, body, store_timestamp, _NOBODY, sys_flag=int(TransactionType.ROLLBACK))
    return serialize_message(
        message, queue_offset=0, physical_offset=offset, store_timestamp=store_timestamp, store_host=_NOBODY
    )
