"""Values of the table `edges`: kinds of steps, reasons for missing ends, outcomes of steps. Needs no Spark."""

from __future__ import annotations

from enum import StrEnum


class EdgeKind(StrEnum):
    """The kind of a step between two records, or at one record."""

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
    """The reason why the lake does not have the record at one end of a step."""

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
    """The outcome of a step."""

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
