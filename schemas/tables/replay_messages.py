"""`replay_messages`: the outcome of each message of a replay, one row per message.

Rows are added in batches while the replay runs, and each row only once. A row says that the message is in the target,
or that it can never be sent. A message without a row may also be in the target, if the process ended before it wrote
the row; when the replay is resumed, it searches the target for such messages.

Key: (`replay_id`, `broker`, `physical_offset`).
"""

from __future__ import annotations

from enum import StrEnum

from commitlake.schemas.tables.columns import INT32, INT64, TEXT, TIME, Column, Columns


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


REPLAY_MESSAGES = Columns(
    [
        Column("replay_id", TEXT, "the replay"),
        Column("part", INT32, "number of the part of the plan that the message is in, from 0"),
        Column("broker", TEXT, "the store that the message was archived from"),
        Column("physical_offset", INT64, "physical offset of the message in that store"),
        Column("msg_id", TEXT, "its offset message id in that store"),
        Column("topic", TEXT, "topic in which it was stored there"),
        Column("queue_id", INT32, "queue in which it was stored"),
        Column("queue_offset", INT64, "its queue offset there"),
        Column("outcome", TEXT, "sent, found, no_body, not_changed or refused"),
        Column("target_topic", TEXT, "topic that it was sent to"),
        Column("target_broker", TEXT, "name of the broker that stored it"),
        Column("target_queue_id", INT32, "queue of the target topic"),
        Column("target_offset", INT64, "its queue offset there; null if it is not there"),
        Column("attempts", INT32, "number of attempts; 0 if it was found or never sent"),
        Column("sent_at", TIME, "time at which the outcome was known"),
        Column("error", TEXT, "reason why it was not sent; null if it was sent"),
    ]
)
