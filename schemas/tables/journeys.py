"""Journeys of business keys, and hops between topics, as analysts ask for them; not tables of a lake.

A journey is what happened to a business key: the messages that have it, in the order in which they were sent. All
records that a broker stores of one message are one step: half message and commit, delay and delivery, retries and dead
letters, and what a replay sent again.
"""

from __future__ import annotations

from enum import StrEnum

from commitlake.schemas.tables.columns import BOOLEAN, INT64, TEXT, TIME, Column, Columns, ListOf, MapOf


class JourneyState(StrEnum):
    """State of a message, or of a business key's journey (all its messages), after the last record that was read."""

    DEAD = "dead"
    """A dead letter that was not sent again."""
    PREPARED = "prepared"
    """A half message that is neither committed nor rolled back."""
    WAITING = "waiting"
    """The broker holds it back: a delay, a timer, or the delay before a retry."""
    DELIVERED = "delivered"
    """It is in its topic, or in a group's retry topic. This does not say whether a group has consumed it."""
    ROLLED_BACK = "rolled_back"
    """Its transaction was rolled back."""
    CANCELLED = "cancelled"
    """Its producer cancelled the timer, or the broker gave the half message up."""
    REDRIVEN = "redriven"
    """A dead letter that a replay sent again, of which no later record with the key was read."""
    UNKNOWN = "unknown"
    """It was held back, and the lake does not show what became of it."""


OPEN_STATES = (JourneyState.DEAD, JourneyState.PREPARED, JourneyState.WAITING)
"""States of any message that decide on the outcome of a journey, the first of them first."""

STEP = Columns(
    [
        Column("number", INT64, "number of the step in the journey, from 1"),
        Column("topic", TEXT, "topic that the message was sent to"),
        Column("sent_at", TIME, "store time of its first record, UTC: when it was sent, not when it was delivered"),
        Column("hop_ms", INT64, "time since the step before was sent, ms; null for the first step"),
        Column("visible_at", TIME, "store time of the message in its own topic, UTC; null if it is not there"),
        Column("state", TEXT, "see JourneyState: " + ", ".join(JourneyState)),
        Column("retries", INT64, "further tries of consumer groups"),
        Column("dead_letters", INT64, "dead letters of consumer groups"),
        Column("broker", TEXT, "store of the first record"),
        Column("physical_offset", INT64, "its physical offset"),
    ]
)
"""A step of a journey: one message."""

JOURNEYS = Columns(
    [
        Column("key", TEXT, "the business key"),
        Column("path", ListOf(TEXT), "topics of the steps, in their order"),
        Column("steps", ListOf(STEP), "the steps, in the order in which they were sent"),
        Column("last_topic", TEXT, "topic of the last step, also if path and steps leave it out"),
        Column("messages", INT64, "number of steps, also of those that path and steps leave out"),
        Column("records", INT64, "records that the brokers stored of them"),
        Column("first_at", TIME, "store time of the first record, UTC"),
        Column("last_at", TIME, "store time of the last record, UTC"),
        Column("last_sent_at", TIME, "time at which the last step was sent, UTC"),
        Column("retries", INT64, "further tries of consumer groups"),
        Column("dead_letters", INT64, "dead letters of consumer groups, also those that were sent again"),
        Column("open_transactions", INT64, "steps that are half messages, neither committed nor rolled back"),
        Column("waiting", INT64, "steps that a delay, a timer or a retry holds back"),
        Column("due_at", TIME, "time at which the last of them is due, UTC; null if none waits, or it is not known"),
        Column("replays", INT64, "records that a replay sent again"),
        Column(
            "outcome",
            TEXT,
            "dead, prepared or waiting if any step is, in this order; otherwise the state of the last step",
        ),
        Column("began_before", BOOLEAN, "true if it began before the window, or its first record is not in the lake"),
        Column("went_on_after", BOOLEAN, "true if it has a record after the window"),
        Column("is_cut", BOOLEAN, "true if path and steps leave out later steps, because there are too many"),
        Column(
            "order_uncertain",
            BOOLEAN,
            "true if times of steps contradict their order in a log, because the broker's clock was set back",
        ),
    ]
)
"""One row for each business key that has a record in a window of store time."""

HOPS = Columns(
    [
        Column("hour", TIME, "start of the hour, UTC, in which the later message was sent"),
        Column("source", TEXT, "topic of a step"),
        Column("target", TEXT, "topic of the next step of the same key"),
        Column("hops", INT64, "number of such pairs of steps"),
        Column("p50_ms", INT64, "median of the times between the two, ms, rounded up to two digits"),
        Column("p95_ms", INT64, "time that 95 % of them took at most"),
        Column("p99_ms", INT64, "time that 99 % of them took at most"),
        Column("delays", MapOf(INT64, INT64), "number of hops by their time, ms, rounded up to two digits"),
    ]
)
"""One row for each hour and pair of topics that follow each other. Rows of several hours are added by `delays`."""
