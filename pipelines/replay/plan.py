"""Plan of a replay: the messages to send and their target. It is fixed before the first message is sent."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class QueueMapping(StrEnum):
    """Rule that assigns a message to a queue of the target."""

    SAME = "same"
    """The queue of the same number, on the broker of the same name, or on one that its name determines."""
    KEY = "key"
    """By a hash of the message's first key: messages of one key share a queue."""
    SHARDING_KEY = "sharding-key"
    """By a hash of the property `__SHARDINGKEY`, which ordered producers set."""


class LogRange(NamedTuple):
    """Range of a store's log, in physical offsets; the end is exclusive."""

    broker: str
    start: int
    end: int


class QueueEnd(NamedTuple):
    """Queue of the target, with its end when the plan was made."""

    topic: str
    broker: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class Target:
    """Target of the messages.

    Attributes:
        name_servers: `host:port` of each, separated by semicolons.
        topic: topic for all messages; None for the original topic of each.
        mapping: rule that assigns messages to queues.
        queues: queues of all topics that receive messages.
    """

    name_servers: str
    topic: str | None
    mapping: QueueMapping
    queues: tuple[QueueEnd, ...]


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """Messages to send and their target.

    Attributes:
        replay_id: id of the replay.
        created_at: time at which the plan was made, UTC.
        condition: SQL condition on rows of `messages` that are sent.
        parts: each a few ranges of logs, in the order of sending.
        messages: number of rows of `messages` in the parts, before `limit`.
        bytes: size of their stored records.
        limit: number of messages to send, the first ones; 0 for all.
        target: target of the messages.
        batch_bytes: maximum size of a batch; a larger message is a batch of its own.
        command: the selection in words, for users.
        is_changed: True if the messages are in `replay_rows`, as they are sent; the condition then applies to that
            table.
        rate: initial limit in messages per second; 0 for no limit.
        speed: factor of the original pace; 0 for no such limit.
        lag_limit: a group, and the largest number of messages that it may have to consume; None for no such limit.
        selection: SQL condition on rows of `messages` by which they were chosen, before any change.
    """

    replay_id: str
    created_at: datetime.datetime
    condition: str
    parts: tuple[tuple[LogRange, ...], ...]
    messages: int
    bytes: int
    limit: int
    target: Target
    batch_bytes: int
    command: str = ""
    is_changed: bool = False
    selection: str = ""
    rate: float = 0.0
    speed: float = 0.0
    lag_limit: tuple[str, int] | None = None

    @property
    def wanted(self) -> int:
        """Number of messages to send."""
        return min(self.messages, self.limit) if self.limit else self.messages
