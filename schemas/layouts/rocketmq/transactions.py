"""Transactions in a broker's log: half messages, and op records that mark them as finished.

A half message is in RMQ_SYS_TRANS_HALF_TOPIC. Commit and rollback both store an op record in
RMQ_SYS_TRANS_OP_HALF_TOPIC, in the queue with the same id; its body contains the queue offsets of finished half
messages. Brokers 4.9 and 5.0 write an op record for each half message; later ones write one for many, up to three
seconds late (transactionOpBatchInterval). An unfinished half message is stored again with the same UNIQ_KEY before its
producer is asked, and goes to TRANS_CHECK_MAX_TIME_TOPIC after 15 times. The broker's progress in both topics is the
offset of the group CID_RMQ_SYS_TRANS: every half message before it is finished, given up, or stored again. Source:
TransactionalMessageServiceImpl (RocketMQ 4.9.7, 5.5.0).
"""

from __future__ import annotations

from commitlake.schemas.layouts.numbers import INT64_MAX, parse_int

TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
"""Property of a half message that was stored again to ask its producer: the number of times."""
PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
"""Property of a half message that was stored again because it was too young to be checked: its first queue offset."""


def finished_offsets(body: bytes) -> list[int]:
    """Return the queue offsets of half messages in an op record, in any version's format.

    >>> [finished_offsets(body) for body in (b"3", b"3,", b"0,1,3,")]
    [[3], [3], [0, 1, 3]]
    """
    numbers = [parse_int(part, 0, INT64_MAX) for part in body.decode("ascii", "replace").split(",")]
    return [number for number in numbers if number is not None]
