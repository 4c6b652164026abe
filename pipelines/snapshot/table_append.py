"""Adds the changes of a snapshot to the tables `consumer_offsets` and `subscriptions`.

A row is added for each offset and subscription that differs from the last one, and one row for each kind that was read.
This row is also added if no offset has moved but the log has grown or lost segments, because messages wait then for
groups that have stopped. If nothing has changed at all, it is added once in ten minutes, as a heartbeat. The delivery
time of timers moves every second, so it is stored only together with that row. A snapshot that is not newer than the
last one adds nothing, so running twice gives the same tables. If a file was not written again because nothing had
moved, but the log has grown, the time of the snapshot is that of its reading.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.snapshot_tables import (
    OFFSETS,
    SUBSCRIBED,
    append_snapshots,
    newest_rows,
    open_snapshots,
    snapshot_version,
)
from commitlake.pipelines.snapshot.progress import OffsetKind, OffsetOwner, StoreSnapshot, Subscription
from commitlake.schemas.errors import ConcurrentRunError
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.tables.lake_tables import LAKE_TABLES

HEARTBEAT = datetime.timedelta(minutes=10)
"""Interval of the rows that record that nothing has moved."""
_MAX_TRIES = 10
MAX_STORES = 50
"""Largest number of stores in one commit."""
_MAX_POSITIONS = 100_000  # limit for a commit of several stores, whose known rows are in memory
_SUBSCRIPTION_FIELDS = (
    "expression_type", "expression", "subscribed_at", "consume_type", "message_model", "consume_from_where", "members",
)  # fmt: skip
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AppendedCounts:
    """Number of offsets in a store's snapshot, and of the rows that were added for it.

    Attributes:
        broker: name of the store.
        read: number of offsets in the snapshot.
        moved: number of rows for offsets that moved, appeared or disappeared.
        subscribed: number of rows for subscriptions that changed.
        groups: number of groups with offsets in the snapshot.
        as_of: time of the groups' offsets, else of others; None if none were read.
        is_old: True if the lake has this or a newer snapshot already.
    """

    broker: str
    read: int
    moved: int
    subscribed: int
    groups: int
    as_of: datetime.datetime | None
    is_old: bool


def append_snapshot(lake: Lake, snapshot: StoreSnapshot) -> AppendedCounts:
    """Add to the lake the offsets and subscriptions that one store's snapshot has changed."""
    return append_store_snapshots(lake, [snapshot])[0]


def group_snapshots(snapshots: Sequence[StoreSnapshot]) -> Iterator[list[StoreSnapshot]]:
    """Yield snapshots in order, in groups that fit into one commit."""
    group: list[StoreSnapshot] = []
    positions = 0
    for each in snapshots:
        positions += len(each.offsets)
        if group and (len(group) == MAX_STORES or positions > _MAX_POSITIONS):
            yield group
            group, positions = [], len(each.offsets)
        group.append(each)
    if group:
        yield group


def append_store_snapshots(lake: Lake, snapshots: Sequence[StoreSnapshot]) -> list[AppendedCounts]:
    """Add to both tables what snapshots of different stores have changed, with one commit for each table.

    Args:
        lake: the lake; the lake has a table `messages`.
        snapshots: snapshots of different stores, a group of `group_snapshots`.

    Raises:
        ConcurrentRunError: Other snapshots of these stores were committed first ten times.
    """
    moved = _append_rows(lake, OFFSETS, snapshots, _offset_rows)
    subscribed = _append_rows(lake, SUBSCRIBED, snapshots, _subscription_rows)
    return [_added_counts(each, moved[each.broker], subscribed[each.broker]) for each in snapshots]


def _added_counts(
    snapshot: StoreSnapshot, offset_row_count: int | None, subscription_row_count: int | None
) -> AppendedCounts:
    """Return the number of offsets that a snapshot has, and of rows that were added for it.

    Args:
        offset_row_count: number of rows for changed offsets; None if the lake has a newer snapshot.
        subscription_row_count: number of rows for changed subscriptions, likewise.
    """
    groups = {position.group for position in snapshot.offsets if position.group}
    return AppendedCounts(
        broker=snapshot.broker,
        read=len(snapshot.offsets),
        moved=offset_row_count or 0,
        subscribed=subscription_row_count or 0,
        groups=len(groups),
        as_of=snapshot.taken.get(OffsetKind.GROUP) or max(snapshot.taken.values(), default=None),
        is_old=bool(snapshot.taken) and offset_row_count is None,
    )


def _append_rows(
    lake: Lake,
    table_name: str,
    snapshots: Sequence[StoreSnapshot],
    make_rows: Callable[[StoreSnapshot, list[Row]], list[Row] | None],
) -> dict[str, int | None]:
    """Append rows for what snapshots have changed, and return the number of rows by store."""
    brokers = [progress.broker for progress in snapshots]
    # Read again at each attempt: which offsets have moved depends on the newest committed snapshot.
    for _ in range(_MAX_TRIES):
        table = open_snapshots(lake, table_name)
        known = _read_recorded_rows(table, table_name, brokers)
        rows = {progress.broker: make_rows(progress, known[progress.broker]) for progress in snapshots}
        new = {broker: of_store for broker, of_store in rows.items() if of_store}
        together = [row for of_store in new.values() for row in of_store]
        added = pa.Table.from_pylist(together, arrow_schema(LAKE_TABLES[table_name].columns))
        if not new or append_snapshots(
            lake, table_name, added, {broker: snapshot_version(table, broker) for broker in new}
        ):
            return {broker: None if of_store is None else _count_changes(of_store) for broker, of_store in rows.items()}
    shown = brokers[0] if len(brokers) == 1 else f"{brokers[0]} and {format_count(len(brokers) - 1, 'other store')}"
    raise ConcurrentRunError(
        f"another snapshot of {shown} was committed first at each of {_MAX_TRIES} attempts; this snapshot was not "
        "stored. Run the command again"
    )


def _count_changes(rows: list[Row]) -> int:
    return sum(row["topic"] is not None for row in rows)


def _read_recorded_rows(table: DeltaTable | None, name: str, brokers: Sequence[str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {broker: [] for broker in brokers}
    if table is not None:
        for row in rows_to_dicts(newest_rows(table, name, brokers)):
            found[row["broker"]].append(row)
    return found


def _offset_rows(snapshot: StoreSnapshot, recorded_rows: list[Row]) -> list[Row] | None:
    """Return rows for the offsets changed since the last snapshot; None if the table is up to date."""
    last = {row["kind"]: row for row in recorded_rows if row["topic"] is None}
    before = {
        OffsetOwner(row["kind"], row["group"] or "", row["topic"], row["queue_id"]): row["offset"]
        for row in recorded_rows
        if row["topic"] is not None and row["offset"] is not None
    }
    new_timers = any(
        before.get(position) != offset
        for position, offset in snapshot.offsets.items()
        if position.kind == OffsetKind.TIMER
    )
    rows: list[Row] = []
    is_newer = not snapshot.taken
    for kind, written in snapshot.taken.items():
        mark = last.get(kind)
        now = {position: offset for position, offset in snapshot.offsets.items() if position.kind == kind}
        # A null, so that a reader does not carry a deleted queue's last offset on.
        gone = {position: None for position in before if position.kind == kind and position not in now}
        moved = {position: offset for position, offset in now.items() if before.get(position) != offset} | gone
        has_other_log = mark is None or _has_log_changed(snapshot, mark)
        as_of = _time_to_record(snapshot, written, mark, is_unchanged=has_other_log and not moved)
        if as_of is None:
            continue
        is_newer = True
        is_due = has_other_log or mark is None or as_of - mark["as_of"] >= HEARTBEAT
        if kind == OffsetKind.TIMER_TIME and not is_due and not new_timers:
            moved = {}  # it moves every second, with or without timers
        if moved or is_due:
            whole = {"topic": None, "queue_id": None, "log_end": snapshot.log_end, "log_start": snapshot.log_start}
            rows.append(_offset_row(snapshot, as_of, OffsetOwner(kind, "", "", 0), None) | whole)
        # In a fixed order, so that equal snapshots add equal rows.
        rows += [_offset_row(snapshot, as_of, position, offset) for position, offset in sorted(moved.items())]
    return rows if is_newer else None


def _time_to_record(
    snapshot: StoreSnapshot, written_at: datetime.datetime, last_snapshot_row: Row | None, *, is_unchanged: bool
) -> datetime.datetime | None:
    """Return the time under which one kind of offsets is recorded; None if the table has it or a later one.

    Args:
        written_at: time at which they were written.
        last_snapshot_row: the row of the last snapshot; None if there is none.
        is_unchanged: True if they have not moved since that, although the log has grown.
    """
    if last_snapshot_row is None or written_at > last_snapshot_row["as_of"]:
        return written_at
    is_read_later = snapshot.read_at is not None and snapshot.read_at > last_snapshot_row["as_of"]
    return snapshot.read_at if is_unchanged and is_read_later else None


def _has_log_changed(snapshot: StoreSnapshot, last_snapshot_row: Row) -> bool:
    """Return whether the log has grown or lost segments since the last snapshot."""
    ends = (snapshot.log_end, last_snapshot_row["log_end"]), (snapshot.log_start, last_snapshot_row["log_start"])
    return any(now is not None and (before is None or now > before) for now, before in ends)


def _offset_row(snapshot: StoreSnapshot, as_of: datetime.datetime, owner: OffsetOwner, offset: int | None) -> Row:
    return {
        "broker": snapshot.broker,
        "as_of": as_of,
        "kind": str(owner.kind),
        "group": owner.group or None,
        "topic": owner.topic,
        "queue_id": owner.queue_id,
        "offset": offset,
        "source": str(snapshot.source),
    }


def _subscription_rows(snapshot: StoreSnapshot, recorded_rows: list[Row]) -> list[Row] | None:
    """Return rows for the subscriptions changed since the last snapshot; None if the table is up to date."""
    as_of = snapshot.subscribed_as_of
    if as_of is None:
        return []
    # Files and brokers know different things of a subscription; compared with each other, they would alternate.
    recorded_rows = [row for row in recorded_rows if row["source"] == snapshot.source]
    last = max((row["as_of"] for row in recorded_rows if row["topic"] is None), default=None)
    if last is not None and as_of <= last:
        return None
    before = {
        (row["group"], row["topic"]): _select_changing_columns(row) for row in recorded_rows if row["topic"] is not None
    }
    now: dict[tuple[str, str], Row] = {
        (key.group, key.topic): _select_changing_columns(_subscription_to_row(subscription))
        for key, subscription in snapshot.subscriptions.items()
    }
    gone = _select_changing_columns(_subscription_to_row(Subscription()))
    now |= {key: gone for key in before if key not in now and before[key] != gone}
    changed = {key: values for key, values in now.items() if before.get(key) != values}
    rows: list[Row] = []
    if changed or last is None or as_of - last >= HEARTBEAT:
        rows.append(_subscription_row(snapshot, as_of, None, None, gone))
    rows += [_subscription_row(snapshot, as_of, *key, values) for key, values in sorted(changed.items())]
    return rows


def _subscription_to_row(subscription: Subscription) -> Row:
    row = asdict(subscription)
    members = subscription.members
    return row | {"members": None if members is None else [member._asdict() for member in sorted(members)]}


def _select_changing_columns(row: Row) -> Row:
    """Return those columns of a `subscriptions` row that are compared to detect a change."""
    return {name: row[name] for name in _SUBSCRIPTION_FIELDS}


def _subscription_row(
    snapshot: StoreSnapshot, as_of: datetime.datetime, group: str | None, topic: str | None, values: Row
) -> Row:
    return {
        "broker": snapshot.broker, "as_of": as_of, "source": str(snapshot.source), "group": group, "topic": topic,
    } | values  # fmt: skip
