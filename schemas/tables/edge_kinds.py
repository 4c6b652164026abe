"""Values of the table `edges`: kinds of steps, why an end is absent, how a step ended. Needs no Spark."""

from __future__ import annotations

from enum import StrEnum


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
