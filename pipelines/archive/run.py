"""One archive run, from new messages in the stores to updated tables.

    work      stores, ranges, progress of the lake                 work_planning.py
    tasks     write packs, and data files that no table has yet    task.py
    profiles  of the tasks, on their way to the driver             profile_files.py
    quality   checks of the profiles by suites                     quality_check.py
    commit    data files and end offsets in one Delta commit       connectors.lake.committer
    follow    adds files of the commit to the other tables         connectors.lake.archive_run_completion
    keys      message_keys, from files of large tasks, or new rows pipelines.message_keys
    consumed  consumptions, from the stores' consume logs          pipelines.consumptions
    edges     edges, from new rows of messages and consumptions    pipelines.edges
    hbase     HBase, likewise, if wanted                           connectors.hbase

If a run is killed before its commit, its files are never read. If it is killed after its commit, the next run completes
it. The nightly job and the stream run this same function.
"""

from __future__ import annotations

import datetime
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from commitlake.connectors.formats.registry import ANY_FORMAT
from commitlake.connectors.hbase.errors import ConcurrentFollowError, HBaseError
from commitlake.connectors.lake.archive_commits import ArchiveCommit, RunCounts
from commitlake.connectors.lake.archive_run_completion import finish_runs
from commitlake.connectors.lake.backoff import MAX_TRIES, TableUpdate, backoff_seconds
from commitlake.connectors.lake.committer import commit_run, open_messages_for_append
from commitlake.connectors.lake.erasures import ErasedMessages, read_erased_messages
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.manifest import ManifestRow
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.log_format.format import Formats
from commitlake.connectors.reading.snapshots import Snapshot
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.stores import Store
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.archive.body_location import (
    bodies_root,
    check_bodies_root_unchanged,
    check_bodies_writable,
    check_outside_stores,
)
from commitlake.pipelines.archive.derived_table_updates import NOTHING_FOLLOWED, FollowedTables, follow_tables
from commitlake.pipelines.archive.profile_files import clean_up_staged_profiles
from commitlake.pipelines.archive.quality_check import JudgedRun, judge_run
from commitlake.pipelines.archive.queue_ends import QueueEnds
from commitlake.pipelines.archive.result import NOTHING_NEW, ArchivePageWriter, Result
from commitlake.pipelines.archive.store_config import write_config_changes, write_topic_and_group_changes
from commitlake.pipelines.archive.task import ArchiveTasks, check_files_written
from commitlake.pipelines.archive.task_input import Part
from commitlake.pipelines.archive.work_planning import ArchiveWork, find_archive_work
from commitlake.pipelines.masking.archive_masks import MASKED, ArchiveMasks, check_masks
from commitlake.pipelines.masking.copies_of_erased import read_later_copies
from commitlake.pipelines.message_keys.key_files import PreparedKeys
from commitlake.pipelines.quality.expectation_input import BeginJudging
from commitlake.pipelines.quality.great_expectations_loading import start_loading_thread
from commitlake.pipelines.quality.report import Losses
from commitlake.schemas.errors import CommitLakeError, ExitCode
from commitlake.schemas.formatted_counts import format_count

if TYPE_CHECKING:
    from commitlake.connectors.hbase.options import HBaseOptions
    from commitlake.pipelines.archive.from_broker.pull_task_input import BrokerSource

MIB = 1 << 20
HBASE = "HBase"
"""Name of HBase among the tables that follow `messages`."""
Progress = Callable[[Runner, int], AbstractContextManager[Callable[[int], None]]]


class OnBadRange(StrEnum):
    """Reaction of an archive run to a range of a log that it cannot read.

    FAIL: the lake stays unchanged. KEEP: the range is recorded, everything else is archived, and the run's verdict is
    damage. ACCEPT: the same, but the verdict is not damage.
    """

    FAIL = "fail"
    KEEP = "keep"
    ACCEPT = "accept"


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of one archive run.

    Attributes:
        store: store folder, glob or comma-separated list, as the source's `path`.
        lake: the lake; created if missing.
        bodies_moved: True if all packs were moved there from their old location.
        broker: name of the store, if the path does not have it.
        layout: formats of stores to take from the path.
        max_partition_bytes: size of the log whose bodies go into one pack; a task writes several of them.
        on_corrupt: reaction to ranges that hold no intact record.
        on_gap: reaction to missing segments.
        parser_version: written to rows on ranges that could not be read.
        keys: True to update `message_keys`, and `edges` after it.
        edges: True to update `edges`, if the lake has it or is new.
        quality: True to run the quality suites before the commit; audits need the profiles that they judge.
        hbase: HBase table to update; None for none.
        page: page that shows the run at its end, or when it is stopped; None for none.
        judge: starts the judge of a run's profile; by default this process judges.
        queue_ends: the ends of queues that the run's queue offsets continue, kept from commit to commit.
        source: brokers to pull from instead of `store`; None to read files.
        masks: rules to mask messages; None for none.
        problems: sentences on files beside the logs that could not be read before the run, for its verdict.
        commit_bytes: size of the log after which a run commits, see `archive_concurrently`; None for one commit.
    """

    store: str
    lake: Lake
    broker: str | None = None
    layout: Formats = ANY_FORMAT
    bodies_moved: bool = False
    max_partition_bytes: int = 32 * MIB
    on_corrupt: OnBadRange = OnBadRange.KEEP
    on_gap: OnBadRange = OnBadRange.KEEP
    parser_version: str = ""
    keys: bool = True
    edges: bool = True
    quality: bool = True
    hbase: HBaseOptions | None = None
    page: ArchivePageWriter | None = None
    judge: BeginJudging | None = None
    queue_ends: QueueEnds = field(default_factory=QueueEnds, compare=False)
    source: BrokerSource | None = None
    masks: ArchiveMasks | None = None
    problems: Sequence[str] = ()
    commit_bytes: int | None = None


def plan_work(
    config: Config, end_snapshot: Snapshot | None = None, on_new_data: Callable[[], object] | None = None
) -> ArchiveWork:
    """Find the messages that the stores or brokers have and the lake lacks, and plan their archiving.

    Args:
        end_snapshot: ends to archive to; None for the current ends. See `find_archive_work` and `find_broker_work`.
        on_new_data: called as soon as something new seems to be there.

    Raises:
        CommitLogError: if a store cannot be read, or is not the one that was archived.
        LakeError: if the folder is no lake.
        CommitLakeError: if the masks differ from the lake's.
    """
    if config.source is not None:
        from commitlake.pipelines.archive.from_broker.planning import find_broker_work  # noqa: PLC0415 (of few runs)

        work: ArchiveWork = find_broker_work(config.source, config.lake, end_snapshot, on_new_data)
    else:
        formats = config.layout
        work = find_archive_work(
            config.store,
            config.broker,
            config.lake,
            end_snapshot=end_snapshot,
            formats=formats,
            on_new_data=on_new_data,
        )
    check_masks(work.last.masks, config.masks, is_new=not work.last.sequence)
    return work


def run_archive(
    runner: Runner, config: Config, work: ArchiveWork | None = None, progress: Progress | None = None
) -> Result:
    """Archive all new messages of the planned work.

    Args:
        work: result of `plan_work`, if it was called before, after `check_bodies_writable`.
        progress: context manager that shows progress. It takes the runner and the size of the log, and returns a
            function that is called with the number of bytes that were done.

    Raises:
        CommitLogError: if a store cannot be read, or is not the one that was archived.
        LakeError: if the folder is no lake, or the location of bodies differs from the lake's, or if files that tasks
            have written cannot be seen by this process.
        CommitLakeError: if the masks differ from the lake's, or if there is damage or a gap, and the run is set to
            fail.
        HBaseError: if HBase cannot be updated; everything else is done then, and the next run completes it.
        CriticalQualityError: if a critical expectation is not met.
        ConcurrentRunError: if another run has committed the same stores meanwhile.
    """
    started = time.monotonic()
    lake = config.lake
    if work is None:
        check_bodies_writable(lake)
        work = plan_work(config)
    check_outside_stores(work.stores, lake.bodies_root, "--bodies")
    check_masks(work.last.masks, config.masks, is_new=not work.last.sequence)
    if not work.has_new_data:
        result = finish_earlier_runs(config, work, runner)
        updates = [*result.updates, *_update_hbase(config, runner)]
        return replace(result, updates=updates, seconds=time.monotonic() - started)
    started_at = datetime.datetime.now(datetime.UTC)
    if not config.bodies_moved:
        check_bodies_root_unchanged(work.last, bodies_root(lake))
    parts = work.parts(config.max_partition_bytes, runner.cores)
    # Before anything is read: a run that may not have gaps ends here without leaving files.
    _check_gaps(parts, config.on_gap)
    # The table exists before the first file is written, so files of a killed run are always in a lake, where `maintain`
    # finds them.
    open_messages_for_append(lake)
    if config.quality and config.judge is None:
        start_loading_thread()
    erased = _read_erased_messages(config, work)
    tasks = ArchiveTasks(
        parts,
        lake,
        work.commit.run_id,
        config.parser_version,
        config.quality,
        erased,
        config.masks,
        config.max_partition_bytes,
        keyed=config.keys,
        copies=read_later_copies(lake),
    )
    with clean_up_staged_profiles(lake, work.commit.run_id) as manifest:
        with progress(runner, work.snapshot.size) if progress else nullcontext(_ignore_progress) as advance:
            manifest.extend(tasks.run_all(runner, advance))
        # The commit below names these files for everybody. A task on a machine with another folder at the same path
        # would make the lake unreadable.
        check_files_written(lake, manifest)
        outcome = work.build_result(manifest, lake, config.parser_version)
        work = replace(work, commit=outcome.commit)
        manifest.extend(outcome.manifest)
        # The last places at which the run can end with the lake unchanged: this check, and the suites below.
        _check_refused_ranges(manifest, config)
        losses = _losses_in_manifest(manifest, config)
        judged = (
            judge_run(
                lake,
                work,
                manifest,
                config.page,
                losses,
                config.judge,
                config.queue_ends,
                is_masked=config.masks is not None,
            )
            if config.quality and parts
            else JudgedRun()
        )
    problems = list(config.problems)
    commit = _commit_run(config, work, manifest, judged, _write_config(config, work, started_at, problems), started_at)
    # The rows are committed. Whatever ends the run from here on, the next one completes from the commit alone.
    finish_runs(lake, commit.run_id, config.parser_version)
    followed = _update_following_tables(config, work.stores, runner, problems, manifest, erased.number)
    assert commit.counts is not None
    verdict = (
        losses.verdict(judged.report)
        .with_unread_files(len(followed.problems))
        .with_unread_messages(work.newer_data_notes)
    )
    result = Result(
        lake,
        commit.run_id,
        work.snapshot.ranges,
        sequence=commit.sequence,
        messages=commit.counts.messages,
        quarantined=commit.counts.quarantined,
        gaps=commit.counts.gaps,
        metadata_bytes=sum(row.size for row in manifest if row.table == "messages"),
        pack_bytes=sum(row.pack_bytes for row in manifest),
        started_at=started_at,
        seconds=time.monotonic() - started,
        verdict=verdict,
        report=judged.report,
        figures=judged.figures,
        updates=followed.updates,
        recovered=[commit.sequence for commit in work.unfinished],
        notes=[
            *outcome.notes,
            *_unmaskable_body_notes(manifest),
            *_erased_on_arrival_notes(manifest, commit.sequence),
            *followed.notes,
        ],
        problems=followed.problems,
    )
    # Last, because HBase may be down: everything in the lake is complete by now.
    try:
        updates = [*followed.updates, *_update_hbase(config, runner)]
    except HBaseError:
        _show_on_page(config, replace(result, verdict=verdict.with_outdated_follower(HBASE)))
        raise
    result = replace(result, updates=updates, seconds=time.monotonic() - started)
    _show_on_page(config, result)
    return result


def _read_erased_messages(config: Config, work: ArchiveWork) -> ErasedMessages:
    """Return the erased messages that the run may archive again, for example after the lake was restored."""
    erased = read_erased_messages(config.lake)
    if config.source is not None:  # a pull may get messages before the end, of a topic that no run has pulled yet
        return erased
    return erased.select_after_offsets({broker: store.end for broker, store in work.previous_progress.items()})


def _write_config(
    config: Config, work: ArchiveWork, started_at: datetime.datetime, problems: list[str]
) -> dict[str, DataFile]:
    file = write_config_changes(config.lake, work.stores, work.commit.run_id, started_at, problems)
    return {} if file is None else {"store_config": file}


def _unmaskable_body_notes(manifest: Sequence[ManifestRow]) -> list[str]:
    count = sum(row.left_out for row in manifest)
    return (
        [f"{format_count(count, 'body', 'bodies')} could not be masked and were left out (property {MASKED})"]
        if count
        else []
    )


def _erased_on_arrival_notes(manifest: Sequence[ManifestRow], sequence: int) -> list[str]:
    count = sum(row.rows for row in manifest if row.table == "erasures")
    erased = format_count(count, "message was", "messages were")
    words = f"run {sequence}: {erased} erased on arrival, copies of erased ones or archived again (table erasures)"
    return [words] if count else []


def _show_on_page(config: Config, result: Result) -> None:
    if config.page is not None:
        config.page.show(result)


def finish_earlier_runs(config: Config, work: ArchiveWork, runner: Runner = HERE) -> Result:
    """Complete runs that were killed after their commit, by writing the tables that were not yet updated.

    Args:
        work: from `find_archive_work`, with nothing new in any store.
        runner: runs the tasks if there are many keys.

    Returns:
        A result with sequence 0.
    """
    if work.unfinished:
        finish_runs(config.lake, work.commit.run_id, config.parser_version)
    problems = list(config.problems)
    notes = _record_changed_config(config, work, problems)
    # Needed even without an unfinished run, because a run may have been killed when only its keys were missing.
    is_new = not work.last.sequence
    followed = NOTHING_FOLLOWED if is_new else _update_following_tables(config, work.stores, runner, problems)
    return Result(
        config.lake,
        work.commit.run_id,
        work.snapshot.ranges,
        verdict=NOTHING_NEW.with_unread_files(len(followed.problems)).with_unread_messages(work.newer_data_notes),
        updates=followed.updates,
        recovered=[commit.sequence for commit in work.unfinished],
        notes=[*notes, *followed.notes],
        problems=followed.problems,
    )


def _record_changed_config(config: Config, planned_work: ArchiveWork, problems: list[str]) -> list[str]:
    """Record changed topics and groups of the stores in a commit without messages; return a sentence on it."""
    started_at = datetime.datetime.now(datetime.UTC)
    # A store that was never archived gets its configuration with its first messages.
    stores = [store for store in planned_work.stores if store.broker in planned_work.last.stores]
    file = write_topic_and_group_changes(config.lake, stores, planned_work.commit.run_id, started_at, problems)
    if file is None:
        return []
    counts = RunCounts(started_at.isoformat(), 0, 0, 0)
    commit = planned_work.commit.with_results(counts, {"store_config": [file]})
    # This commit has no files, but readers take the place of bodies and the masks from the newest commit.
    commit = replace(commit, bodies=planned_work.last.bodies, masks=planned_work.last.masks)
    commit_run(config.lake, [], commit, planned_work.previous_progress)
    finish_runs(config.lake, commit.run_id, config.parser_version)
    return [f"{format_count(file.rows, 'changed topic or group', 'changed topics and groups')} recorded"]


def _ignore_progress(_: int) -> None:
    """Do nothing with the progress of a run; used when the caller does not show progress."""


def _prepared_key_files(manifest: Sequence[ManifestRow], erasure: int) -> PreparedKeys | None:
    """Return the files of `message_keys` that the tasks have written; None if there are none."""
    messages = frozenset(row.path for row in manifest if row.path and row.table == "messages")
    files = [row.data_file for row in manifest if row.path and row.table == "message_keys"]
    return PreparedKeys(messages, erasure, files) if files else None


def _update_following_tables(
    config: Config,
    stores: Sequence[Store],
    runner: Runner,
    problems: Sequence[str],
    manifest: Sequence[ManifestRow] = (),
    erasure: int = 0,
) -> FollowedTables:
    """Update the tables that are derived from `messages`, and return the results with all problems so far."""
    if not config.keys:
        return replace(NOTHING_FOLLOWED, problems=problems)
    prepared = _prepared_key_files(manifest, erasure)
    without_roles = [row.path for row in manifest if not row.may_have_roles]
    followed = follow_tables(
        config.lake,
        stores,
        runner,
        updates_edges=config.edges,
        prepared_keys=prepared,
        files_without_roles=without_roles,
    )
    return replace(followed, problems=[*problems, *followed.problems])


def _update_hbase(config: Config, runner: Runner) -> list[TableUpdate]:
    """Write the new messages to HBase, and return the result; nothing if there is no HBase table to update."""
    lake = config.lake
    if config.hbase is None or not DeltaTable.is_deltatable(lake.uri("messages"), lake.storage_options):
        return []
    from commitlake.connectors.hbase.table_update import follow_messages  # noqa: PLC0415 (happybase, only where it is wanted)

    for attempt in range(MAX_TRIES):
        try:
            put = follow_messages(runner, lake, config.hbase)
        except ConcurrentFollowError:  # another run is putting the same rows; then continue with the rest
            time.sleep(backoff_seconds(attempt))
        else:
            return [TableUpdate(HBASE, put.version, put.rows, put.seconds)]
    return [TableUpdate(HBASE, is_unfinished=True)]


def _commit_run(
    config: Config,
    work: ArchiveWork,
    manifest: Sequence[ManifestRow],
    judged_run: JudgedRun,
    configuration: Mapping[str, DataFile],
    started_at: datetime.datetime,
) -> ArchiveCommit:
    single_files = {**judged_run.files, **configuration}
    files: dict[str, list[DataFile]] = defaultdict(list, {table: [file] for table, file in single_files.items()})
    for row in manifest:
        if row.path:
            files[row.table].append(row.data_file)
    messages = files.pop("messages", [])
    files.pop("message_keys", None)  # that table has the keys of earlier versions of `messages` first
    quarantined, gaps = _count_refused_rows(manifest)
    counts = RunCounts(started_at.isoformat(), sum(file.rows for file in messages), quarantined, gaps)
    commit = replace(work.commit.with_results(counts, files), bodies=bodies_root(config.lake))
    commit = replace(commit, masks=None if config.masks is None else config.masks.serialize_rules())
    commit = commit_run(config.lake, messages, commit, work.previous_progress)
    # Only after the commit: a refused one must not move the ends.
    if judged_run.report is not None:
        config.queue_ends.finish_commit(commit.ranges, judged_run.incomplete)
    return commit


def _count_refused_rows(manifest: Sequence[ManifestRow]) -> tuple[int, int]:
    """Return how many rows a run's tasks wrote for `quarantine` and for `gaps`."""
    counts = [counts for row in manifest for counts in row.refusal_counts.values()]
    return sum(count.quarantined_row_count for count in counts), sum(count.missing_ranges for count in counts)


def _losses_in_manifest(manifest: Sequence[ManifestRow], config: Config) -> Losses:
    return make_losses(config, *_count_refused_rows(manifest))


def make_losses(config: Config, quarantined_count: int, gap_count: int) -> Losses:
    """Return how many damaged ranges and gaps a run has found, and whether its settings accept them."""
    return Losses(
        quarantined_count, gap_count, config.on_corrupt is OnBadRange.ACCEPT, config.on_gap is OnBadRange.ACCEPT
    )


def _check_gaps(parts: Sequence[Part], on_gap: OnBadRange) -> None:
    """Raise an error if log segments are missing and the settings do not allow it, before any record is read."""
    missing = [part for part in parts if isinstance(part, Split) and part.missing]
    if missing and on_gap is OnBadRange.FAIL:
        first = missing[0]
        raise CommitLakeError(
            f"{first.broker}: the segment {first.path} with the physical offsets {first.start} to {first.end} is "
            f"missing, one of {format_count(len(missing), 'gap')} in all. Nothing was archived; '--on-gap record' "
            "archives what is there",
            exit_code=ExitCode.DAMAGE,
        )


def _check_refused_ranges(manifest: Sequence[ManifestRow], config: Config) -> None:
    """Raise an error, before the commit, if the tasks have found damage or gaps that the settings do not allow."""
    quarantined, gaps = _count_refused_rows(manifest)
    for on_refusal, count, option in (
        (config.on_corrupt, quarantined, "--on-corrupt quarantine"),
        (config.on_gap, gaps, "--on-gap record"),
    ):
        if count and on_refusal is OnBadRange.FAIL:
            first = next(row.first_refused for row in manifest if row.first_refused)
            raise CommitLakeError(
                f"{first}; there are {count} such ranges in all. Nothing was archived; '{option}' records them and "
                "archives everything else",
                exit_code=ExitCode.DAMAGE,
            )
