"""Minutes of `lag_minutes` that must be computed again, because rows for them came late.

The figures of a minute depend on the snapshots before and after it, on the messages that were stored before it, and on
the subscriptions and the configuration of that time. So minutes are computed again

- from the snapshot before a new one,
- from the time of new messages, subscriptions and changes of the configuration,
- from the first snapshot that referred to a part of the log that was not archived, if more of the log is archived,
- from the beginning, if the archived topics of a store have changed; if the first configuration of a store was
  recorded, which holds for all times before; or if new rows cannot be told from old ones, as after a repair,
- where a group is first known to subscribe to a topic, from the first minute of its rows of the topic: its filter
  holds for all times before.

As a rule, all of that is later than the last minute of the table.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.added_files import readable_added_files
from commitlake.connectors.lake.archive_commits import StoreProgress
from commitlake.connectors.lake.delta_log.versions import AddedFile, VersionsError
from commitlake.connectors.lake.lake import PinnedLake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.snapshot_tables import OFFSETS, SUBSCRIBED, read_snapshot_headers
from commitlake.connectors.lake.sql import text_literal, timestamp_literal
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.lag_minutes.minute_computation import MINUTE_US, first_minute_at, last_minute_at
from commitlake.pipelines.lag_minutes.progress import FOLLOWED, NOTHING, MinutesProgress, checksum_topics
from commitlake.pipelines.snapshot.progress import OffsetKind
from commitlake.schemas.times import epoch_us

_UNKNOWN = -1
_TIMES = {"messages": "store_timestamp", OFFSETS: "as_of", SUBSCRIBED: "as_of", "store_config": "recorded_at"}
"""By followed table, the column with the time from which a row has an effect."""


class _SnapshotTimes:
    """Times of a store's complete snapshots of group offsets, and the log's end at each, in the order of time.

    Args:
        table: `consumer_offsets`.
        broker: the store's name.
    """

    def __init__(self, table: DeltaTable, broker: str) -> None:
        rows = read_snapshot_headers(table, broker)
        rows = rows.filter(pc.equal(rows["kind"], str(OffsetKind.GROUP)))
        self._times: Array = rows["as_of"].cast(pa.int64()).to_numpy()
        self._log_ends: Array = rows["log_end"].fill_null(_UNKNOWN).to_numpy()

    @property
    def first_minute(self) -> int:
        """The first minute at which there is a snapshot."""
        return self._minute_of_snapshot(0)

    def last_archived_minute(self, archive_progress: StoreProgress) -> int | None:
        """Return the last minute up to which the store's messages are archived; None if none is known to be."""
        known = np.flatnonzero(self._log_ends <= archive_progress.end)  # also those whose end is not known
        if not len(known):
            return None
        last = int(self._times[known[-1]]) // MINUTE_US
        return last if last >= self.first_minute else None

    def minute_after_previous(self, snapshot_number: int) -> int:
        """Return the first minute after the snapshot before the given one; for the first snapshot, its own minute."""
        return int(self._times[snapshot_number - 1]) // MINUTE_US + 1 if snapshot_number else self.first_minute

    def first_affected_minute(self, snapshot_time: datetime.datetime) -> int:
        """Return the first minute whose lag changes if a snapshot of a given time is added."""
        number = int(np.searchsorted(self._times, epoch_us(snapshot_time)))
        return self.minute_after_previous(number) if number else first_minute_at(snapshot_time)

    def first_newly_archived_minute(self, old_archived_end: int, new_archived_end: int) -> Iterator[int]:
        """Yield the first minute whose messages were not all archived before and are now, if there is one.

        Args:
            old_archived_end: physical offset up to which the store was archived.
            new_archived_end: physical offset up to which it is archived now.
        """
        found = np.flatnonzero((self._log_ends > old_archived_end) & (self._log_ends <= new_archived_end))
        if len(found):
            yield self.minute_after_previous(found[0].item())

    def _minute_of_snapshot(self, snapshot_number: int) -> int:
        return -(-int(self._times[snapshot_number]) // MINUTE_US)


@dataclass
class _NewRows:
    """Earliest time, by store, of the rows that were added to a table since `lag_minutes` was computed from it.

    Attributes:
        first: by broker, the earliest time of them.
        is_all: True if they cannot be told from the others.
        subscribed: for `subscriptions`, the earliest time by broker, group and topic.
    """

    first: dict[str, datetime.datetime] = field(default_factory=dict)
    is_all: bool = False
    subscribed: dict[tuple[str, str, str], datetime.datetime] = field(default_factory=dict)


class MinutesToCompute(NamedTuple):
    """Minutes of a store that must be computed, as numbers of minutes since 1970.

    Attributes:
        first: the first of them; after `last` if there is none.
        last: the last of them.
    """

    first: int
    last: int


def newest_versions(lake: PinnedLake) -> dict[str, int]:
    """Return the version of each table from which `lag_minutes` is computed; -1 for a table that does not exist yet."""
    found = {table: lake.find(table) for table in FOLLOWED}
    return {table: NOTHING if opened is None else opened.version() for table, opened in found.items()}


def find_minutes_to_compute(
    lake: PinnedLake, progress: MinutesProgress, archive_progress: Mapping[str, StoreProgress]
) -> dict[str, MinutesToCompute]:
    """Return, by store, the minutes to compute; stores without a snapshot up to which messages are archived have none.

    Args:
        lake: the lake; it has `consumer_offsets`.
        progress: what the table has.
        archive_progress: how far each store is archived.
    """
    newest = newest_versions(lake)
    new = {table: _read_new_rows(lake, table, progress.versions[table], newest[table]) for table in FOLLOWED}
    found = {}
    for broker, store in progress.stores.items():
        of_store = archive_progress.get(broker, StoreProgress(0))
        marks = _SnapshotTimes(lake.table(OFFSETS), broker)
        last = marks.last_archived_minute(of_store)
        if last is None:
            continue
        # The first snapshot is where figures begin; before it, no offset of a group is known.
        begin = marks.first_minute
        if store.until == NOTHING or checksum_topics(of_store) != store.topics or _has_first_config(lake, broker, new):
            starts = [begin]
        else:
            starts = [store.until + 1, *_first_outdated_minutes(lake, broker, marks, new)]
            starts += marks.first_newly_archived_minute(store.archived, of_store.end)
        # Not fewer minutes than the table has, because its rows from the first one on are removed.
        found[broker] = MinutesToCompute(max(begin, min(starts)), max(last, store.until))
    return found


def _first_outdated_minutes(
    lake: PinnedLake, broker: str, snapshots: _SnapshotTimes, new_rows: Mapping[str, _NewRows]
) -> Iterator[int]:
    for table, rows in new_rows.items():
        first = rows.first.get(broker)
        if rows.is_all:
            yield snapshots.first_minute
        elif first is not None:
            yield snapshots.first_affected_minute(first) if table == OFFSETS else first_minute_at(first)
    yield from _first_subscribed_minutes(lake, broker, new_rows[SUBSCRIBED])


def _read_new_rows(lake: PinnedLake, table: str, read_version: int, newest_version: int) -> _NewRows:
    """Return the earliest times of the rows that were added to a table between two versions.

    Args:
        table: name of the table.
        read_version: version that was read; -1 for none.
        newest_version: its newest version.
    """
    if read_version == newest_version:
        return _NewRows()
    if newest_version < read_version:  # the table was restored to an earlier version, or made anew
        return _NewRows(is_all=True)
    try:
        new = readable_added_files(lake, read_version, table)
    except VersionsError:
        # Files of versions that were not read are gone, so new rows cannot be told from old ones.
        return _NewRows(is_all=True)
    if new.from_scratch:
        return _NewRows(is_all=True)
    found = _NewRows()
    for file in new.files:
        _add_new_rows(lake, table, file, found)
    return found


def _add_new_rows(lake: PinnedLake, table: str, file: AddedFile, new_rows: _NewRows) -> None:
    time = _TIMES[table]
    with lake.open_folder(table).open_input_file(file.name) as source:
        columns = ["broker", time, *(["group", "topic", "expression"] if table == SUBSCRIBED else [])]
        for batch in pq.ParquetFile(source).iter_batches(columns=columns):
            rows = pa.Table.from_batches([batch])
            # Rows without a time, as in a forged file, are in no minute.
            rows = rows.filter(pc.and_(pc.is_valid(rows["broker"]), pc.is_valid(rows[time])))
            _add_earliest_times(rows, ["broker"], time, new_rows.first)
            if table == SUBSCRIBED:
                known = rows.filter(pc.and_(pc.is_valid(rows["topic"]), pc.is_valid(rows["expression"])))
                _add_earliest_times(known, ["broker", "group", "topic"], time, new_rows.subscribed)


def _add_earliest_times(
    rows: pa.Table, keys: Sequence[str], time_column: str, earliest_times: dict[Any, datetime.datetime]
) -> None:
    """Update `earliest_times` by the earliest time of each key in `rows`, where a key of several columns is a tuple."""
    for row in rows.group_by(list(keys)).aggregate([(time_column, "min")]).to_pylist():
        key = row[keys[0]] if len(keys) == 1 else tuple(row[name] for name in keys)
        earliest_times[key] = min(row[f"{time_column}_min"], earliest_times.get(key, row[f"{time_column}_min"]))


def _first_subscribed_minutes(lake: PinnedLake, broker: str, new_rows: _NewRows) -> Iterator[int]:
    """Yield, for each topic whose subscription was unknown until now, the first minute to compute again."""
    mine = {key[1:]: first for key, first in new_rows.subscribed.items() if key[0] == broker}
    table = lake.find("lag_minutes")
    if not mine or table is None:
        return
    groups: dict[str, list[str]] = defaultdict(list)
    for group, topic in mine:
        groups[group].append(topic)
    for group, topics in groups.items():
        where = (
            f'broker = {text_literal(broker)} AND "group" = {text_literal(group)} '
            f"AND topic IN ({', '.join(map(text_literal, topics))})"
        )
        known = f"{where} AND expression IS NOT NULL"
        sql = f"SELECT topic, min(as_of) AS first FROM {SUBSCRIBED} WHERE {known} GROUP BY topic"
        for row in rows_to_dicts(run_sql(lake.table(SUBSCRIBED), SUBSCRIBED, sql).read_all()):
            if row["first"] < mine[group, row["topic"]]:
                # An earlier row had the topic, so its filter was known before.
                continue
            of_topic = (
                f"{where} AND topic = {text_literal(row['topic'])} AND minute < {timestamp_literal(row['first'])}"
            )
            earliest = f"SELECT min(minute) AS minute FROM lag_minutes WHERE {of_topic}"
            (minute,) = run_sql(table, "lag_minutes", earliest).read_all().column("minute").to_pylist()
            if minute is not None:
                yield last_minute_at(minute)


def _has_first_config(lake: PinnedLake, broker: str, new_rows: Mapping[str, _NewRows]) -> bool:
    """Return whether the new rows of `store_config` have the first configuration that a store ever recorded."""
    first = new_rows["store_config"].first.get(broker)
    if first is None:
        return False
    sql = f"SELECT min(recorded_at) AS first FROM store_config WHERE broker = {text_literal(broker)}"
    (known,) = run_sql(lake.table("store_config"), "store_config", sql).read_all().column("first").to_pylist()
    return bool(known >= first)
