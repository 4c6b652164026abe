"""Snapshots of a store's offsets in memory, for the offsets at many times from one reading of the table.

What is held are the offsets before the first of the times, and the changes up to the snapshot after the last one.
"""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.lake.snapshot_tables import offsets_at_two_times, read_offset_changes, read_snapshot_headers
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.lag.offsets import WATCH
from commitlake.pipelines.snapshot.progress import OffsetKind
from commitlake.schemas.times import epoch_us

_PLACE = ("group", "topic", "queue_id")
_NEVER = np.iinfo(np.int64).min


class LoadedSnapshots:
    """Snapshots of a store's group offsets for a range of times, kept in memory.

    Args:
        table: The table `consumer_offsets`.
        broker: The store's name.
        first: The first of the times.
        last: The last of the times.
    """

    def __init__(self, table: DeltaTable, broker: str, first: datetime.datetime, last: datetime.datetime) -> None:
        self.broker, kind = broker, OffsetKind.GROUP
        marks = read_snapshot_headers(table, broker)
        marks = marks.filter(pc.equal(marks["kind"], str(kind)))
        times = marks["as_of"].cast(pa.int64()).to_numpy()
        begin, end = _needed_snapshots(times, epoch_us(first), epoch_us(last))
        self._marks = marks.slice(begin, end - begin)
        if begin == end:
            return
        start, following = (self._marks["as_of"][number].as_py() for number in (0, -1))
        known = offsets_at_two_times(table, broker, str(kind), start, start)
        before = known.select([*_PLACE, "offset"]).append_column("as_of", pa.nulls(len(known), self._time_type))
        later = read_offset_changes(table, broker, str(kind), start, following)
        rows = pa.concat_tables([before, later.select(before.column_names)])
        self._changes = later
        self._places, codes = _distinct_owners(rows)
        changed = rows["as_of"].cast(pa.int64()).fill_null(_NEVER).to_numpy()
        order = np.lexsort((changed, codes))
        self._times, self._offsets = changed[order], rows["offset"].combine_chunks().take(pa.array(order))
        self._starts = np.flatnonzero(np.diff(codes[order], prepend=-1))

    @property
    def _time_type(self) -> pa.DataType:
        return self._marks.schema.field("as_of").type

    def headers(self, kind: OffsetKind) -> pa.Table:
        """Return the header row of each snapshot that is needed for times in the range, oldest first."""
        assert kind is OffsetKind.GROUP
        return self._marks

    def offsets_at_times(self, kind: OffsetKind, time: datetime.datetime, earlier_time: datetime.datetime) -> pa.Table:
        """Return the offset of each group and queue at `time`, together with that at `earlier_time`."""
        assert kind is OffsetKind.GROUP
        rows = self._last_rows(time)
        found = self._places.filter(pa.array(rows >= 0))
        is_known = rows >= 0
        earlier_rows = self._last_rows(earlier_time)[is_known]
        return found.append_column("offset", self._offsets_of_rows(rows[is_known])).append_column(
            "earlier", self._offsets_of_rows(earlier_rows)
        )

    def changes_between(self, kind: OffsetKind, after: datetime.datetime, until: datetime.datetime) -> pa.Table:
        """Return the offsets that snapshots in a time range have changed, oldest first."""
        assert kind is OffsetKind.GROUP
        times = self._changes["as_of"].cast(pa.int64()).to_numpy()
        first, end = np.searchsorted(times, [epoch_us(after), epoch_us(until)], side="right").tolist()
        return self._changes.slice(first, max(0, end - first))

    def _last_rows(self, time: datetime.datetime) -> Array:
        """Return, for each group and queue, the index of its last change at or before a time; -1 for none."""
        counts = (
            np.add.reduceat((self._times <= epoch_us(time)).astype(np.int64), self._starts)
            if len(self._starts)
            else np.zeros(0, np.int64)
        )
        return np.where(counts > 0, self._starts + counts - 1, -1)

    def _offsets_of_rows(self, rows: Array) -> pa.Array:
        return self._offsets.take(pa.array(rows, mask=rows < 0))


def _needed_snapshots(snapshot_times: Array, first_time: int, last_time: int) -> tuple[int, int]:
    """Return the range of the snapshots that are needed to know the offsets between two times.

    It begins with the snapshot with which the first of the times is compared, see `offsets.Moment.compared_at`, and
    ends after the one that follows the last of them. All times are microseconds since 1970.

    Args:
        snapshot_times: Times of all snapshots, in ascending order.
        first_time: The first of the times.
        last_time: The last of the times.
    """
    before, until = np.searchsorted(snapshot_times, [first_time, last_time], side="right").tolist()
    if not until:
        return 0, 0
    watch_us = WATCH // datetime.timedelta(microseconds=1)
    compared = np.searchsorted(snapshot_times, snapshot_times[before - 1] - watch_us, side="right") if before else 0
    return max(0, int(compared) - 1), min(until + 1, len(snapshot_times))


def _distinct_owners(rows: pa.Table) -> tuple[pa.Table, Array]:
    """Return the distinct combinations of group, topic and queue, and the index of each row's combination."""
    codes = np.zeros(len(rows), np.int64)
    for name in _PLACE:
        values = pc.rank(rows[name], sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
        codes = codes * (int(values.max(initial=0)) + 1) + values
        codes = np.unique(codes, return_inverse=True)[1].reshape(-1)
    first = np.unique(codes, return_index=True)[1]
    return rows.select(_PLACE).take(pa.array(first)), codes
