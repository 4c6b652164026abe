"""What groups wanted at a time, and whether they had clients, as the snapshots of `subscriptions` tell."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from deltalake import DeltaTable

from commitlake.connectors.lake.snapshot_tables import SUBSCRIBED, next_rows, rows_between
from commitlake.pipelines.lag.wanted import Wanted
from commitlake.pipelines.snapshot.progress import GroupTopic, Source
from commitlake.schemas.times import EPOCH

BROADCASTING = "BROADCASTING"
"""Message model of a group each of whose clients gets every message."""
MANY_CHANGES = 3
"""Changes of a subscription that tell that a group's clients do not agree: each heartbeat replaces the other's."""
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SubscribedAt:
    """A group's subscription at a time.

    Attributes:
        wanted: Its choice of messages.
        members: How many clients it had; None where that is not known.
        message_model: CLUSTERING or BROADCASTING; None where not known.
        note: What is to be said about it.
    """

    wanted: Wanted
    members: int | None = None
    message_model: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """The subscriptions of a store's groups at a time.

    Attributes:
        found: Those that are known.
        is_asked: Whether a live broker was asked: a group that it did not name has no client.
    """

    found: Mapping[GroupTopic, SubscribedAt] = field(default_factory=dict)
    is_asked: bool = False

    def of(self, key: GroupTopic) -> SubscribedAt:
        """Return the subscription of a group; where it is not known, one to every message."""
        return self.found.get(key) or SubscribedAt(Wanted(), 0 if self.is_asked else None)

    def with_given(self, given: Mapping[GroupTopic, Wanted]) -> Subscriptions:
        """Return these, with choices that the user states instead of what is known."""
        stated = {key: replace(self.of(key), wanted=wanted, note="") for key, wanted in given.items()}
        return Subscriptions({**self.found, **stated}, self.is_asked)


def subscriptions_at(table: DeltaTable, broker: str, at: datetime.datetime) -> Subscriptions:
    """Return the subscriptions of a store's groups at a time.

    A group that has no client keeps the subscription that it had last. For a time before the first snapshot of
    subscriptions the first one is taken, and said so.

    Args:
        table: `subscriptions`.
        broker: The store's name.
        at: The time.

    Raises:
        QueryError: The table cannot be read.
    """
    wanted: dict[GroupTopic, Wanted] = {}
    newest: dict[GroupTopic, Row] = {}
    changes: Counter[GroupTopic] = Counter()
    is_asked = False
    for row in rows_between(table, SUBSCRIBED, broker, EPOCH, at).to_pylist():
        if row["topic"] is None:
            is_asked = is_asked or row["source"] == Source.BROKER
            continue
        key = GroupTopic(row["group"], row["topic"])
        if row["source"] == Source.BROKER:
            newest[key] = row
        if row["expression"] is not None:
            now = Wanted.of(row["expression_type"], row["expression"])
            changes[key] += key in wanted and wanted[key] != now
            wanted[key] = now
    found = {
        key: _subscribed(choice, newest.get(key), changes[key], is_asked=is_asked) for key, choice in wanted.items()
    }
    for row in next_rows(table, SUBSCRIBED, broker, at).to_pylist():
        key = GroupTopic(row["group"], row["topic"])
        if row["topic"] is not None and key not in found and row["expression"] is not None:
            since = f"{row['as_of']:%Y-%m-%dT%H:%M:%SZ}"
            choice = Wanted.of(row["expression_type"], row["expression"])
            found[key] = SubscribedAt(
                choice, note=f"its subscription is known from {since} on, and taken for this time"
            )
    return Subscriptions(found, is_asked)


def _subscribed(wanted: Wanted, newest: Row | None, changes: int, *, is_asked: bool) -> SubscribedAt:
    """Return the answer for a group and topic.

    Args:
        wanted: What it wanted last.
        newest: The last row that a live broker told; None where there is none.
        changes: How often it wanted something else before.
        is_asked: Whether a live broker was asked at all.
    """
    note = wanted.problem
    if changes >= MANY_CHANGES:
        note = f"its clients subscribe differently: the filter has changed {changes} times"
    if newest is None:
        return SubscribedAt(wanted, 0 if is_asked else None, note=note)
    members = newest["members"]
    return SubscribedAt(wanted, len(members or ()), newest["message_model"], note)
