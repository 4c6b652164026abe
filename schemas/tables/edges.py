"""Tables of what happened to messages: `edges` links records, and `consumptions` lists deliveries by JMQ stores."""

from __future__ import annotations

from enum import StrEnum

from commitlake.schemas.tables.columns import INT32, INT64, TEXT, TIME, Column, Columns

LINK_DAYS = 7
"""Days within which a copy must follow its predecessor if only the unique key links them, or follow its due time."""


class EdgeKind(StrEnum):
    """Kind of an edge, which links two records of a message, such as a half message and its committed copy."""

    DELAYED = "delayed"
    """A record that waited in a schedule topic was delivered to its own topic, or to a group's retry topic."""
    TIMER = "timer"
    """A record that waited for the timer wheel was delivered, or waits there again."""
    RETRIED = "retried"
    """A consumer failed on a record: its copy waits in a schedule topic or a retry store, or is in a retry topic."""
    DEAD = "dead"
    """A consumer failed on a record for the last time: its copy is a dead letter."""
    COMMITTED = "committed"
    """A half message was committed: its copy is in the message's own topic."""
    FINISHED = "finished"
    """An op record says that a half message is finished; the outcome is committed or rolled_back."""
    RECHECKED = "rechecked"
    """A half message was stored again because the broker asked its producer for the outcome."""
    GIVEN_UP = "given_up"
    """The broker gave up a half message that its producer did not finish."""
    REPLAYED = "replayed"
    """An archived message was sent again by a replay."""
    REDRIVEN = "redriven"
    """A dead letter was sent again by a replay."""
    PRODUCED = "produced"
    """A trace says that a producer sent a record; it has no record at its `from` end."""
    CONSUMED = "consumed"
    """A trace, or a consume record of JMQ, says that a group consumed a record; it has no record at its `to` end."""
    ENDED = "ended"
    """A trace says that a producer has decided on a half message; it has no record at its `to` end."""
    RECALLED = "recalled"
    """A trace says that a producer cancelled a timer message; it has no record at its `to` end."""


class AbsentReason(StrEnum):
    """Reason why the record at one end of an edge is not in the lake."""

    NOT_YET = "not_yet"
    """A later run may bring it: it is not yet written, or not yet archived."""
    BEFORE_ARCHIVE = "before_archive"
    """It was stored before the first archived record of its broker."""
    EXPIRED = "expired"
    """The lake had it, but has dropped rows of its age."""
    OTHER_CLUSTER = "other_cluster"
    """It belongs to a broker that is not in the lake."""
    LOST = "lost"
    """It is in an archived range of the log that has no intact record there: see quarantine and gaps."""
    OVERDUE = "overdue"
    """It was due more than `LINK_DAYS` days before the newest record of its broker, and was never stored."""
    AMBIGUOUS = "ambiguous"
    """Several records match and cannot be distinguished, or the record has no unique key to find the other end with."""
    REFUSED = "refused"
    """The producer was told that its message was not stored."""
    RETRY_STORE = "retry_store"
    """It is in the broker's retry store, not in its log; a later run may find it delivered."""


class StepOutcome(StrEnum):
    """Outcome of what an edge describes, such as a delivery or a transaction check: committed, failed or timed out."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    UNKNOWN = "unknown"
    SUCCESS = "success"
    FAILED = "failed"
    TIME_OUT = "time_out"
    EXCEPTION = "exception"
    RETURNED_NULL = "returned_null"
    DEAD = "dead"
    CANCELLED = "cancelled"


def _endpoint_columns(prefix: str, record_text: str) -> list[Column]:
    return [
        Column(f"{prefix}_broker", TEXT, f"store that has {record_text}; null if not known, or if there is none"),
        Column(f"{prefix}_physical_offset", INT64, f"physical offset of {record_text} in that store"),
        Column(f"{prefix}_topic", TEXT, f"topic in which {record_text} is stored"),
        Column(f"{prefix}_queue_id", INT32, f"queue of {record_text}"),
        Column(f"{prefix}_queue_offset", INT64, f"queue offset of {record_text}"),
        Column(f"{prefix}_timestamp", TIME, f"store_timestamp of {record_text}"),
    ]


EDGES = Columns(
    [
        Column("node_hash", INT64, "CRC-32 of node in UTF-8; files are sorted by it"),
        Column("node", TEXT, "unique key of the message, or BROKER@OFFSET of a record without one"),
        Column("side", TEXT, "ends of the step that have this node: both, from or to"),
        Column("kind", TEXT, "see EdgeKind: " + ", ".join(EdgeKind)),
        *_endpoint_columns("from", "the earlier record"),
        *_endpoint_columns("to", "the later record"),
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
"""One row per step between two stored records of a message, or between a record and what a client did with it.

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


CONSUMPTIONS = Columns(
    [
        Column("broker", TEXT, "the store's name"),
        Column("consume_offset", INT64, "offset of the record in the store's consume log, bytes"),
        Column("topic", TEXT, "topic of the message"),
        Column("queue_id", INT32, "queue of the message"),
        Column("queue_offset", INT64, "offset of the message in its queue"),
        Column("physical_offset", INT64, "offset of the message's record in the journal, bytes"),
        Column("consumer_group", TEXT, "the application that consumed it"),
        Column("attempt", INT32, "failed deliveries to the application before this one"),
        Column("outcome", TEXT, "success, failed (it is delivered again) or dead (it is a dead letter)"),
        Column("client_host", TEXT, "address of the application's client, as ip:port"),
        Column("event_timestamp", TIME, "time at which the delivery ended, by the broker's clock"),
    ]
)
"""Deliveries of messages to applications, one row for each record of a JMQ store's consume log.

A message is delivered to an application once, and again after each failure. `edges` has the same steps, linked to the
messages. A consumption whose message is not in the lake is in both tables.

Key: (`broker`, `consume_offset`). Append-only. Times are UTC with millisecond precision.
"""
