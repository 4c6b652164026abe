"""Restores lost rows of the tables that archive runs write, by reading the runs' ranges of the stores again.

The tables are `profiles`, `quality_results`, `quarantine` and `gaps`. `messages` names the range of each run in its
log. Runs that are no longer there count as one, up to the first known range. Nothing of this is written to the lake but
the rows that it lacks: the tasks write to a folder for temporary files.
"""

from __future__ import annotations

import secrets
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import Transaction

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.archive_commits import ArchiveCommit, CommittedRange, commits_after, read_last_commit
from commitlake.connectors.lake.committer import open_or_create_table
from commitlake.connectors.lake.erasures import (
    NOTHING_ERASED,
    ErasedMessages,
    newest_erasure_number,
    open_erasures,
    parse_erased_messages,
)
from commitlake.connectors.lake.follower_progress import last_finished_sequence
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.lost_ranges import REPAIR
from commitlake.connectors.reading.snapshots import LogTailKind, Snapshot, StoreRange, plan_splits
from commitlake.connectors.reading.stores import Store
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.pipelines.archive.profile_files import merge_task_profiles, open_profiles_file
from commitlake.pipelines.archive.quality_check import CriticalQualityError, judge_run
from commitlake.pipelines.archive.task import ArchiveTasks
from commitlake.pipelines.archive.work_planning import ArchiveWork, check_is_same_store
from commitlake.pipelines.maintenance.expiry import read_expiries
from commitlake.pipelines.maintenance.file_replacement import replace_table_files
from commitlake.pipelines.masking.erasure_rows import newest_row_by_message
from commitlake.pipelines.quality.report import Losses
from commitlake.pipelines.repair.commits import count_lost_rows, make_repair_note
from commitlake.pipelines.repair.derived_tables import make_run_filter, replace_rows
from commitlake.pipelines.repair.refill_from_stores import PACK_BYTES, RefillStores, read_archived_counts
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.tables.erasures import MESSAGE_EVENTS, ErasureEvent
from commitlake.schemas.tables.lake_tables import LAKE_TABLES

REPEATED = ("profiles", "quality_results", "quarantine", "gaps")
"""Tables that can be restored so."""
REFILL_ID = "commitlake.refill"
"""Delta application whose number in `profiles` is the newest version of `messages` whose places of bodies it has; 0 if
it lacks those of any messages."""
_BYTES = ("first_bytes", "found")


class _LackingRun(NamedTuple):
    """Archive run, and how many of its rows are missing in each table."""

    commit: ArchiveCommit
    rows: Mapping[str, int]


def count_missing_rows(lake: Lake, tables: Collection[str]) -> dict[str, int]:
    """Count the rows that tables lack, compared with the counts that finished runs recorded in `messages`.

    Args:
        lake: the lake; `messages` is intact.
        tables: tables that follow `messages`; those of which rows have expired are left out.

    Returns:
        The number of rows, for tables that lack some.
    """
    finished, found = last_finished_sequence(lake, "archive_runs"), Counter[str]()
    expired = read_expiries(lake.table("messages"))
    for run in _runs_with_lost_rows_in_log(lake, [table for table in tables if table not in expired]):
        # Rows of a run that is not finished are not lost: the next archive run writes them.
        if run.commit.sequence <= finished:
            found.update(run.rows)
    return dict(found)


def record_lost_rows(lake: Lake, tables: Collection[str]) -> dict[str, int]:
    """Record in each table how many rows are lost for good, so that audits do not report them again.

    Returns:
        The number of rows that were not recorded yet, for tables that lack some.
    """
    recorded = {}
    for table, count in count_missing_rows(
        lake, [table for table in tables if table in {*REPEATED, "store_config"}]
    ).items():
        open_or_create_table(lake, table)
        new = count - count_lost_rows(lake, table)
        if new > 0:
            replace_table_files(lake, table, [], [], changes_data=False, note=make_repair_note(new))
            recorded[table] = new
    return recorded


def repeat_archive_runs(
    lake: Lake, lost_rows_by_table: Mapping[str, int | None], stores: RefillStores
) -> Iterator[str]:
    """Restore the rows that tables have lost, by archiving the same log ranges again from the stores.

    Args:
        lake: the lake; `messages` is intact.
        lost_rows_by_table: number of lost rows by table, of `REPEATED`; None if unknown.

    Yields:
        Sentences on what is still lost.
    """
    erased = _read_erasures_in_profiles(lake)
    by_broker = {store.broker: store for store in stores.stores}
    left: Counter[str] = Counter()
    changed: Counter[str] = Counter()
    for run in _runs_with_lost_rows(lake, lost_rows_by_table):
        part = _limit_to_readable_ranges(run.commit, by_broker)
        is_whole = part.ranges == run.commit.ranges
        if not is_whole:
            left.update(run.rows)
        # A part of a run would leave its counts wrong, with no means to see it; a combined run has no count.
        if part.ranges and (is_whole or _is_combined_run(run.commit)):
            with tempfile.TemporaryDirectory(prefix="commitlake-repair-") as folder:
                scratch = Lake(folder)
                _repeat_archive_run(
                    scratch, part, by_broker, stores, erased, is_judged="quality_results" in lost_rows_by_table
                )
                for table in lost_rows_by_table:
                    rows = _read_rows(scratch, table)
                    if not _is_combined_run(run.commit) and rows.num_rows != _count_written_rows(run.commit, table):
                        changed[table] += run.rows.get(table, 0)  # an audit compares the numbers
                        continue
                    _restore_rows(lake, table, part.run_id, rows, hides_bytes=erased.number > 0)
    for table, count in left.items():
        yield f"{table}: {format_count(count, 'row') if count else 'rows'} of runs whose log no store has"
    for table, count in changed.items():
        if count:
            yield f"{table}: {format_count(count, 'row')} of runs of which this version writes another number of rows"


def _read_erasures_in_profiles(lake: Lake) -> ErasedMessages:
    """Return the log positions of messages that `profiles` counts as erased."""
    table = open_erasures(lake)
    if table is None:
        return NOTHING_ERASED
    rows = table.to_pyarrow_table(columns=["broker", "physical_offset", "erasure_id", "number", "event", "at"])
    events = pa.array([str(event) for event in MESSAGE_EVENTS])
    rows = newest_row_by_message(rows.filter(pc.is_in(rows.column("event"), events)))
    counted = newest_erasure_number(lake.find("profiles"))
    on_arrival = pc.not_equal(rows.column("event"), str(ErasureEvent.MESSAGE))
    is_counted = pc.or_(on_arrival, pc.less_equal(rows.column("number"), counted))
    return parse_erased_messages(rows.filter(is_counted), newest_erasure_number(table))


def _restore_rows(lake: Lake, table: str, run_id: str, rows: pa.Table, *, hides_bytes: bool) -> None:
    if table == "quarantine" and hides_bytes:  # they may have erased texts
        for name in _BYTES:
            place = rows.schema.get_field_index(name)
            field = rows.schema.field(name)
            rows = rows.set_column(place, field, pa.nulls(rows.num_rows, field.type))
    number = [Transaction(REFILL_ID, 0)] if table == "profiles" else []
    if rows.num_rows:
        replace_rows(lake, table, make_run_filter([run_id]), rows, number)


def _count_written_rows(commit: ArchiveCommit, table: str) -> int:
    """Return the number of rows that a run wrote to a table, according to its commit."""
    return sum(file.rows for file in commit.files.get(table, ()))


def _runs_with_lost_rows_in_log(lake: Lake, tables: Collection[str]) -> list[_LackingRun]:
    """Return the runs in the Delta log of `messages` whose rows any of the given tables lacks, oldest first."""
    there = {table: _count_rows_by_run(lake, table) for table in tables}
    found = []
    for commit in commits_after(lake, 0) if tables else ():
        expected = {table: _count_written_rows(commit, table) for table in tables}
        lacks = {table: count - there[table].get(commit.run_id, 0) for table, count in expected.items()}
        lacks = {table: count for table, count in lacks.items() if count > 0}
        if lacks:
            found.append(_LackingRun(commit, lacks))
    return found


def _runs_with_lost_rows(lake: Lake, lost_rows_by_table: Mapping[str, int | None]) -> Iterator[_LackingRun]:
    """Yield the runs whose rows any of the given tables lacks, oldest first."""
    found = [run for run in _runs_with_lost_rows_in_log(lake, lost_rows_by_table) if run.commit.ranges]
    known: Counter[str] = Counter()
    for run in found:
        known.update(run.rows)
    older = {
        table: 0 if count is None else count - known[table]
        for table, count in lost_rows_by_table.items()
        if count is None or count > known[table]
    }
    last = read_last_commit(lake)
    if older and last is not None:
        earlier = _combine_older_runs(lake, [commit for commit in commits_after(lake, 0) if commit.ranges], last)
        if earlier.ranges or any(older.values()):
            yield _LackingRun(earlier, older)
    yield from found


def _combine_older_runs(lake: Lake, commits: Sequence[ArchiveCommit], last_commit: ArchiveCommit) -> ArchiveCommit:
    """Return one commit that stands for all archive runs before the oldest one in the log of `messages`."""
    ends = {broker: progress.end for broker, progress in last_commit.stores.items()}
    # From the newest to the oldest, so that the earliest start of each store remains.
    for commit in reversed(commits):
        ends |= {broker: part.start for broker, part in commit.ranges.items()}
    firsts = read_archived_counts(lake)
    starts = {broker: firsts[broker].first if broker in firsts else 0 for broker in ends}
    ranges = {broker: CommittedRange(starts[broker], end) for broker, end in ends.items() if starts[broker] < end}
    return replace(last_commit, run_id=f"{REPAIR}-{secrets.token_hex(16)}", ranges=ranges)


def _is_combined_run(run: ArchiveCommit) -> bool:
    return run.run_id.startswith(REPAIR)


def _count_rows_by_run(lake: Lake, table: str) -> dict[str, int]:
    opened = lake.find(table)
    if opened is None:
        return {}
    run_ids = opened.to_pyarrow_table(columns=["run_id"]).column("run_id")
    return {row["values"]: row["counts"] for row in pc.value_counts(run_ids).to_pylist()}


def _limit_to_readable_ranges(run: ArchiveCommit, stores_by_broker: Mapping[str, Store]) -> ArchiveCommit:
    """Return a run with only those of its log ranges that the stores still have."""
    ranges = {}
    for broker, part in run.ranges.items():
        store, progress = stores_by_broker.get(broker), run.stores[broker]
        # What was pulled from a broker is in no store's files.
        if store is None or progress.pulled is not None:
            continue
        first, last = store.segments[0].base_offset, store.segments[-1]
        start = max(part.start, first) if _is_combined_run(run) else part.start
        if first <= start < part.end <= last.base_offset + last.file_size:
            check_is_same_store(store, progress)
            ranges[broker] = CommittedRange(start, part.end)
    return replace(run, ranges=ranges)


def _repeat_archive_run(
    scratch_lake: Lake,
    run: ArchiveCommit,
    stores_by_broker: Mapping[str, Store],
    stores: RefillStores,
    erased_messages: ErasedMessages,
    *,
    is_judged: bool,
) -> None:
    """Archive the log ranges of a run again, into a temporary lake."""
    read = [stores_by_broker[broker] for broker in run.ranges]
    ranges = {broker: StoreRange(part.start, part.end, LogTailKind.CLOSED) for broker, part in run.ranges.items()}
    parts = [split for store in read for split in plan_splits(store, ranges[store.broker], PACK_BYTES)]
    tasks = ArchiveTasks(
        parts,
        scratch_lake,
        run.run_id,
        stores.parser_version,
        erased=erased_messages,
        masks=stores.masks,
        pack_bytes=PACK_BYTES,
    )
    manifest = list(tasks.run_all(HERE))
    if is_judged:
        work = ArchiveWork(read, Snapshot(ranges), run, run, ())
        with suppress(CriticalQualityError):  # it was archived nevertheless
            losses = Losses() if run.counts is None else Losses(run.counts.quarantined, run.counts.gaps)
            judge_run(scratch_lake, work, manifest, losses=losses, is_masked=stores.masks is not None)
        return
    with open_profiles_file(scratch_lake, run.run_id) as profiles:
        for piece in merge_task_profiles(scratch_lake, manifest):
            profiles.add_windows(piece)


def _read_rows(scratch_lake: Lake, table: str) -> pa.Table:
    schema = arrow_schema(LAKE_TABLES[table].columns)
    parts = [schema.empty_table()]
    for path in sorted(Path(scratch_lake.uri(table)).glob("*.parquet")):
        rows = pq.read_table(path)
        parts.append(rows.select(schema.names).cast(schema))
    return pa.concat_tables(parts)
