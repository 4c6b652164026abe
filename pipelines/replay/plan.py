"""A replay's plan: which messages are sent and where to. It is fixed before the first one is sent."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class QueueMapping(StrEnum):
    """How the queue of a message in the target follows from the message."""

    SAME = "same"
    """The queue of the same number, of the broker of the same name, or of the first one where there is none."""
    KEY = "key"
    """By a hash of its first key: messages of one key share a queue."""
    SHARDING_KEY = "sharding-key"
    """By a hash of the property `__SHARDINGKEY`, as ordered producers set it."""


class LogRange(NamedTuple):
    """A stretch of a store's log, in physical offsets; the end is not part of it."""

    broker: str
    start: int
    end: int


class QueueEnd(NamedTuple):
    """A queue of the target, and where it ended when the plan was made."""

    topic: str
    broker: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class Target:
    """Where the messages go.

    Attributes:
        name_servers: `host:port` of each, with semicolons between.
        topic: the topic for all of them; None for the topic that each was sent to at first.
        mapping: how their queues follow.
        queues: of all topics that get a message.
    """

    name_servers: str
    topic: str | None
    mapping: QueueMapping
    queues: tuple[QueueEnd, ...]


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """What is sent and where to.

    Attributes:
        replay_id: names the replay.
        created_at: when the plan was made, UTC.
        condition: SQL about a row of `messages` that is sent.
        parts: each a few stretches of logs, in the order in which they are sent.
        messages: how many rows of `messages` the parts have, before `limit`.
        bytes: of their stored records.
        limit: only the first so many; 0 for all.
        target: where the messages go.
        batch_bytes: of a batch, at most, unless one message is larger.
        command: the selection in words, for a person.
        is_changed: the messages are in `replay_rows`, as they are sent; the condition is on that table.
        rate: messages per second at which it begins; 0 for no limit.
        speed: of the pace at which the messages were stored; 0 for no such limit.
        lag_limit: a group, and how many messages it may have to consume; None for no such limit.
        selection: SQL about a row of `messages` by which they were chosen, before anything was changed.
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
        """How many messages are sent."""
        return min(self.messages, self.limit) if self.limit else self.messages
