"""What groups wanted at a time, and whether they had clients, as the snapshots of `subscriptions` tell."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
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
    known = _Known()
    for row in rows_between(table, SUBSCRIBED, broker, EPOCH, at).to_pylist():
        known.add(row)
    found = known.subscribed()
    for row in next_rows(table, SUBSCRIBED, broker, at).to_pylist():
        key = GroupTopic(row["group"], row["topic"])
        if row["topic"] is not None and key not in found and row["expression"] is not None:
            since = f"{row['as_of']:%Y-%m-%dT%H:%M:%SZ}"
            choice = Wanted.of(row["expression_type"], row["expression"])
            found[key] = SubscribedAt(
                choice, note=f"its subscription is known from {since} on, and taken for this time"
            )
    return Subscriptions(found, known.is_asked)


def wanted_over_time(
    table: DeltaTable, broker: str, times: Sequence[datetime.datetime]
) -> list[Mapping[GroupTopic, Wanted]]:
    """Return what a store's groups wanted at each of some times, as `subscriptions_at` tells for one.

    Args:
        table: `subscriptions`.
        broker: The store's name.
        times: The times, in order.

    Returns:
        For each time what the groups wanted; the same object where nothing changed in between.

    Raises:
        QueryError: The table cannot be read.
    """
    if not times:
        return []
    rows = rows_between(table, SUBSCRIBED, broker, EPOCH, times[-1]).to_pylist()
    later: dict[GroupTopic, Wanted] = {}
    for row in [*rows, *next_rows(table, SUBSCRIBED, broker, times[-1]).to_pylist()]:
        if row["topic"] is not None and row["expression"] is not None:
            choice = Wanted.of(row["expression_type"], row["expression"])
            later.setdefault(GroupTopic(row["group"], row["topic"]), choice)
    known = _Known()
    found: list[Mapping[GroupTopic, Wanted]] = []
    place = 0
    for time in times:
        before = dict(known.wanted) if found else None
        while place < len(rows) and rows[place]["as_of"] <= time:
            known.add(rows[place])
            place += 1
        found.append(found[-1] if known.wanted == before else {**later, **known.wanted})
    return found


class _Known:
    """What rows of `subscriptions`, in order of time, tell.

    Attributes:
        wanted: What each group wanted last.
        is_asked: Whether a live broker was asked at all.
    """

    def __init__(self) -> None:
        self.wanted: dict[GroupTopic, Wanted] = {}
        self.is_asked = False
        self._newest: dict[GroupTopic, Row] = {}
        self._changes: Counter[GroupTopic] = Counter()

    def add(self, row: Row) -> None:
        """Take the next row."""
        if row["topic"] is None:
            self.is_asked = self.is_asked or row["source"] == Source.BROKER
            return
        key = GroupTopic(row["group"], row["topic"])
        if row["source"] == Source.BROKER:
            self._newest[key] = row
        if row["expression"] is not None:
            now = Wanted.of(row["expression_type"], row["expression"])
            self._changes[key] += key in self.wanted and self.wanted[key] != now
            self.wanted[key] = now

    def subscribed(self) -> dict[GroupTopic, SubscribedAt]:
        """Return the subscriptions that are known by now."""
        return {
            key: _subscribed(choice, self._newest.get(key), self._changes[key], is_asked=self.is_asked)
            for key, choice in self.wanted.items()
        }


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
