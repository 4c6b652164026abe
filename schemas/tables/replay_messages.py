"""`replay_messages`: where each message of a replay has landed, one row per message.

Rows are added part by part, each time only once: a row says that the message is in the target, or that it can never
be. A message without a row may be in the target all the same, if the process ended before it wrote the row; whoever
resumes the replay looks for it there.

Key: (`replay_id`, `broker`, `physical_offset`).
"""

from __future__ import annotations

from enum import StrEnum

from pyspark.sql.types import IntegerType, LongType, StringType, StructType, TimestampType

from commitlake.schemas.tables.columns import column


class Outcome(StrEnum):
    """What became of a message of a replay."""

    SENT = "sent"
    """The target's broker has answered that it is stored."""
    FOUND = "found"
    """It was found in the target after its answer had been lost."""
    NO_BODY = "no_body"
    """The lake has no body of it, or a damaged one: it was not sent."""
    NOT_CHANGED = "not_changed"
    """It could not be masked, or what a function made of it cannot be sent: it was not sent."""
    REFUSED = "refused"
    """The target's broker does not take it, however often it is sent."""


REPLAY_MESSAGES = StructType(
    [
        column("replay_id", StringType(), "the replay"),
        column("part", IntegerType(), "number of the part of the plan that the message is in, from 0"),
        column("broker", StringType(), "the store that the message was archived from"),
        column("physical_offset", LongType(), "of the message in that store"),
        column("msg_id", StringType(), "its offset message id in that store"),
        column("topic", StringType(), "where it was stored there"),
        column("queue_id", IntegerType(), "likewise"),
        column("queue_offset", LongType(), "likewise"),
        column("outcome", StringType(), "sent, found, no_body, not_changed or refused"),
        column("target_topic", StringType(), "where it was sent to"),
        column("target_broker", StringType(), "name of the broker that stored it"),
        column("target_queue_id", IntegerType(), "queue of the target topic"),
        column("target_offset", LongType(), "its queue offset there; null where it is not there"),
        column("attempts", IntegerType(), "how often it was sent; 0 where it was found or never sent"),
        column("sent_at", TimestampType(), "when the outcome was known"),
        column("error", StringType(), "why it was not sent; null where it was"),
    ]
)
