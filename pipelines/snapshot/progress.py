"""What a snapshot is: offsets of one store and subscriptions of its groups, each with the time it is true of."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class OffsetKind(StrEnum):
    """Whose offset it is; see `schemas.tables.consumer_offsets`."""

    GROUP = "group"
    DELAY = "delay"
    TIMER = "timer"
    TIMER_TIME = "timer_time"


class Source(StrEnum):
    """Where a snapshot was read."""

    FILE = "file"
    BROKER = "broker"


class Position(NamedTuple):
    """Whose offset, and in which queue; `group` is empty where the kind has none."""

    kind: OffsetKind
    group: str
    topic: str
    queue_id: int


class Member(NamedTuple):
    """A client of a group."""

    client_id: str
    address: str
    language: str
    version: int
    version_name: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a group wants of a topic, and who its clients are.

    Attributes:
        expression_type: TAG or SQL92; None where the group does not subscribe any longer.
        expression: `*`, tags, or SQL92.
        subscribed_at: ms since 1970.
        members: clients that are connected; None where the source does not know them.
    """

    expression_type: str | None = None
    expression: str | None = None
    subscribed_at: int | None = None
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    members: tuple[Member, ...] | None = None


class GroupTopic(NamedTuple):
    """A group and a topic that it subscribes to."""

    group: str
    topic: str


@dataclass(frozen=True, slots=True)
class Progress:
    """A snapshot of one store.

    Attributes:
        broker: the store's name in the lake.
        source: where it was read.
        taken: for each kind that was read, the time that its offsets are true of.
        offsets: the offsets.
        subscribed_as_of: the time that the subscriptions are true of; None where they were not read.
        subscriptions: what the groups want.
        log_end: physical offset where the log ended when the offsets had been read; None where not known.
        log_start: physical offset where the log began; None where not known.
        unreadable: sentences about files that are there and could not be read.
        note: a sentence about what is not there; empty where nothing is missing.
    """

    broker: str
    source: Source
    taken: Mapping[OffsetKind, datetime.datetime] = field(default_factory=dict)
    offsets: Mapping[Position, int] = field(default_factory=dict)
    subscribed_as_of: datetime.datetime | None = None
    subscriptions: Mapping[GroupTopic, Subscription] = field(default_factory=dict)
    log_end: int | None = None
    log_start: int | None = None
    unreadable: tuple[str, ...] = ()
    note: str = ""
