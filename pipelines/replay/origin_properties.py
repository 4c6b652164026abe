"""Origin of messages: properties that a replay adds to a message, and original topics of retries and dead letters.

A message that is sent again has its own properties, without those that brokers set, and its origin.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import to_string_array
from commitlake.connectors.lake.sql import text_literal
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import INNER_BASE, INNER_NUM
from commitlake.schemas.layouts.rocketmq.light_queues import MULTI_DISPATCH, MULTI_QUEUE_OFFSET
from commitlake.schemas.layouts.rocketmq.properties import DLQ_ORIGIN_TOPIC, RETRY_TOPIC

REPLAY_ID = "REPLAY_ID"
ORIGIN_MSG_ID = "ORIGIN_MSG_ID"
ORIGIN_TOPIC = "ORIGIN_TOPIC"
ORIGIN_QUEUE_ID = "ORIGIN_QUEUE_ID"
ORIGIN_STORE_TIMESTAMP = "ORIGIN_STORE_TIMESTAMP"
ORIGIN_BORN_TIMESTAMP = "ORIGIN_BORN_TIMESTAMP"
ORIGIN_BROKER = "ORIGIN_BROKER"
ORIGIN_PHYSICAL_OFFSET = "ORIGIN_PHYSICAL_OFFSET"
ORIGIN_PROPERTIES = (
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
DROPPED = to_string_array(sorted(BROKERS_OWN | DELAYS | set(ORIGIN_PROPERTIES)))
ORIGIN_COLUMN = "origin_topic"
_TOPIC_PROPERTIES = (RETRY_TOPIC, DLQ_ORIGIN_TOPIC)


def origin_properties(rows: pa.Table, replay_id: str) -> pa.Array:
    """Return the properties that name each message's original place and times, as bytes of a stored message.

    Args:
        rows: `broker`, `physical_offset`, `msg_id`, `topic`, `queue_id`, `store_timestamp` and `born_timestamp` of
            `messages`. All messages of a batch have one born time, that of the request, so theirs is a property.
    """

    def encode_property(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return pc.binary_join_element_wise(f"{name}\x01", column.cast(pa.string()), "\x02", "")

    def time_column_to_ms(column_name: str) -> pa.ChunkedArray:
        return pc.divide(rows.column(column_name).cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1000)

    parts = [
        encode_property(ORIGIN_MSG_ID, rows.column("msg_id")),
        encode_property(ORIGIN_TOPIC, rows.column("topic")),
        encode_property(ORIGIN_QUEUE_ID, rows.column("queue_id")),
        encode_property(ORIGIN_STORE_TIMESTAMP, time_column_to_ms("store_timestamp")),
        encode_property(ORIGIN_BORN_TIMESTAMP, time_column_to_ms("born_timestamp")),
        encode_property(ORIGIN_BROKER, rows.column("broker")),
        encode_property(ORIGIN_PHYSICAL_OFFSET, rows.column("physical_offset")),
    ]
    known = [pc.fill_null(part, "") for part in parts]
    joined = pc.binary_join_element_wise(f"{REPLAY_ID}\x01{replay_id}\x02", *known, "")
    return joined.combine_chunks()


def original_topic_sql(table: DeltaTable | None) -> str:
    """Return SQL for the original topic of a retry or a dead letter; null if it is not known.

    Args:
        table: the table `messages`; older versions lack the column `origin_topic`. None if it has all columns.
    """
    is_known = table is None or ORIGIN_COLUMN in {field.name for field in table.schema().fields}
    texts = [ORIGIN_COLUMN] if is_known else []
    texts += [f"properties[{text_literal(name)}]" for name in _TOPIC_PROPERTIES]
    return f"nullif(coalesce(nullif({texts[0]}, topic), {', '.join(texts[1:])}), topic)"


def original_topics(rows: pa.Table) -> pa.Array:
    """Return the original topic of each retry or dead letter; null if it is not known.

    Args:
        rows: `topic`, `origin_topic` and `properties` of `messages`.
    """
    stored = rows.column("topic").cast(pa.string()).combine_chunks()
    told = rows.column(ORIGIN_COLUMN).cast(pa.string()).combine_chunks()
    is_own = pc.fill_null(pc.equal(told, stored), True)
    entries = rows.column("properties").combine_chunks()
    named = [pc.map_lookup(entries, pa.scalar(name, entries.type.key_type), "last") for name in _TOPIC_PROPERTIES]
    return pc.coalesce(pc.if_else(is_own, None, told), *[each.cast(pa.string()) for each in named])
