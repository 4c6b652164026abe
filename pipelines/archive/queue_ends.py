"""The last archived queue offset of each queue, after which a run's queue offsets must continue.

The suites judge the profile of one commit. Before that, a profile gets a row without messages for the end of each of
its queues, so that a jump between two commits is found as one within a commit. The ends are read from the newest files
of `profiles`, and then kept in memory from commit to commit. A queue whose end is not known begins with any offset: a
new one, one that has had no message for long, and all queues of a broker after a run without a profile or with damage.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import to_boolean_array, to_numpy_numbers
from commitlake.connectors.lake.archive_commits import ArchiveCommit, CommittedRange
from commitlake.connectors.lake.delta_log.versions import files_of_table
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.rows.table_rows import TableRows
from commitlake.pipelines.quality.profile_columns import PROFILES_SCHEMA, SCHEMA
from commitlake.schemas.errors import CommitLakeError
from commitlake.schemas.tables.profile import QUEUE_KEYS, RUN_ID, RUNS

_LOG = logging.getLogger(__name__)
_MAX_BYTES = 32 << 20
_MAX_FILES = 256  # each takes several requests to an object store
_JOINED_ROWS = 1 << 16
_MAX_RUNS = 10_000
_READ = pa.schema([
    PROFILES_SCHEMA.field(name) for name in (*QUEUE_KEYS, "last_physical_offset", RUNS.name, RUN_ID.name)
])  # fmt: skip
_ENDS = pa.schema([
    *(PROFILES_SCHEMA.field(name) for name in (*QUEUE_KEYS, "last_physical_offset")),
    ("last_queue_offset", pa.int64()),  # of the last row in the log's order; null if not known
    PROFILES_SCHEMA.field(RUN_ID.name),
])  # fmt: skip


@dataclass
class QueueEnds:
    """Cache of the end offsets of brokers' queues, kept in memory for all archive commits of a process."""

    _ends: pa.Table = field(default_factory=_ENDS.empty_table)
    _new: list[pa.Table] = field(default_factory=list)
    _until: dict[str, int] = field(default_factory=dict)  # end of the log that `_ends` covers, by broker

    def begin_commit(self, lake: Lake, last_commit: ArchiveCommit, brokers: Collection[str]) -> None:
        """Prepare for a commit: read the ends of queues from the lake for brokers whose ends are unknown or outdated.

        Args:
            last_commit: the newest commit in the lake.
            brokers: brokers of the new commit.
        """
        self._new = []
        stores = {name: last_commit.stores[name] for name in brokers if name in last_commit.stores}
        # The store's end differs from the one in memory if another process has archived it since.
        unknown = [name for name, store in stores.items() if self._until.get(name) != store.end]
        if unknown:
            # A run that pulls may leave out queues that cannot be read.
            whole = [name for name in unknown if stores[name].pulled is None]
            read = _read_queue_ends(lake, last_commit, whole) if whole else _ENDS.empty_table()
            self._ends = pa.concat_tables([_drop_brokers(self._ends, unknown), read])
            self._until |= {name: stores[name].end for name in unknown}

    def previous_end_rows(self, profile: pa.Table) -> pa.Table:
        """Return the end before this commit of each queue in `profile`, as profile rows that count no messages.

        Args:
            profile: a table of `PROFILE`.
        """
        queues = profile.select(QUEUE_KEYS).group_by(QUEUE_KEYS).aggregate([])
        known = self._ends.filter(pc.is_valid(self._ends.column("last_queue_offset")))
        ends = known.join(queues, list(QUEUE_KEYS), join_type="left semi").combine_chunks()
        places, offsets = (
            to_numpy_numbers(ends.column(name)) for name in ("last_physical_offset", "last_queue_offset")
        )
        run_type = SCHEMA.field(RUNS.name).type
        runs = pa.StructArray.from_arrays(
            [pa.array(values) for values in (places, places, offsets, offsets)], fields=list(run_type.value_type)
        )
        columns = {name: ends.column(name) for name in QUEUE_KEYS}
        columns[RUNS.name] = pa.ListArray.from_arrays(pa.array(np.arange(len(ends) + 1, dtype=np.int32)), runs)
        zeros = pa.array(np.zeros(len(ends), np.int64))
        # With nulls, the numbers of all windows would become floats.
        columns |= {f.name: zeros for f in SCHEMA if f.name not in columns and pa.types.is_integer(f.type)}
        return pa.table(
            [columns[f.name].cast(f.type) if f.name in columns else pa.nulls(len(ends), f.type) for f in SCHEMA],
            schema=SCHEMA,
        )

    def add_profile(self, profile: pa.Table) -> None:
        """Collect the ends of queues in a profile of the new commit, given as a table of `PROFILE`."""
        self._new.append(_ends_in_profiles(profile.append_column(RUN_ID.name, pa.nulls(profile.num_rows, pa.string()))))

    def finish_commit(self, ranges: Mapping[str, CommittedRange], incomplete_brokers: Collection[str]) -> None:
        """Update the known ends of queues by those of the new commit, after it has succeeded.

        Args:
            ranges: ranges of the brokers' logs that it archived.
            incomplete_brokers: brokers of which it lacks messages, which explains any later jump.
        """
        self._ends = _drop_brokers(_newest_queue_ends([self._ends, *self._new]), incomplete_brokers)
        self._until |= {name: part.end for name, part in ranges.items()}
        self._new = []


def _read_queue_ends(lake: Lake, last_commit: ArchiveCommit, brokers: Collection[str]) -> pa.Table:
    """Read the end offsets of all queues of some brokers from the lake.

    The result is empty if the lake's tables cannot be read.
    """
    try:
        ends, runs = _read_profiles(lake, brokers)
        return (
            _ends_after_damage(lake, _ends_after_unprofiled_runs(lake, ends, runs, last_commit))
            if ends.num_rows
            else ends
        )
    except CommitLakeError as error:
        _LOG.warning("%s; queue offsets are not compared with those of earlier runs", error)
        return _ENDS.empty_table()


def _read_profiles(lake: Lake, brokers: Collection[str]) -> tuple[pa.Table, set[str]]:
    """Return the queue ends in the newest files of `profiles`, and the ids of the runs in these files."""
    uri, table = lake.uri("profiles"), lake.find("profiles")
    files = [] if table is None else sorted(files_of_table(uri, table).files, key=lambda file: -file.modified_ms)
    runs, size = set[str](), 0
    reader = TableRows(uri, lake.s3, _READ)
    ends, more, waiting = _ENDS.empty_table(), list[pa.Table](), 0
    for file in files[:_MAX_FILES]:
        for rows in reader.read_file(file):
            runs.update(pc.unique(rows.column(RUN_ID.name)).to_pylist())
            more.append(_ends_in_profiles(rows.filter(_rows_of_brokers_mask(rows, brokers))))
            waiting += more[-1].num_rows
            # Joined only when as many rows are waiting as are known, so that each row is sorted a few times in all.
            if waiting > max(ends.num_rows, _JOINED_ROWS):
                ends, more, waiting = _newest_queue_ends([ends, *more]), [], 0
        size += file.size
        if size > _MAX_BYTES:
            break
    return _newest_queue_ends([ends, *more]), runs


def _ends_after_unprofiled_runs(lake: Lake, ends: pa.Table, runs: set[str], last_commit: ArchiveCommit) -> pa.Table:
    """Return the ends from runs after the last run with an unknown profile, which may have moved any queue.

    That run may have added to any queue.
    """
    # The newest commit may have continued any queue, so without its profile no end is known.
    if last_commit.counts is not None and last_commit.counts.messages and last_commit.run_id not in runs:
        return _ENDS.empty_table()
    table = lake.find("archive_runs")
    if table is None:
        return _ENDS.empty_table()
    after = last_commit.sequence - _MAX_RUNS
    sql = f"SELECT run_id, sequence FROM archive_runs WHERE messages > 0 AND sequence > {after}"
    sequences = dict(
        zip(*(column.to_pylist() for column in run_sql(table, "archive_runs", sql).read_all()), strict=True)
    )
    barrier = max((number for run_id, number in sequences.items() if run_id not in runs), default=0)
    sequences.setdefault(last_commit.run_id, last_commit.sequence)
    later = [run_id for run_id, number in sequences.items() if number > barrier]
    return ends.filter(pc.is_in(ends.column(RUN_ID.name), pa.array(later, pa.string())))


def _ends_after_damage(lake: Lake, ends: pa.Table) -> pa.Table:
    """Return the ends of queues, without those before a damaged or missing range of their broker's log."""
    for name in ("quarantine", "gaps"):
        table = lake.find(name)
        if table is None:
            continue
        damage = run_sql(table, name, f"SELECT broker, max(end_offset) AS last FROM {name} GROUP BY broker").read_all()
        for broker, last in zip(*(column.to_pylist() for column in damage.columns), strict=True):
            is_later = to_numpy_numbers(ends.column("last_physical_offset")) >= (last or 0)
            ends = ends.filter(
                to_boolean_array(is_later | ~_rows_of_brokers_mask(ends, [broker]).to_numpy(zero_copy_only=False))
            )
    return ends


def _ends_in_profiles(rows: pa.Table) -> pa.Table:
    """Return the end offset of each queue in rows of `profiles`.

    A window whose records have no queue offset, such as those with transaction bits, says nothing of the queue's end.
    """
    has_end = pc.not_equal(pc.list_value_length(rows.column(RUNS.name)), 0)
    rows = rows.filter(pc.fill_null(has_end, True)).combine_chunks()  # where runs are not known, neither is the end
    lists = rows.column(RUNS.name).combine_chunks()
    counts = to_numpy_numbers(pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int64()))
    last = lists.flatten().take(pa.array(np.cumsum(counts) - 1, mask=counts == 0))
    columns = {name: rows.column(name) for name in _ENDS.names if name in rows.column_names}
    place, offset = (pc.struct_field(last, name) for name in ("last_physical_offset", "last_queue_offset"))
    columns |= {
        "last_physical_offset": pc.coalesce(place, columns["last_physical_offset"].combine_chunks()),
        "last_queue_offset": offset,
    }
    return _newest_queue_ends([pa.table([columns[name] for name in _ENDS.names], schema=_ENDS)])


def _newest_queue_ends(tables: Iterable[pa.Table]) -> pa.Table:
    """Return, for each queue, the end offset with the largest physical offset."""
    ends = pa.concat_tables(tables).combine_chunks()
    order = pc.sort_indices(ends, [("last_physical_offset", "ascending")])
    numbered = ends.take(order).append_column("row", pa.array(np.arange(ends.num_rows)))
    rows = numbered.group_by(QUEUE_KEYS).aggregate([("row", "max")]).column("row_max")
    return ends.take(order.take(rows.combine_chunks())).combine_chunks()


def _drop_brokers(ends: pa.Table, brokers: Collection[str]) -> pa.Table:
    return ends.filter(pc.invert(_rows_of_brokers_mask(ends, brokers)))


def _rows_of_brokers_mask(rows: pa.Table, brokers: Collection[str]) -> pa.Array:
    return pc.is_in(rows.column("broker"), pa.array(list(brokers), pa.string()))
