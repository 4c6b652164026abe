"""`replay_messages`: the outcome of each message of a replay, one row per message.

Rows are added in batches while the replay runs, and each row only once. A row says that the message is in the target,
or that it can never be sent. A message without a row may also be in the target, if the process ended before it wrote
the row; when the replay is resumed, it searches the target for such messages.

Key: (`replay_id`, `broker`, `physical_offset`).
"""

from __future__ import annotations

from enum import StrEnum

from pyspark.sql.types import IntegerType, LongType, StringType, StructType, TimestampType

from commitlake.schemas.tables.columns import column


class SendOutcome(StrEnum):
    """The outcome of a message of a replay."""

    SENT = "sent"
    """The target's broker has confirmed that it is stored."""
    FOUND = "found"
    """It was found in the target after the broker's answer had been lost."""
    NO_BODY = "no_body"
    """It was not sent, because the lake does not have its body, or has a damaged one."""
    NOT_CHANGED = "not_changed"
    """It was not sent, because it could not be masked, or because a function's result is invalid."""
    REFUSED = "refused"
    """The target's broker refuses it on every attempt."""


REPLAY_MESSAGES = StructType(
    [
        column("replay_id", StringType(), "the replay"),
        column("part", IntegerType(), "number of the part of the plan that the message is in, from 0"),
        column("broker", StringType(), "the store that the message was archived from"),
        column("physical_offset", LongType(), "physical offset of the message in that store"),
        column("msg_id", StringType(), "its offset message id in that store"),
        column("topic", StringType(), "topic in which it was stored there"),
        column("queue_id", IntegerType(), "queue in which it was stored"),
        column("queue_offset", LongType(), "its queue offset there"),
        column("outcome", StringType(), "sent, found, no_body, not_changed or refused"),
        column("target_topic", StringType(), "topic that it was sent to"),
        column("target_broker", StringType(), "name of the broker that stored it"),
        column("target_queue_id", IntegerType(), "queue of the target topic"),
        column("target_offset", LongType(), "its queue offset there; null if it is not there"),
        column("attempts", IntegerType(), "number of attempts; 0 if it was found or never sent"),
        column("sent_at", TimestampType(), "time at which the outcome was known"),
        column("error", StringType(), "reason why it was not sent; null if it was sent"),
    ]
)
