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

from commitlake.schemas.tables.columns import INT32, INT64, TEXT, TIME, Column, Columns
from commitlake.schemas.tables.edge_kinds import AbsentReason, EdgeKind, StepOutcome

__all__ = ["EDGES", "LINK_DAYS", "AbsentReason", "EdgeKind", "StepOutcome"]

LINK_DAYS = 7
"""Days within which a copy must follow its predecessor if only the unique key links them, or follow its due time."""


def _end(prefix: str, what: str) -> list[Column]:
    return [
        Column(f"{prefix}_broker", TEXT, f"store that has {what}; null if not known, or if there is none"),
        Column(f"{prefix}_physical_offset", INT64, f"physical offset of {what} in that store"),
        Column(f"{prefix}_topic", TEXT, f"topic in which {what} is stored"),
        Column(f"{prefix}_queue_id", INT32, f"queue of {what}"),
        Column(f"{prefix}_queue_offset", INT64, f"queue offset of {what}"),
        Column(f"{prefix}_timestamp", TIME, f"store_timestamp of {what}"),
    ]


EDGES = Columns(
    [
        Column("node_hash", INT64, "CRC-32 of node in UTF-8; files are sorted by it"),
        Column("node", TEXT, "unique key of the message, or BROKER@OFFSET of a record without one"),
        Column("side", TEXT, "ends of the step that have this node: both, from or to"),
        Column("kind", TEXT, "see EdgeKind: " + ", ".join(EdgeKind)),
        *_end("from", "the earlier record"),
        *_end("to", "the later record"),
        Column("unique_key", TEXT, "unique key of the message, as in messages; null if it has none"),
        Column("absent_end", TEXT, "the missing end: from or to; null for a complete step"),
        Column("absent_reason", TEXT, "why, see AbsentReason: " + ", ".join(AbsentReason)),
        Column(
            "consumer_group",
            TEXT,
            "consumer group of a retry, a dead letter or a consumption; JMQ: the application",
        ),
        Column("producer_group", TEXT, "producer's group, from a trace; JMQ: null"),
        Column("client_host", TEXT, "host of the producer or consumer in a trace or consume record"),
        Column(
            "attempt",
            INT32,
            "failed consumptions before this one: 0 for the first delivery, 1 for the first retry",
        ),
        Column("outcome", TEXT, "outcome of the step, see Outcome; null if not known"),
        Column("request_id", TEXT, "request id of a consumption in a trace; null otherwise"),
        Column("cost_ms", INT64, "time that the client took, ms"),
        Column(
            "event_timestamp",
            TIME,
            "time of the step: client's clock for a trace; broker's clock for a consume record or a retry store",
        ),
        Column(
            "due_timestamp",
            TIME,
            "time at which a waiting record is due, by its level, its timer or the retry store",
        ),
        Column("replay_id", TEXT, "id of the replay that sent the message again"),
        Column(
            "evidence_broker",
            TEXT,
            "store of the trace record, or of the consume record, that reports the step",
        ),
        Column(
            "evidence_physical_offset",
            INT64,
            "physical offset of that record; for a consume record -1 - consume_offset, which is negative",
        ),
        Column("evidence_entry", INT32, "number of the entry within that record, from 0"),
    ]
)
"""The columns of `edges`."""
