"""`edges`: one row per step between two stored records of a message, or between a record and what a client did with it.

Grain: one row per step and node. A step is filed under each of its nodes, of which it mostly has one: all copies that a
broker makes of a message have its unique key. An op record, or a replayed message with a new key, is a node of its own;
such a step has two rows, and `WHERE side != 'to'` gives each step once. A node is a unique key, or `BROKER@OFFSET` of
a record without one. A file's rows are sorted by `node_hash`, the CRC-32 of the node as UTF-8 (`crc32(node)` in Spark),
so that a look-up reads one row group of a file.

An end that the lake does not have is null in the columns that nobody knows, and `absent_reason` says why. A row whose
reason is `not_yet` is replaced by a complete one as soon as the lake has the missing end.

Follows `messages` by its Delta version, and may be behind it. Times are UTC with millisecond precision.
"""

from __future__ import annotations

from enum import StrEnum

from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from commitlake.schemas.tables.columns import column

LINK_DAYS = 7
"""Days within which a copy follows its predecessor where only the unique key links them, or after it was due."""


class EdgeKind(StrEnum):
    """What happened between two records, or to one."""

    DELAYED = "delayed"
    """A record that waited in a schedule topic was delivered to its own topic, or to a group's retry topic."""
    TIMER = "timer"
    """A record that waited for the timer wheel was delivered, or waits there once more."""
    RETRIED = "retried"
    """A consumer failed on a record: its copy waits in a schedule topic, or lies in a retry topic at once."""
    DEAD = "dead"
    """A consumer failed on a record for the last time: its copy is a dead letter."""
    COMMITTED = "committed"
    """A half message was committed: its copy lies in the message's own topic."""
    FINISHED = "finished"
    """An op record says that a half message is finished; the outcome is committed or rolled_back."""
    RECHECKED = "rechecked"
    """A half message was stored again because its producer is asked for the outcome."""
    GIVEN_UP = "given_up"
    """A half message that its producer did not finish was given up."""
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
    """A trace says that a producer called a timer message back; it has no record at its `to` end."""


class AbsentReason(StrEnum):
    """Why the lake does not have the record at one end of a step."""

    NOT_YET = "not_yet"
    """It may come with a later run: it is still to be written, or to be archived."""
    BEFORE_ARCHIVE = "before_archive"
    """It was stored before the first record that was archived of its broker."""
    EXPIRED = "expired"
    """The lake had it, and has dropped rows as old as it."""
    OTHER_CLUSTER = "other_cluster"
    """It is of a broker that the lake does not have, or of none that the lake has."""
    LOST = "lost"
    """It lies in a range of the log that was archived, and no intact record is there: see quarantine and gaps."""
    OVERDUE = "overdue"
    """It was due more than `LINK_DAYS` days before the newest record of its broker, and was never stored."""
    AMBIGUOUS = "ambiguous"
    """Several records fit and nothing tells them apart, or the record has no unique key to find the other end by."""
    REFUSED = "refused"
    """The producer was told that its message was not stored."""


class Outcome(StrEnum):
    """How a step ended."""

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


def _end(prefix: str, what: str) -> list[StructField]:
    return [
        column(f"{prefix}_broker", StringType(), f"store that has {what}; null where nobody knows, or there is none"),
        column(f"{prefix}_physical_offset", LongType(), f"of {what} in that store"),
        column(f"{prefix}_topic", StringType(), f"where {what} is stored"),
        column(f"{prefix}_queue_id", IntegerType(), "likewise"),
        column(f"{prefix}_queue_offset", LongType(), "likewise"),
        column(f"{prefix}_timestamp", TimestampType(), f"store_timestamp of {what}"),
    ]


EDGES = StructType(
    [
        column("node_hash", LongType(), "CRC-32 of node in UTF-8; the files' order"),
        column("node", StringType(), "unique key of the message, or BROKER@OFFSET of a record without one"),
        column("side", StringType(), "ends of the step that have this node: both, from or to"),
        column("kind", StringType(), "see EdgeKind: " + ", ".join(EdgeKind)),
        *_end("from", "the record that was there before"),
        *_end("to", "the record that came of it"),
        column("unique_key", StringType(), "of the message, as in messages; null where it has none"),
        column("absent_end", StringType(), "which end the lake does not have: from or to; null for a complete step"),
        column("absent_reason", StringType(), "why, see AbsentReason: " + ", ".join(AbsentReason)),
        column("consumer_group", StringType(), "of a retry, a dead letter or a consumption; JMQ: the application"),
        column("producer_group", StringType(), "as a trace tells it; JMQ: null"),
        column("client_host", StringType(), "producer or consumer that a trace, or a consume record, is of"),
        column("attempt", IntegerType(), "failed consumptions before: 0 for the first delivery, 1 for the first retry"),
        column("outcome", StringType(), "how it ended, see Outcome; null where nothing tells"),
        column("request_id", StringType(), "of a consumption that a trace tells of; null elsewhere"),
        column("cost_ms", LongType(), "how long the client took, ms"),
        column("event_timestamp", TimestampType(), "client's clock of a trace; broker's of a consume record"),
        column("due_timestamp", TimestampType(), "when a waiting record is due, by its level or timer"),
        column("replay_id", StringType(), "the replay that sent the message again"),
        column("evidence_broker", StringType(), "store of the trace record, or of the consume record, that tells it"),
        column("evidence_physical_offset", LongType(), "of that record; of a consume record its offset in that log"),
        column("evidence_entry", IntegerType(), "which of the entries of that record, from 0"),
    ]
)
"""The columns of `edges`."""
