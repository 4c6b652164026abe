"""`edges`: one row per step between two stored records of a message, or between a record and what a client did with it.

Grain: one row per step and node. A node is a unique key, or `BROKER@OFFSET` for a record without one. Most steps have
one node and so one row, because all copies that a broker makes of a message keep its unique key. An op record, or a
replayed message with a new key, is a separate node; its step has two rows, and `WHERE side != 'to'` returns each step
once. A file's rows are sorted by `node_hash`, the CRC-32 of the node as UTF-8 (`crc32(node)` in Spark), so that a
look-up reads one row group per file.

If the lake lacks the record at one end of a step, its columns are null and `absent_reason` gives the reason. A row with
the reason `not_yet` is replaced by a complete one as soon as the lake has the missing record.

The table is derived from `messages` and `consumptions` by their Delta versions, and may lack the newest ones. Times are
UTC with millisecond precision.
"""

from __future__ import annotations

from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from commitlake.schemas.tables.columns import column
from commitlake.schemas.tables.edge_kinds import AbsentReason, EdgeKind, StepOutcome

__all__ = ["EDGES", "LINK_DAYS", "AbsentReason", "EdgeKind", "StepOutcome"]

LINK_DAYS = 7
"""Days within which a copy must follow its predecessor if only the unique key links them, or follow its due time."""


def _end(prefix: str, what: str) -> list[StructField]:
    return [
        column(f"{prefix}_broker", StringType(), f"store that has {what}; null if not known, or if there is none"),
        column(f"{prefix}_physical_offset", LongType(), f"physical offset of {what} in that store"),
        column(f"{prefix}_topic", StringType(), f"topic in which {what} is stored"),
        column(f"{prefix}_queue_id", IntegerType(), f"queue of {what}"),
        column(f"{prefix}_queue_offset", LongType(), f"queue offset of {what}"),
        column(f"{prefix}_timestamp", TimestampType(), f"store_timestamp of {what}"),
    ]


EDGES = StructType(
    [
        column("node_hash", LongType(), "CRC-32 of node in UTF-8; files are sorted by it"),
        column("node", StringType(), "unique key of the message, or BROKER@OFFSET of a record without one"),
        column("side", StringType(), "ends of the step that have this node: both, from or to"),
        column("kind", StringType(), "see EdgeKind: " + ", ".join(EdgeKind)),
        *_end("from", "the earlier record"),
        *_end("to", "the later record"),
        column("unique_key", StringType(), "unique key of the message, as in messages; null if it has none"),
        column("absent_end", StringType(), "the missing end: from or to; null for a complete step"),
        column("absent_reason", StringType(), "why, see AbsentReason: " + ", ".join(AbsentReason)),
        column(
            "consumer_group",
            StringType(),
            "consumer group of a retry, a dead letter or a consumption; JMQ: the application",
        ),
        column("producer_group", StringType(), "producer's group, from a trace; JMQ: null"),
        column("client_host", StringType(), "host of the producer or consumer in a trace or consume record"),
        column(
            "attempt",
            IntegerType(),
            "failed consumptions before this one: 0 for the first delivery, 1 for the first retry",
        ),
        column("outcome", StringType(), "outcome of the step, see Outcome; null if not known"),
        column("request_id", StringType(), "request id of a consumption in a trace; null otherwise"),
        column("cost_ms", LongType(), "time that the client took, ms"),
        column(
            "event_timestamp",
            TimestampType(),
            "time of the step: client's clock for a trace; broker's clock for a consume record or a retry store",
        ),
        column(
            "due_timestamp",
            TimestampType(),
            "time at which a waiting record is due, by its level, its timer or the retry store",
        ),
        column("replay_id", StringType(), "id of the replay that sent the message again"),
        column(
            "evidence_broker",
            StringType(),
            "store of the trace record, or of the consume record, that reports the step",
        ),
        column(
            "evidence_physical_offset",
            LongType(),
            "physical offset of that record; for a consume record -1 - consume_offset, which is negative",
        ),
        column("evidence_entry", IntegerType(), "number of the entry within that record, from 0"),
    ]
)
"""The columns of `edges`."""
