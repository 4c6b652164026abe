"""A snapshot: offsets of one store and subscriptions of its groups, each with its time."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class OffsetKind(StrEnum):
    """Kind of offset in a snapshot, such as a consumer group's offset or a delay level's offset."""

    GROUP = "group"
    DELAY = "delay"
    TIMER = "timer"
    TIMER_TIME = "timer_time"


class SnapshotSource(StrEnum):
    """Source of a snapshot: the store's files, or the live broker."""

    FILE = "file"
    BROKER = "broker"


class OffsetOwner(NamedTuple):
    """Key of an offset: its kind, group and queue; `group` is empty for kinds without groups."""

    kind: OffsetKind
    group: str
    topic: str
    queue_id: int


class Member(NamedTuple):
    """Client of a consumer group, with its address and version."""

    client_id: str
    address: str
    language: str
    version: int
    version_name: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """A group's subscription to a topic, with its clients.

    Attributes:
        expression_type: TAG or SQL92; None if the group no longer subscribes.
        expression: `*`, tags, or SQL92.
        subscribed_at: ms since 1970.
        members: connected clients; None if the source does not know them.
    """

    expression_type: str | None = None
    expression: str | None = None
    subscribed_at: int | None = None
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    members: tuple[Member, ...] | None = None


class GroupTopic(NamedTuple):
    """Consumer group and topic of a subscription."""

    group: str
    topic: str


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """Offsets and subscriptions of one store, as read at one time.

    Attributes:
        broker: name of the store in the lake.
        source: source of the snapshot.
        taken: for each kind that was read, the time of its offsets.
        offsets: the offsets.
        subscribed_as_of: time of the subscriptions; None if they were not read.
        subscriptions: the groups' subscriptions.
        log_end: physical offset of the log's end after the offsets were read; None if not known.
        log_start: physical offset of the log's start; None if not known.
        read_at: time at which files were read that may be older; None if a broker was asked.
        unreadable: sentences on files that exist but could not be read.
        note: a sentence on missing files; empty if none are.
    """

    broker: str
    source: SnapshotSource
    taken: Mapping[OffsetKind, datetime.datetime] = field(default_factory=dict)
    offsets: Mapping[OffsetOwner, int] = field(default_factory=dict)
    subscribed_as_of: datetime.datetime | None = None
    subscriptions: Mapping[GroupTopic, Subscription] = field(default_factory=dict)
    log_end: int | None = None
    log_start: int | None = None
    read_at: datetime.datetime | None = None
    unreadable: tuple[str, ...] = ()
    note: str = ""
