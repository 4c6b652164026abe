"""Adds the minutes that `lag_minutes` lacks, and computes those again whose rows came late.

A run first removes the rows that are to be computed again, in one commit with the versions of the tables that it has
read. It then adds one commit for each day or so. Each commit carries, as application transactions, the last minute that
the table has of each store, see `progress`: of two runs at once only one commits, and a run that is killed leaves a
table that is complete up to an earlier minute, which the next run goes on from. Tasks write the data files, each for an
hour of a store.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from commitlake.connectors.lake.archive_commits import StoreProgress, read_last_commit
from commitlake.connectors.lake.committer import commit_with_transaction
from commitlake.connectors.lake.delta_log.file_actions import read_file_actions
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.connectors.lake.snapshot_tables import OFFSETS, open_snapshots, snapshot_brokers
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.lag_minutes.minute_computation import (
    SCHEMA,
    MinuteRange,
    MinutesTask,
    minute_time,
    split_by_hour,
)
from commitlake.pipelines.lag_minutes.minutes_to_recompute import (
    MinutesToCompute,
    find_minutes_to_compute,
    newest_versions,
)
from commitlake.pipelines.lag_minutes.progress import (
    APPLICATION_ID,
    MinutesProgress,
    StoreMinutes,
    checksum_topics,
    read_progress,
)
from commitlake.schemas.errors import ConcurrentRunError

TABLE = "lag_minutes"
_HOURS_OF_COMMIT = 24


@dataclass(frozen=True, slots=True)
class AddedMinutes:
    """Numbers of minutes and rows that a run has added to `lag_minutes`.

    Attributes:
        minutes: number of minutes that were computed, of all stores.
        rows: number of rows that were added.
        repeated: number of these minutes that the table had before.
    """

    minutes: int = 0
    rows: int = 0
    repeated: int = 0


def _show_no_progress(_total: int) -> AbstractContextManager[Callable[[int], None]]:
    return nullcontext(lambda _: None)


def backfill_lag_minutes(
    lake: Lake,
    runner: Runner = HERE,
    show_progress: Callable[[int], AbstractContextManager[Callable[[int], None]]] = _show_no_progress,
) -> AddedMinutes:
    """Compute the lag for each minute that `lag_minutes` lacks or whose input has changed, and add the rows.

    Args:
        lake: the lake.
        runner: runs the tasks that compute minutes and write files.
        show_progress: called with the number of minutes to compute; returns a context manager whose function is called
            with the number of further minutes that are computed.

    Raises:
        ConcurrentRunError: if another run was first.
        LakeError: if there is no lake.
    """
    # Pinned, so that the recorded versions are not newer than those that any minute is computed from.
    pinned = lake.pin_versions()
    pinned.table("messages")
    offsets = open_snapshots(pinned, OFFSETS)
    if offsets is None:
        return AddedMinutes()
    last = read_last_commit(pinned)
    archived = {} if last is None else last.stores
    before = read_progress(pinned.find(TABLE), snapshot_brokers(offsets, OFFSETS))
    todo = find_minutes_to_compute(pinned, before, archived)
    progress = _remove_outdated_rows(lake, before, todo, replace(before, versions=newest_versions(pinned)), archived)
    repeated = sum(max(0, before.stores[broker].until + 1 - minutes.first) for broker, minutes in todo.items())
    # In the order of time, because the progress of a store is the last minute that is complete.
    ranges = sorted(
        (hour for broker, (first, end) in todo.items() for hour in split_by_hour(broker, first, end)),
        key=lambda hour: hour.first,
    )
    done = AddedMinutes(repeated=repeated)
    with show_progress(sum(map(_count_minutes, ranges))) as advance:
        for start in range(0, len(ranges), _HOURS_OF_COMMIT):
            hours = ranges[start : start + _HOURS_OF_COMMIT]
            files = []
            # Tasks pin the lake again: newer rows of an hour are found as late rows by the next run, which computes
            # them again.
            for number, file in runner.run(partial(_run_task, MinutesTask(lake)), hours):
                advance(_count_minutes(hours[number]))
                if file is not None:
                    files.append(file)
            progress = _commit_files(lake, progress, _progress_after_hours(progress, hours), files)
            minutes = sum(map(_count_minutes, hours))
            done = replace(done, minutes=done.minutes + minutes, rows=done.rows + sum(file.rows for file in files))
    return done


def _count_minutes(hour: MinuteRange) -> int:
    return hour.last + 1 - hour.first


def _run_task(task: MinutesTask, minutes: MinuteRange) -> DataFile | None:
    return task.write_minutes_file(minutes)


def _progress_after_hours(progress: MinutesProgress, hours: Iterable[MinuteRange]) -> MinutesProgress:
    """Return the progress after the given hours, which are in the order of time, have been computed."""
    stores = dict(progress.stores)
    for hour in hours:
        stores[hour.broker] = replace(stores[hour.broker], until=hour.last)
    return replace(progress, stores=stores)


def _commit_files(
    lake: Lake,
    old_progress: MinutesProgress,
    new_progress: MinutesProgress,
    files: Sequence[DataFile],
    removed_files: Sequence[tuple[str, int]] = (),
) -> MinutesProgress:
    """Commit data files together with the progress, and return the progress as committed.

    Raises:
        ConcurrentRunError: if another run was first; nothing was committed.
    """
    numbers, new = old_progress.transaction_numbers(), new_progress.transaction_numbers()
    table = lake.find(TABLE)
    known = None if table is None else table.transaction_version(APPLICATION_ID)
    # Another run may have committed since the progress was read; the commit below only compares the other numbers.
    if (known or 0) == numbers[APPLICATION_ID]:
        beside = {name: (numbers[name], number) for name, number in new.items() if name != APPLICATION_ID}
        step = (known, new[APPLICATION_ID])
        if commit_with_transaction(
            lake, TABLE, files, APPLICATION_ID, step, other_transactions=beside, removed_files=removed_files
        ):
            return new_progress
    raise ConcurrentRunError(
        f"{lake.uri(TABLE)}: another run committed first; the minutes that this run had not committed yet were "
        "discarded. Run the command again"
    )


def _remove_outdated_rows(
    lake: Lake,
    old_progress: MinutesProgress,
    minutes_by_broker: Mapping[str, MinutesToCompute],
    new_progress: MinutesProgress,
    archive_progress: Mapping[str, StoreProgress],
) -> MinutesProgress:
    """Remove the rows of minutes that must be computed again because their input has changed.

    Record the versions that were read, and return the new progress.
    """
    stores = dict(old_progress.stores)
    firsts: dict[str, int] = {}
    for broker, minutes in minutes_by_broker.items():
        known, of_store = old_progress.stores[broker], archive_progress.get(broker, StoreProgress(0))
        if minutes.first <= known.until:
            firsts[broker] = minutes.first
        until = min(known.until, minutes.first - 1)
        stores[broker] = StoreMinutes(until, of_store.end, checksum_topics(of_store))
    new_progress = replace(new_progress, stores=stores)
    if new_progress.transaction_numbers() == old_progress.transaction_numbers():
        return old_progress
    # A file may have other stores and earlier minutes; their rows move to a new file.
    removed, kept = [], []
    if firsts:
        for path, size, rows in _files_with_rows(lake, firsts):
            removed.append((path, size))
            if rows.num_rows:
                name = f"part-{secrets.token_hex(16)}.zstd.parquet"
                kept.append(write_plain_file(rows, lake, TABLE, name))
    return _commit_files(lake, old_progress, new_progress, kept, removed)


def _files_with_rows(lake: Lake, first_minutes: Mapping[str, int]) -> Iterator[tuple[str, int, pa.Table]]:
    """Yield the data files that have rows of a store from its given minute on.

    Args:
        lake: the lake.
        first_minutes: by broker, the first minute.

    Yields:
        Path in the log, size and other rows of each file.
    """
    folder = lake.open_folder(TABLE)
    earliest = minute_time(min(first_minutes.values()))
    for action in read_file_actions(lake.table(TABLE)).to_pylist():
        greatest = (action.get("max") or {}).get("minute")
        # Without statistics, the file is read.
        if greatest is not None and greatest < earliest:
            continue
        with folder.open_input_file(unquote(action["path"])) as source:
            rows = pq.read_table(source, page_checksum_verification=True).select(SCHEMA.names).cast(SCHEMA)
        is_kept = pa.array([True] * rows.num_rows, pa.bool_())
        for broker, first in first_minutes.items():
            is_late = pc.greater_equal(rows["minute"], pa.scalar(minute_time(first), SCHEMA.field("minute").type))
            is_kept = pc.and_(is_kept, pc.invert(pc.and_(pc.equal(rows["broker"], broker), is_late)))
        kept = rows.filter(is_kept)
        if kept.num_rows < rows.num_rows:
            yield action["path"], action["size_bytes"], kept
