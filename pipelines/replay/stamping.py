"""Properties of a message that is sent again: its own, without those that brokers set, and its origin."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.plain_arrays import texts_of
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.inner_batch import INNER_BASE, INNER_NUM
from commitlake.schemas.layouts.rocketmq.light_queues import MULTI_DISPATCH, MULTI_QUEUE_OFFSET

REPLAY_ID = "REPLAY_ID"
ORIGIN_MSG_ID = "ORIGIN_MSG_ID"
ORIGIN_TOPIC = "ORIGIN_TOPIC"
ORIGIN_QUEUE_ID = "ORIGIN_QUEUE_ID"
ORIGIN_STORE_TIMESTAMP = "ORIGIN_STORE_TIMESTAMP"
ORIGIN_BORN_TIMESTAMP = "ORIGIN_BORN_TIMESTAMP"
ORIGIN_BROKER = "ORIGIN_BROKER"
ORIGIN_PHYSICAL_OFFSET = "ORIGIN_PHYSICAL_OFFSET"
STAMPS = (
    REPLAY_ID, ORIGIN_MSG_ID, ORIGIN_TOPIC, ORIGIN_QUEUE_ID, ORIGIN_STORE_TIMESTAMP, ORIGIN_BORN_TIMESTAMP,
    ORIGIN_BROKER, ORIGIN_PHYSICAL_OFFSET,
)  # fmt: skip
"""Properties that a replay adds.

Store and physical offset identify the origin; message ids do not, because two brokers may assign equal ids.
"""

BROKERS_OWN = frozenset(
    {
        "MIN_OFFSET", "MAX_OFFSET", props.REAL_TOPIC, props.REAL_QID, props.WAIT, props.TRAN_MSG, props.PGROUP,
        "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS", "__transactionId__",
        props.RETRY_TOPIC, props.ORIGIN_MESSAGE_ID, "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "RECONSUME_TIME",
        "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "MSG_REGION",
        "TRACE_ON", "CLUSTER", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "DUP_INFO", "ARRIVE_TIME",
        "PUSH_REPLY_TIME", "CRC32", "__CRC32#", INNER_NUM, INNER_BASE, MULTI_DISPATCH, MULTI_QUEUE_OFFSET,
    }
)  # fmt: skip
"""Properties about a broker's or a consumer's handling of the first message; the new message gets its own."""

DELAYS = frozenset(
    {
        props.DELAY, "TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS",
        "TIMER_ROLL_TIMES", props.TIMER_OUT, "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL",
    }
)  # fmt: skip
"""Properties that make a broker hold a message back. It has been delivered once, and is not delayed again."""

DROPPED = texts_of(sorted(BROKERS_OWN | DELAYS | set(STAMPS)))


def stamps(rows: pa.Table, replay_id: str) -> pa.Array:
    """Return the properties that a replay adds to each message, in their stored form.

    Args:
        rows: `broker`, `physical_offset`, `msg_id`, `topic`, `queue_id`, `store_timestamp` and `born_timestamp` of
            `messages`. All messages of a batch have one born time, that of the request, so theirs is a property.
    """

    def text(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return pc.binary_join_element_wise(f"{name}\x01", column.cast(pa.string()), "\x02", "")

    def milliseconds(name: str) -> pa.ChunkedArray:
        return pc.divide(rows.column(name).cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1000)

    parts = [
        text(ORIGIN_MSG_ID, rows.column("msg_id")),
        text(ORIGIN_TOPIC, rows.column("topic")),
        text(ORIGIN_QUEUE_ID, rows.column("queue_id")),
        text(ORIGIN_STORE_TIMESTAMP, milliseconds("store_timestamp")),
        text(ORIGIN_BORN_TIMESTAMP, milliseconds("born_timestamp")),
        text(ORIGIN_BROKER, rows.column("broker")),
        text(ORIGIN_PHYSICAL_OFFSET, rows.column("physical_offset")),
    ]
    known = [pc.fill_null(part, "") for part in parts]
    joined = pc.binary_join_element_wise(f"{REPLAY_ID}\x01{replay_id}\x02", *known, "")
    return joined.combine_chunks()
