"""Offsets of groups at a time, from the snapshots of `consumer_offsets`.

At the time of a snapshot the offsets are exact. Between two snapshots, a group's offset was between the two that were
stored. If they are equal, the group did not move. If the second is lower, the group was set back at an unknown time,
and its offset may have been anything. After the last snapshot, a group may have consumed everything.

A group that was set back and has passed its old offset by the next snapshot cannot be told from one that only moved on:
its bounds are then those of a group that was never set back.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.lake.snapshot_tables import OFFSETS, newest_rows, next_rows, rows_between
from commitlake.pipelines.snapshot.progress import OffsetKind, Position

WINDOW = datetime.timedelta(minutes=30)
"""Age of the oldest snapshots that are compared to see whether a group moves."""
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OffsetAt:
    """A group's offset at a time.

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
class Moment:
    """Offsets of one store and kind at a time.

    Attributes:
        broker: The store's name.
        at: The time.
        taken: Time of the last snapshot at or before `at`.
        taken_next: Time of the first snapshot after `at`; None if there is none.
        log_end: End of the log at the last snapshot, if known.
        log_start: Start of the log at the last snapshot.
        log_end_next: End of the log at the next snapshot.
        offsets: Offsets by position.
        compared_at: Time of the snapshot that shows whether a group moves: the last one that is at least `WINDOW` older
            than `taken`, or the first of all; None if there is only one snapshot.
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
    offsets: Mapping[Position, OffsetAt] = field(default_factory=dict)
    compared_at: datetime.datetime | None = None
    compared: Mapping[Position, int] = field(default_factory=dict)
    moves: Mapping[Position, Sequence[int]] = field(default_factory=dict)


Moments = dict[tuple[str, OffsetKind], Moment]


def offsets_at(table: DeltaTable, broker: str, at: datetime.datetime | None) -> dict[OffsetKind, Moment]:
    """Return the offsets of a store at a time, from its snapshots.

    Args:
        table: `consumer_offsets`.
        broker: The store's name.
        at: The time; None for the store's last snapshot.

    Returns:
        A moment for each kind that has a snapshot at or before the time.

    Raises:
        QueryError: The table cannot be read.
    """
    before = _by_kind(newest_rows(table, OFFSETS, broker, at))
    after = {} if at is None else _by_kind(next_rows(table, OFFSETS, broker, at))
    return {
        kind: _moment(table, broker, kind, rows, after.get(kind, []), at)
        for kind, rows in before.items()
        if any(row["topic"] is None for row in rows)
    }


def _by_kind(rows: pa.Table) -> dict[OffsetKind, list[Row]]:
    found: dict[OffsetKind, list[Row]] = defaultdict(list)
    for row in rows.to_pylist():
        found[OffsetKind(row["kind"])].append(row)
    return found


def _position(row: Row) -> Position:
    return Position(OffsetKind(row["kind"]), row["group"] or "", row["topic"], row["queue_id"])


def _known(rows: Sequence[Row]) -> dict[Position, int | None]:
    return {_position(row): row["offset"] for row in rows if row["topic"] is not None}


def _moment(
    table: DeltaTable,
    broker: str,
    kind: OffsetKind,
    before: Sequence[Row],
    after: Sequence[Row],
    at: datetime.datetime | None,
) -> Moment:
    mark = next(row for row in before if row["topic"] is None)
    taken: datetime.datetime = mark["as_of"]
    mark_next = next((row for row in after if row["topic"] is None), None)
    taken_next = None if mark_next is None else mark_next["as_of"]
    moment = at or taken
    known = _known(before)
    # A row after the next snapshot means that the offset was unchanged at that snapshot.
    following = known | _known([row for row in after if row["as_of"] == taken_next])
    if moment == taken:
        offsets = {position: OffsetAt(offset, offset) for position, offset in known.items() if offset is not None}
    elif taken_next is None:
        offsets = {position: OffsetAt(offset, None) for position, offset in known.items() if offset is not None}
    else:
        bounds = {position: _between(known.get(position), offset) for position, offset in following.items()}
        offsets = {position: found for position, found in bounds.items() if found is not None}
    window = rows_between(table, OFFSETS, broker, taken - WINDOW, taken)
    window = window.filter(pc.equal(window["kind"], str(kind)))
    marks = window["as_of"].filter(pc.is_null(window["topic"]))
    older = _by_kind(newest_rows(table, OFFSETS, broker, taken - WINDOW)).get(kind, [])
    first = taken if not len(marks) else pc.min(marks).as_py()
    compared_at = max((row["as_of"] for row in older if row["topic"] is None), default=first)
    at_first = window.filter(pc.less_equal(window["as_of"], pa.scalar(compared_at, window["as_of"].type)))
    compared = _known([*older, *at_first.to_pylist()])
    return Moment(
        broker=broker,
        at=moment,
        taken=taken,
        taken_next=taken_next,
        log_end=mark["log_end"],
        log_start=mark["log_start"],
        log_end_next=None if mark_next is None else mark_next["log_end"],
        offsets=offsets,
        compared_at=compared_at if compared_at < taken else None,
        compared={position: offset for position, offset in compared.items() if offset is not None},
        moves=_moves(window, compared_at),
    )


def _moves(window: pa.Table, compared_at: datetime.datetime) -> dict[Position, list[int]]:
    """Return the new offsets that show whether groups were set back: all if one is lower, else each position's first.

    There can be millions of rows. Only the rows that are returned become Python objects.

    Args:
        window: Rows of `consumer_offsets` of one kind, the oldest first.
        compared_at: Rows up to this time are left out.
    """
    is_later = pc.greater(window["as_of"], pa.scalar(compared_at, window["as_of"].type))
    is_move = pc.and_(is_later, pc.and_(pc.is_valid(window["topic"]), pc.is_valid(window["offset"])))
    later = window.filter(is_move).combine_chunks()
    if not len(later):
        return {}
    keys = np.zeros(len(later), np.int64)
    for name in ("group", "topic", "queue_id"):
        values = pc.rank(later[name], sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
        keys = np.unique(keys * (int(values.max()) + 1) + values, return_inverse=True)[1].reshape(-1)
    order = np.argsort(keys, kind="stable")  # by position, and in the order of time within a position
    keys, offsets = keys[order], later["offset"].to_numpy()[order]
    is_first = np.concatenate([[True], keys[1:] != keys[:-1]])
    is_lower = ~is_first & np.concatenate([[False], offsets[1:] < offsets[:-1]])
    was_set_back = np.isin(keys, keys[is_lower])
    found: dict[Position, list[int]] = defaultdict(list)
    for row in later.take(order[is_first | was_set_back]).to_pylist():
        found[_position(row)].append(row["offset"])
    return found


def _between(first: int | None, second: int | None) -> OffsetAt | None:
    """Return the bounds between two snapshots, or None if neither has an offset."""
    if first is None or second is None:  # created or dropped between the two, at an unknown time
        return None if first == second else OffsetAt(0, None)
    return OffsetAt(first, second) if first <= second else OffsetAt(0, None, reached=second)
