"""The steps of maintain; each may run at the same time as an archive, and may be killed at any point.

The order matters in two places: rows are deleted before their bodies, so that no row of the newest version names a
pack that is deleted too early; and VACUUM runs after the steps that remove files from tables.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from deltalake.exceptions import DeltaError

from commitlake.connectors.lake.archive_commits import ArchiveCommit, StoreProgress, read_last_commit
from commitlake.connectors.lake.archive_run_completion import unfinished_commits
from commitlake.connectors.lake.delta_log.check import LogDamagedError
from commitlake.connectors.lake.delta_log.file_actions import read_table_files
from commitlake.connectors.lake.lake import TOPIC_TABLES, Lake
from commitlake.connectors.lake.packs.names import PackFile
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.lake.reader import clean_engine_message
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.jobs.cli.progress import runner_progress
from commitlake.pipelines.erasure.body_erasure import erase_bodies
from commitlake.pipelines.maintenance.compaction import Compaction, Join, compact_table, plan_compaction
from commitlake.pipelines.maintenance.expiry import (
    ExpiredFiles,
    delete_packs,
    expire_files,
    find_expired_files,
    find_expired_packs,
    measure_files,
    record_expiry,
)
from commitlake.pipelines.maintenance.log_cleanup import (
    VacuumableFiles,
    delete_old_log_entries,
    find_vacuumable_files,
    vacuum,
    write_checkpoint,
)
from commitlake.pipelines.maintenance.pack_merging import (
    PackMerges,
    delete_merged_packs,
    find_merge_candidates,
    find_orphan_packs,
    merge_packs,
    plan_pack_merges,
    read_referenced_packs,
)
from commitlake.pipelines.maintenance.topic_expiry import expire_topic_rows
from commitlake.pipelines.repair.content_checksums import SUMMED_TABLES, list_unsealed_tables, seal_table_contents
from commitlake.pipelines.replay.replay_rows import DEFAULT_KEEP, drop_copies, find_old_copies
from commitlake.pipelines.topic_minutes.minute_merging import join_sorted_batches
from commitlake.pipelines.topic_minutes.progress import joined_run_id
from commitlake.pipelines.topics.schema_history import read_topics_by_table
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.tables.lake_tables import FOLLOWING, LAKE_TABLES

BODIES = "bodies"
COPIES = "replay_rows"
"""The table whose rows are dropped by replay, and not by date."""


@dataclass(frozen=True, slots=True)
class MaintenancePlan:
    """Settings of one maintenance run.

    Attributes:
        lake: the lake.
        keep: retention period by table name, or for `bodies`; other tables keep their rows forever, except `COPIES`.
        retention: minimum age at which files that no table version uses are deleted.
        target_bytes: target size of a merged file, bytes.
        dry_run: whether to only report the work.
        quiet: whether to show no progress.
        now: current time, from which ages are computed.
        runner: the runner that merges files.
    """

    lake: Lake
    keep: Mapping[str, datetime.timedelta]
    retention: datetime.timedelta
    target_bytes: int
    dry_run: bool
    quiet: bool
    now: datetime.datetime
    runner: Runner = HERE

    def expiry_date(self, table: str) -> datetime.date | None:
        """Return the date before which rows of a table are deleted, or None if all rows are kept.

        Rows of the typed tables of topics are kept as long as `messages`, unless `keep` has a period for them.
        """
        period = self.keep.get(table, self.keep.get("messages") if table == TOPIC_TABLES else None)
        return None if period is None else (self.now - period).date()


@dataclass(frozen=True, slots=True)
class TableMaintenance:
    """The work that was done, or would be done, on one table.

    Attributes:
        table: name of the table.
        files_before: number of data files before the work.
        bytes_before: size of these files, bytes.
        files_after: number of data files after the work; for a dry run the same as before.
        bytes_after: size of these files, bytes.
        expired: the deleted rows and files that were too old.
        compaction: the merged files; for a dry run without their size after the work.
        garbage: the deleted files that no version used.
        notes: work that was not done, and why.
    """

    table: str
    files_before: int
    bytes_before: int
    files_after: int
    bytes_after: int
    expired: ExpiredFiles = field(default_factory=ExpiredFiles)
    compaction: Compaction = field(default_factory=Compaction)
    garbage: VacuumableFiles = field(default_factory=VacuumableFiles)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PackMaintenance:
    """The work that was done, or would be done, on the packs of bodies."""

    expired: ExpiredFiles = field(default_factory=ExpiredFiles)
    orphans: ExpiredFiles = field(default_factory=ExpiredFiles)
    unfinished: int = 0
    merges: PackMerges = field(default_factory=PackMerges)


def maintain_tables(plan: MaintenancePlan) -> Iterator[TableMaintenance]:
    """Run all maintenance steps on each existing table: expire rows, merge files, vacuum, write a checkpoint.

    Raises:
        ConcurrentMaintenanceError: if another process does the same work.
    """
    last = read_last_commit(plan.lake)
    unfinished = bool(last and unfinished_commits(plan.lake, last.sequence))
    for table in (*LAKE_TABLES, *plan.lake.list_topic_tables()):
        try:
            done = _maintain_table(plan, table, is_unfinished=unfinished and table in FOLLOWING)
        except (DeltaError, LakeError) as error:
            if table in LAKE_TABLES or isinstance(error, LogDamagedError):
                raise
            # Anybody may write to typed tables, also with features that only other programs support.
            done = TableMaintenance(table, 0, 0, 0, 0, notes=(f"not maintained: {clean_engine_message(str(error))}",))
        if done is not None:
            yield done


def _maintain_table(plan: MaintenancePlan, table: str, *, is_unfinished: bool) -> TableMaintenance | None:
    """Run all maintenance steps on a table; return None if it does not exist.

    Args:
        plan: the settings.
        table: path of the table in the lake.
        is_unfinished: True if an archive run has written files for it that it does not have yet.
    """
    view = plan.lake.pin_versions()  # a new one after each step that changes the table
    opened = view.find(table)
    if opened is None:
        return None
    before = measure_files(read_table_files(opened))
    expired, notes = _delete_replay_rows(plan) if table == COPIES else (_delete_expired_rows(plan, view, table), [])
    if expired.count:
        view = plan.lake.pin_versions()
    compaction = _compact_table(plan, view, table)
    if compaction.written:
        view = plan.lake.pin_versions()
    if compaction.unsorted:
        notes.append(
            f"{format_count(compaction.unsorted, 'file is', 'files are')} sorted differently and are not merged"
        )
    garbage = VacuumableFiles()
    if is_unfinished:
        notes.append("not vacuumed: an unfinished archive run has files for it; 'commitlake archive' finishes that run")
    else:
        garbage = _vacuum_table(plan, view, table)
        if garbage.count:
            view = plan.lake.pin_versions()
    if not plan.dry_run:
        write_checkpoint(view, table)
        notes.extend(filter(None, [delete_old_log_entries(view, table, plan.now)]))
        seal_table_contents(plan.lake, list_unsealed_tables(plan.lake, {table} & {*SUMMED_TABLES}), plan.runner)
    after = measure_files(read_table_files(view.table(table)))
    return TableMaintenance(
        table, before.count, before.bytes, after.count, after.bytes, expired, compaction, garbage, tuple(notes)
    )


def _delete_replay_rows(plan: MaintenancePlan) -> tuple[ExpiredFiles, list[str]]:
    """Delete rows of `replay_rows` that no replay needs; return what was deleted, and notes on rows that are kept.

    Returns:
        The deleted rows, and sentences about rows that are kept.
    """
    keep = plan.keep.get(COPIES, DEFAULT_KEEP)
    found = find_old_copies(plan.lake, plan.now, keep, plan.retention, drops_resumable=COPIES in plan.keep)
    if not plan.dry_run:
        drop_copies(plan.lake, found)
    notes = []
    if found.unknown:
        notes.append(
            f"rows of {_replay_names_text(found.unknown)} are kept, because the table 'replays' does not say how it "
            "ended"
        )
    if found.resumable:
        notes.append(
            f"rows of {_replay_names_text(found.resumable)} are kept, because what was stopped can be resumed: "
            f"--keep {COPIES}=TIME deletes them"
        )
    return ExpiredFiles(len(found.files), found.size_bytes, found.row_count), notes


def _replay_names_text(replays: Sequence[str]) -> str:
    more = f" and {len(replays) - 1:,} more" if len(replays) > 1 else ""
    return f"the replay {replays[0]}{more}"


def _delete_expired_rows(plan: MaintenancePlan, lake_view: Lake, table: str) -> ExpiredFiles:
    is_typed = table not in LAKE_TABLES
    before = plan.expiry_date(TOPIC_TABLES if is_typed else table)
    if before is None:
        return ExpiredFiles()
    if is_typed and table not in read_topics_by_table(lake_view):
        return ExpiredFiles()  # another program's, or one whose rows are not messages
    if is_typed:
        return expire_topic_rows(plan.lake, table, before, dry_run=plan.dry_run)
    files = find_expired_files(lake_view, table, before)
    if files and not plan.dry_run:
        # Before rows are deleted: without this record, an audit or repair would take them for lost.
        record_expiry(plan.lake, table, before)
        expire_files(plan.lake, table, files, before)
    return measure_files(files)


def _compact_table(plan: MaintenancePlan, lake_view: Lake, table: str) -> Compaction:
    sort_columns = LAKE_TABLES[table].sort_columns if table in LAKE_TABLES else ()
    bins = plan_compaction(lake_view, table, plan.target_bytes)
    size = sum(found.size for found in bins)
    if plan.dry_run:
        return Compaction(sum(len(found.files) for found in bins), len(bins), size)
    with runner_progress(plan.runner, f"merging {table}", size, quiet=plan.quiet) as advance:
        return compact_table(
            plan.lake, table, bins, sort_columns, advance, plan.runner, _make_merge_join(plan, table) if bins else None
        )


def _make_merge_join(plan: MaintenancePlan, table: str) -> Join | None:
    """Return the function that combines rows of a table while its files are merged; None if rows stay as they are."""
    if table != "topic_minutes":
        return None
    run_id = joined_run_id(plan.lake)
    return None if run_id is None else partial(join_sorted_batches, run_id=run_id)


def _vacuum_table(plan: MaintenancePlan, lake_view: Lake, table: str) -> VacuumableFiles:
    found = find_vacuumable_files(lake_view, table, plan.retention)
    if found.count and not plan.dry_run:
        vacuum(plan.lake, table, plan.retention)
    return found


def maintain_packs(plan: MaintenancePlan) -> PackMaintenance:
    """Delete packs (files of message bodies) that are expired, unused or unfinished, and merge small ones.

    Raises:
        PackStoreError: if packs may not be listed or deleted.
        ConcurrentMaintenanceError: if another process does the same work.
    """
    last = read_last_commit(plan.lake) or ArchiveCommit(0, "")
    store = open_pack_store(plan.lake.packs)
    packs = list(store.list_packs())
    # The later date, because bodies go with their messages, or before them.
    dates = [date for table in ("messages", BODIES) if (date := plan.expiry_date(table)) is not None]
    expired = find_expired_packs(packs, max(dates), last.stores) if dates else []
    orphans = find_orphan_packs(store, plan.lake, packs, last.stores, plan.now, plan.retention)
    orphans = [pack for pack in orphans if pack not in expired]
    unfinished = 0
    if not plan.dry_run:
        if expired:
            # Before packs are deleted, as for rows.
            record_expiry(plan.lake, BODIES, max(dates))
        delete_packs(store, [*expired, *orphans])
        unfinished = store.delete_unfinished_packs(plan.now - plan.retention)
    gone = {pack.name for pack in (*expired, *orphans)}
    merges = _merge_packs(plan, [pack for pack in packs if pack.name not in gone], last.stores)
    return PackMaintenance(measure_files(expired), measure_files(orphans), unfinished, merges)


def _merge_packs(plan: MaintenancePlan, packs: Sequence[PackFile], progress: Mapping[str, StoreProgress]) -> PackMerges:
    """Merge small packs of each date and broker, and finish the merges of killed runs."""
    store = open_pack_store(plan.lake.packs)
    found = find_merge_candidates(packs, progress)
    if not found:
        return PackMerges()
    named = read_referenced_packs(plan.lake, {pack.store_date for pack in found})
    bins, planned = plan_pack_merges(store, found, named, progress)
    size = sum(one.size for one in bins)
    if plan.dry_run:
        return replace(planned, merged=sum(len(one.files) for one in bins), written=len(bins), bytes=size)
    with runner_progress(plan.runner, "merging packs", size, quiet=plan.quiet) as advance:
        merges = merge_packs(store, bins, plan.runner, advance)
    left = delete_merged_packs(
        store,
        # Listed again, because the merged packs are among them now.
        find_merge_candidates([*store.list_packs()], progress),
        lambda names: erase_bodies(plan.lake, names, plan.runner)[1],
    )
    return replace(merges, left=[*planned.left, *merges.left, *left])
