"""Offsets of groups at a given time, from the snapshots of `consumer_offsets`.

At the time of a snapshot the offsets are exact. Between two snapshots, a group's offset was between the two that were
stored. If they are equal, the group did not move. If the second is lower, the group was set back at an unknown time,
and its offset may have been anything. After the last snapshot, a group may have consumed everything.

A group that was set back and has passed its old offset by the next snapshot cannot be distinguished from one that only
moved on: its bounds are then those of a group that was never set back.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.lake.snapshot_tables import offsets_at_two_times, read_offset_changes, read_snapshot_headers
from commitlake.pipelines.snapshot.progress import OffsetKind, OffsetOwner
from commitlake.schemas.times import epoch_us

WATCH = datetime.timedelta(minutes=5)
"""Time over which the movement of groups is watched by default; if snapshots are rarer, the one before is compared."""
Row = Mapping[str, Any]


class OffsetAt(NamedTuple):
    """Bounds of a group's offset in a queue at a given time.

    Attributes:
        low: Smallest possible offset.
        high: Largest possible offset; None if the group may have consumed everything.
        reached: An offset that a snapshot has, if `low` is only a bound.
    """

    low: int
    high: int | None
    reached: int | None = None

    @property
    def is_exact(self) -> bool:
        """True if the offset is known exactly."""
        return self.low == self.high


@dataclass(frozen=True, slots=True)
class OffsetState:
    """Offsets in one store at a given time, derived from the snapshots before and after it.

    Attributes:
        broker: The store's name.
        at: The time.
        taken: Time of the last snapshot at or before `at`.
        taken_next: Time of the first snapshot after `at`; None if there is none.
        log_end: End of the log at the last snapshot, if known.
        log_start: Start of the log at the last snapshot.
        log_end_next: End of the log at the next snapshot.
        offsets: Offsets by position.
        compared_at: Time of the snapshot that shows whether a group moves: the last one that is older than `taken` by
            at least the watched time, or the first of all; None if there is only one snapshot.
        compared: Offsets at that snapshot.
        moves: For each position that moved between that snapshot and `taken`, its first new offset; all of its offsets
            if one of them was lower than the one before.
    """

    broker: str
    at: datetime.datetime
    taken: datetime.datetime
    taken_next: datetime.datetime | None = None
    log_end: int | None = None
    log_start: int | None = None
    log_end_next: int | None = None
    offsets: Mapping[OffsetOwner, OffsetAt] = field(default_factory=dict)
    compared_at: datetime.datetime | None = None
    compared: Mapping[OffsetOwner, int] = field(default_factory=dict)
    moves: Mapping[OffsetOwner, Sequence[int]] = field(default_factory=dict)


Moments = dict[tuple[str, OffsetKind], OffsetState]


class Snapshots(Protocol):
    """Interface to the snapshots of a store's offsets, in a table or in memory."""

    broker: str
    """The store's name."""

    def headers(self, kind: OffsetKind) -> pa.Table:
        """Return the header row of each snapshot of a kind, oldest first: `as_of`, `log_end` and `log_start`."""

    def offsets_at_times(self, kind: OffsetKind, time: datetime.datetime, earlier_time: datetime.datetime) -> pa.Table:
        """Return the offset of each group and queue at `time`, together with that at `earlier_time`."""

    def changes_between(self, kind: OffsetKind, after: datetime.datetime, until: datetime.datetime) -> pa.Table:
        """Return the offsets that snapshots in a time range have changed, oldest first."""


class StoredSnapshots:
    """Snapshots of one store's offsets, read from the table `consumer_offsets`.

    Args:
        table: The table.
        broker: The store's name.
    """

    def __init__(self, table: DeltaTable, broker: str) -> None:
        self._table, self.broker = table, broker
        self._marks: pa.Table | None = None

    def headers(self, kind: OffsetKind) -> pa.Table:
        """Return the header row of each snapshot of a kind, oldest first."""
        if self._marks is None:
            self._marks = read_snapshot_headers(self._table, self.broker)
        return self._marks.filter(pc.equal(self._marks["kind"], str(kind)))

    def offsets_at_times(self, kind: OffsetKind, time: datetime.datetime, earlier_time: datetime.datetime) -> pa.Table:
        """Return the offset of each group and queue at `time`, together with that at `earlier_time`."""
        return offsets_at_two_times(self._table, self.broker, str(kind), time, earlier_time)

    def changes_between(self, kind: OffsetKind, after: datetime.datetime, until: datetime.datetime) -> pa.Table:
        """Return the offsets that snapshots in a time range have changed, oldest first."""
        return read_offset_changes(self._table, self.broker, str(kind), after, until)


def offsets_at(
    table: DeltaTable, broker: str, as_of: datetime.datetime | None, watch_duration: datetime.timedelta = WATCH
) -> dict[OffsetKind, OffsetState]:
    """Return a store's offsets at a time, by kind, from the snapshots in a lake.

    Args:
        broker: The store's name.
        as_of: The time; None for the store's last snapshot.
        watch_duration: Time over which the movement of groups is watched.

    Returns:
        A moment for each kind that has a snapshot at or before the time.
    """
    snapshots = StoredSnapshots(table, broker)
    found = {kind: offset_state_at(snapshots, kind, as_of, watch_duration) for kind in OffsetKind}
    return {kind: moment for kind, moment in found.items() if moment is not None}


def offset_state_at(
    snapshots: Snapshots, kind: OffsetKind, as_of: datetime.datetime | None, watch_duration: datetime.timedelta = WATCH
) -> OffsetState | None:
    """Return the offsets of one kind at a time; None if there is no snapshot at or before it.

    Args:
        as_of: The time; None for the last snapshot.
        watch_duration: Time over which the movement of groups is watched.
    """
    around = _SnapshotsAround.find_around_time(snapshots.headers(kind), as_of, watch_duration)
    return None if around is None else _read_offsets_at(snapshots, kind, around, as_of)


@dataclass(frozen=True, slots=True)
class _SnapshotsAround:
    """Last snapshot up to a time, and first snapshot after it, for one kind of offset.

    Attributes:
        last: The last one at or before the time.
        following: The first one after it; None if there is none.
        compared_at: See `OffsetState`; the time of `last` where there is no earlier one.
    """

    last: Row
    following: Row | None
    compared_at: datetime.datetime

    @classmethod
    def find_around_time(
        cls, headers: pa.Table, as_of: datetime.datetime | None, watch_duration: datetime.timedelta
    ) -> _SnapshotsAround | None:
        """Find the snapshots just before and after a time, among header rows sorted by time.

        Return None if none is before it.
        """
        times = headers["as_of"].cast(pa.int64()).to_numpy()  # a year has half a million
        count = len(times) if as_of is None else int(np.searchsorted(times, epoch_us(as_of), side="right"))
        if not count:
            return None
        # Only two rows become Python objects.
        rows = headers.slice(count - 1, 2).to_pylist()
        older = int(np.searchsorted(times, epoch_us(rows[0]["as_of"] - watch_duration), side="right"))
        compared_at: datetime.datetime = headers["as_of"][max(0, older - 1)].as_py()
        return cls(rows[0], rows[1] if len(rows) > 1 else None, compared_at)


def _offset_owners(kind: OffsetKind, rows: pa.Table) -> list[OffsetOwner]:
    groups, topics = rows["group"].fill_null("").to_pylist(), rows["topic"].to_pylist()
    return [OffsetOwner(kind, *place) for place in zip(groups, topics, rows["queue_id"].to_pylist(), strict=True)]


def _read_offsets_at(
    snapshots: Snapshots, kind: OffsetKind, surrounding_snapshots: _SnapshotsAround, as_of: datetime.datetime | None
) -> OffsetState:
    taken: datetime.datetime = surrounding_snapshots.last["as_of"]
    taken_next: datetime.datetime | None = (
        None if surrounding_snapshots.following is None else surrounding_snapshots.following["as_of"]
    )
    moment = as_of or taken
    rows = snapshots.offsets_at_times(kind, moment, surrounding_snapshots.compared_at)
    positions, now = _offset_owners(kind, rows), rows["offset"].to_pylist()
    if moment == taken:
        offsets = {place: OffsetAt(one, one) for place, one in zip(positions, now, strict=True) if one is not None}
    elif taken_next is None:
        offsets = {place: OffsetAt(one, None) for place, one in zip(positions, now, strict=True) if one is not None}
    else:
        known: dict[OffsetOwner, int | None] = dict(zip(positions, now, strict=True))
        moved = snapshots.changes_between(kind, moment, taken_next)
        # Positions that have not changed until then are known from before.
        following = known | dict(zip(_offset_owners(kind, moved), moved["offset"].to_pylist(), strict=True))
        bounds = {place: _offset_bounds_between(known.get(place), offset) for place, offset in following.items()}
        offsets = {place: one for place, one in bounds.items() if one is not None}
    earlier = zip(positions, rows["earlier"].to_pylist(), strict=True)
    return OffsetState(
        broker=snapshots.broker,
        at=moment,
        taken=taken,
        taken_next=taken_next,
        log_end=surrounding_snapshots.last["log_end"],
        log_start=surrounding_snapshots.last["log_start"],
        log_end_next=None if surrounding_snapshots.following is None else surrounding_snapshots.following["log_end"],
        offsets=offsets,
        compared_at=surrounding_snapshots.compared_at if surrounding_snapshots.compared_at < taken else None,
        compared={place: one for place, one in earlier if one is not None},
        moves=_offset_moves(kind, snapshots.changes_between(kind, surrounding_snapshots.compared_at, taken)),
    )


def _offset_moves(kind: OffsetKind, changes: pa.Table) -> dict[OffsetOwner, list[int]]:
    """Return, for each group and queue whose offset moved, the first new offset, or all if the group was set back.

    Only the first is returned, unless the group was set back.

    There can be millions of rows. Only the rows that are returned become Python objects.

    Args:
        changes: Offsets that moved, the oldest first.
    """
    later = changes.filter(pc.is_valid(changes["offset"])).combine_chunks()
    if not len(later):
        return {}
    keys = np.zeros(len(later), np.int64)
    for name in ("group", "topic", "queue_id"):
        values = pc.rank(later[name], sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
        # Numbered again from 0 after each column, so that the products cannot exceed 64 bits.
        keys = np.unique(keys * (int(values.max()) + 1) + values, return_inverse=True)[1].reshape(-1)
    order = np.argsort(keys, kind="stable")  # by position, and in the order of time within a position
    keys, offsets = keys[order], later["offset"].to_numpy()[order]
    is_first = np.concatenate([[True], keys[1:] != keys[:-1]])
    is_lower = ~is_first & np.concatenate([[False], offsets[1:] < offsets[:-1]])
    was_set_back = np.isin(keys, keys[is_lower])
    found: dict[OffsetOwner, list[int]] = defaultdict(list)
    kept = later.take(order[is_first | was_set_back])
    for position, offset in zip(_offset_owners(kind, kept), kept["offset"].to_pylist(), strict=True):
        found[position].append(offset)
    return found


def _offset_bounds_between(first: int | None, second: int | None) -> OffsetAt | None:
    """Return the bounds of an offset between two snapshots, from its values in them; None if neither has it."""
    if first is None or second is None:  # created or dropped between the two, at an unknown time
        return None if first == second else OffsetAt(0, None)
    return OffsetAt(first, second) if first <= second else OffsetAt(0, None, reached=second)
