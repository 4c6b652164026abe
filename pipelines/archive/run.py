"""One archive run, from what is new in the stores to tables that all tell of it.

    work      stores, ranges, how far the lake has come            work.py
    tasks     packs, and data files that no table knows of yet     task.py
    staged    the tasks' profiles, on their way to the driver      staged.py
    quality   the suites judge what the tasks have seen            judging.py
    commit    data files and end offsets in one Delta commit       connectors.lake.committer
    follow    what the commit names for the other tables           connectors.lake.follower
    keys      message_keys, from what messages has new             pipelines.message_keys
    edges     edges, likewise                                      pipelines.edges
    hbase     the same in HBase, where it is wanted                connectors.hbase

Whatever stops a run before its commit leaves files that nobody reads; whatever stops it behind the commit is made good
by the next run. The nightly job and the stream run this same function.
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

from commitlake.connectors.formats.engine.plan import Snapshot, StoreRange
from commitlake.connectors.formats.engine.splits import Split
from commitlake.connectors.formats.registry import ANY_FORMAT, FormatChoice
from commitlake.connectors.hbase.errors import ConcurrentFollowError, HBaseError
from commitlake.connectors.hbase.followed import Followed as FollowedInHBase
from commitlake.connectors.lake.archive_log import ArchiveCommit, RunCounts
from commitlake.connectors.lake.backoff import MAX_TRIES, wait_seconds
from commitlake.connectors.lake.committer import commit_run, open_for_append
from commitlake.connectors.lake.data_files import DataFile
from commitlake.connectors.lake.delta import storage_options
from commitlake.connectors.lake.erasures import read_erased_places
from commitlake.connectors.lake.follower import finish_runs
from commitlake.connectors.lake.manifest import ManifestRow
from commitlake.connectors.lake.packs.location import pack_location
from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.connectors.runtime.runner import Runner
from commitlake.pipelines.archive.following import NOTHING_FOLLOWED, FollowedTables, follow_tables
from commitlake.pipelines.archive.judging import Judged, judge_run
from commitlake.pipelines.archive.parts import Part
from commitlake.pipelines.archive.places import bodies_root, check_bodies, check_same_root
from commitlake.pipelines.archive.shown import RunPage, ShownRun
from commitlake.pipelines.archive.staged import staging
from commitlake.pipelines.archive.store_config import write_config_changes
from commitlake.pipelines.archive.task import ArchiveTasks
from commitlake.pipelines.archive.work import ArchiveWork, find_work
from commitlake.pipelines.masking.archiving import MASKED, ArchiveMasks, check_masks
from commitlake.pipelines.quality.loading import prepare
from commitlake.pipelines.quality.profile_judge import BeginJudging
from commitlake.pipelines.quality.verdict import Losses, RunVerdict
from commitlake.schemas.errors import CommitLakeError, ExitCode

if TYPE_CHECKING:
    from commitlake.connectors.hbase.options import Options
    from commitlake.pipelines.archive.from_broker.source import BrokerSource

MIB = 1 << 20
NOTHING_NEW = RunVerdict("nothing new")
_NOTHING_IN_HBASE = FollowedInHBase(-1, 0, 0, 0, 0.0)
_HBASE_BEHIND = FollowedInHBase(-1, 0, 0, 0, 0.0)
Progress = Callable[[Runner, int], AbstractContextManager[Callable[[int], None]]]


class OnRefusal(StrEnum):
    """The reaction of a run to a range that it cannot read.

    FAIL: the lake stays as it was. KEEP: it is written down, everything else is archived, and the run's verdict is
    damage. ACCEPT: the same, and it is no damage.
    """

    FAIL = "fail"
    KEEP = "keep"
    ACCEPT = "accept"


class RefusedError(CommitLakeError):
    """The run found damage or a gap, and was told to fail then; the lake is unchanged."""

    exit_code = ExitCode.DAMAGE


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of one run.

    Attributes:
        store: store folder, glob or comma-separated list, as the source's `path`.
        lake: folder of the lake, or `s3://bucket/prefix`; made where it is not there.
        bodies: root of the packs; in the lake where not given.
        bodies_moved: whether all packs were moved there from where they were.
        broker: the store's name, where the path does not tell it.
        layout: which stores of the path are meant.
        max_partition_bytes: log bytes whose bodies go into one pack; a task takes several of them.
        on_corrupt: what to do about ranges that hold no intact record.
        on_gap: what to do about segments that are not there.
        parser_version: for the rows of what could not be read.
        keys: whether `message_keys`, and `edges` after it, follow at once.
        edges: whether `edges` follows at once, where the lake has it, or is new.
        quality: whether the suites judge the run before its commit; the audit needs what they judge.
        hbase: where HBase follows; None where it does not.
        page: where a run is shown at its end, or when its judgement stops it; nowhere where not given.
        judge: begins to judge a run's profile; this process judges where not given.
        source: the brokers to pull from, in place of `store`; None where files are read.
        masks: by which messages are masked; None for none.
    """

    store: str
    lake: str
    broker: str | None = None
    layout: FormatChoice = ANY_FORMAT
    bodies: str | None = None
    bodies_moved: bool = False
    max_partition_bytes: int = 32 * MIB
    on_corrupt: OnRefusal = OnRefusal.KEEP
    on_gap: OnRefusal = OnRefusal.KEEP
    parser_version: str = ""
    keys: bool = True
    edges: bool = True
    quality: bool = True
    hbase: Options | None = None
    page: RunPage | None = None
    judge: BeginJudging | None = None
    source: BrokerSource | None = None
    masks: ArchiveMasks | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one run; `sequence` is 0 if there was nothing new.

    Attributes:
        sequence: of the commit.
        ranges: what was new in each store.
        messages: rows added to `messages`.
        quarantined: rows added to `quarantine`.
        gaps: rows added to `gaps`.
        metadata_bytes: of data files.
        pack_bytes: of packs.
        seconds: all of it.
        warnings: sentences on expectations that were not met, and did not stop the run.
        verdict: on the run.
        hbase: messages put into HBase.
        hbase_seconds: how much of the time that took.
        keys: rows added to `message_keys`.
        keys_seconds: how much of the time that took.
        edges: rows written to `edges`.
        edges_seconds: how much of the time that took.
        recovered: commits of earlier runs that this one made good.
        bytes_of_others: log bytes that were new when this run began, and that other runs have archived meanwhile.
        behind: what does not have all of this run yet, because other runs were first again and again.
        notes: sentences on what was pulled from brokers.
    """

    sequence: int
    ranges: Mapping[str, StoreRange]
    messages: int = 0
    quarantined: int = 0
    gaps: int = 0
    metadata_bytes: int = 0
    pack_bytes: int = 0
    seconds: float = 0.0
    warnings: Sequence[str] = field(default=())
    verdict: RunVerdict = NOTHING_NEW
    hbase: int = 0
    hbase_seconds: float = 0.0
    keys: int = 0
    keys_seconds: float = 0.0
    edges: int = 0
    edges_seconds: float = 0.0
    recovered: Sequence[int] = field(default=())
    bytes_of_others: int = 0
    behind: Sequence[str] = field(default=())
    notes: Sequence[str] = field(default=())

    @property
    def bytes(self) -> int:
        """Log bytes from first to last offset."""
        return sum(store_range.size for store_range in self.ranges.values())


def plan_work(config: Config, until: Snapshot | None = None, on_new: Callable[[], object] | None = None) -> ArchiveWork:
    """See how far the lake has come, and what there is beyond that.

    Args:
        config: what to archive.
        until: how far to go; up to what is there where not given. See `find_work` and `find_broker_work`.
        on_new: is called as soon as there seems to be something new.

    Raises:
        CommitLogError: for a store that cannot be read, or is another than the one that was archived.
        RocketMQError: if a broker cannot be asked.
        LakeError: for a folder that is no lake.
        MasksChangedError: for other masks than the lake's.
    """
    lake = LakePaths(config.lake)
    if config.source is not None:
        from commitlake.pipelines.archive.from_broker.planning import find_broker_work  # noqa: PLC0415 (of few runs)

        work: ArchiveWork = find_broker_work(config.source, lake, until, on_new)
    else:
        formats = config.layout.formats
        work = find_work(config.store, config.broker, lake, until=until, formats=formats, on_new=on_new)
    check_masks(work.last.masks, config.masks, is_new=not work.last.sequence)
    return work


def run_archive(
    runner: Runner, config: Config, work: ArchiveWork | None = None, progress: Progress | None = None
) -> Result:
    """Archive what is new.

    Args:
        runner: what runs the tasks.
        config: what to archive.
        work: what `find_work` has found, where it has been asked already, and `check_bodies` too.
        progress: shows how far the tasks are, while it is open. It gets the runner and the bytes of the log, and gives
            a function that is told how many bytes more are done.

    Raises:
        CommitLogError: for a store that cannot be read, or is another than the one that was archived.
        LakeError: for a folder that is no lake, or another place for bodies than the lake's.
        MasksChangedError: for other masks than the lake's.
        RefusedError: for damage or a gap, where it was to fail.
        HBaseError: if HBase cannot follow; all else is done then, and the next run makes it good.
        CriticalQualityError: where a critical expectation was not met.
        ConcurrentArchiveError: if another run has taken the same stores meanwhile.
    """
    started = time.monotonic()
    lake = LakePaths(config.lake)
    if work is None:
        check_bodies(lake, config.bodies)
        work = plan_work(config)
    check_masks(work.last.masks, config.masks, is_new=not work.last.sequence)
    if not work.has_new:
        result = finish_earlier_runs(config, work, runner)
        put = _follow_hbase(lake, config, runner)
        behind = (*result.behind, *_behind(NOTHING_FOLLOWED, put))
        seconds = time.monotonic() - started
        return replace(result, hbase=put.rows, hbase_seconds=put.seconds, seconds=seconds, behind=behind)
    started_at = datetime.datetime.now(datetime.UTC)
    if not config.bodies_moved:
        check_same_root(work.last, bodies_root(lake, config.bodies))
    splits = work.splits(config.max_partition_bytes, runner.cores)
    _check_gaps(splits, config.on_gap)
    bodies = pack_location(config.bodies or lake.bodies)
    open_for_append(lake.messages)
    if config.quality and config.judge is None:
        prepare()
    ends = {broker: store.end for broker, store in work.started_from.items()}
    erased = read_erased_places(lake).beyond(ends)  # of a lake that was set back, and takes them once more
    tasks = ArchiveTasks(
        splits, lake, bodies, work.commit.run_id, config.parser_version, config.quality, erased, config.masks
    )
    with staging(lake, work.commit.run_id) as manifest:
        with progress(runner, work.snapshot.size) if progress else nullcontext(_say_nothing) as advance:
            manifest.extend(tasks.run_all(runner, advance))
        outcome = work.outcome(manifest, lake, config.parser_version)
        work = replace(work, commit=outcome.commit)
        manifest.extend(outcome.manifest)
        _check_refused(manifest, config)
        losses = _losses(manifest, config)
        is_judged = config.quality and bool(splits)
        judged = judge_run(lake, work, manifest, config.page, losses, config.judge) if is_judged else Judged()
    config_file = write_config_changes(lake, work.stores, work.commit.run_id, started_at)
    files = {**judged.files, **({} if config_file is None else {"store_config": config_file})}
    commit = _commit(config, work, manifest, files, started_at)
    finish_runs(lake, commit.run_id, config.parser_version)
    followed = _follow(lake, config, runner)
    assert commit.counts is not None
    verdict = losses.verdict(judged.report)
    shown = ShownRun(
        lake,
        commit.run_id,
        verdict,
        commit.ranges,
        judged.report,
        judged.figures,
        sequence=commit.sequence,
        counts=commit.counts,
        metadata_bytes=sum(row.size for row in manifest if row.table == "messages"),
        pack_bytes=sum(row.pack_bytes for row in manifest),
        started_at=started_at,
        seconds=time.monotonic() - started,
    )
    try:
        put = _follow_hbase(lake, config, runner)
    except HBaseError:
        _show(config, replace(shown, verdict=verdict.without("HBase")))
        raise
    _show(config, replace(shown, seconds=time.monotonic() - started))
    return Result(
        sequence=commit.sequence,
        ranges=work.snapshot.ranges,
        messages=commit.counts.messages,
        quarantined=commit.counts.quarantined,
        gaps=commit.counts.gaps,
        metadata_bytes=shown.metadata_bytes,
        pack_bytes=shown.pack_bytes,
        seconds=time.monotonic() - started,
        warnings=judged.warnings,
        verdict=verdict,
        hbase=put.rows,
        hbase_seconds=put.seconds,
        keys=followed.keys.rows,
        keys_seconds=followed.keys.seconds,
        edges=followed.edges.rows,
        edges_seconds=followed.edges.seconds,
        recovered=[commit.sequence for commit in work.unfinished],
        behind=_behind(followed, put),
        notes=[*outcome.notes, *_left_out(manifest), *followed.notes],
    )


def _left_out(manifest: Sequence[ManifestRow]) -> list[str]:
    count = sum(row.left_out for row in manifest)
    return [f"{count:,} bodies could not be masked, and were left out (property {MASKED})"] if count else []


def _show(config: Config, run: ShownRun) -> None:
    if config.page is not None:
        config.page.show(run)


def finish_earlier_runs(config: Config, work: ArchiveWork, runner: Runner = HERE) -> Result:
    """Do what runs that were stopped have left undone: the other tables, and the keys of messages.

    Args:
        config: as for `run_archive`.
        work: from `find_work`, with nothing new in any store.
        runner: what reads and writes many keys.

    Returns:
        A result without a run of its own.
    """
    lake = LakePaths(config.lake)
    if work.unfinished:
        finish_runs(lake, work.commit.run_id, config.parser_version)
    # Also without an unfinished run: it may have been stopped when only its keys were missing.
    followed = _follow(lake, config, runner) if work.last.sequence else NOTHING_FOLLOWED
    return Result(
        0,
        work.snapshot.ranges,
        keys=followed.keys.rows,
        keys_seconds=followed.keys.seconds,
        edges=followed.edges.rows,
        edges_seconds=followed.edges.seconds,
        recovered=[commit.sequence for commit in work.unfinished],
        behind=_behind(followed, _NOTHING_IN_HBASE),
    )


def _say_nothing(_: int) -> None:
    """Take what is told of progress, where nobody wants to know."""


def _follow(lake: LakePaths, config: Config, runner: Runner) -> FollowedTables:
    return follow_tables(lake, runner, with_edges=config.edges) if config.keys else NOTHING_FOLLOWED


def _behind(tables: FollowedTables, hbase: FollowedInHBase) -> list[str]:
    """Return the names of tables that are behind, because other runs were first."""
    found = {
        "message_keys": tables.keys.is_behind,
        "edges": tables.edges.is_behind,
        "HBase": hbase is _HBASE_BEHIND,
    }
    return [name for name, is_behind in found.items() if is_behind]


def _follow_hbase(lake: LakePaths, config: Config, runner: Runner) -> FollowedInHBase:
    options = storage_options(lake.messages, lake.s3)
    if config.hbase is None or not DeltaTable.is_deltatable(lake.messages, options):
        return _NOTHING_IN_HBASE
    from commitlake.connectors.hbase.follower import follow  # noqa: PLC0415 (happybase, only where it is wanted)

    for attempt in range(MAX_TRIES):
        try:
            return follow(runner, lake.messages, config.hbase, storage_options=options)
        except ConcurrentFollowError:  # another run's, which puts the same: what it leaves is done now
            time.sleep(wait_seconds(attempt))
    return _HBASE_BEHIND


def _commit(
    config: Config,
    work: ArchiveWork,
    manifest: Sequence[ManifestRow],
    single_files: Mapping[str, DataFile],
    started_at: datetime.datetime,
) -> ArchiveCommit:
    files: dict[str, list[DataFile]] = defaultdict(list, {table: [file] for table, file in single_files.items()})
    for row in manifest:
        if row.path:
            files[row.table].append(row.data_file)
    messages = files.pop("messages", [])
    quarantined, gaps = _refused(manifest)
    counts = RunCounts(started_at.isoformat(), sum(file.rows for file in messages), quarantined, gaps)
    lake = LakePaths(config.lake)
    commit = replace(work.commit.with_written(counts, files), bodies=bodies_root(lake, config.bodies))
    commit = replace(commit, masks=None if config.masks is None else config.masks.to_text())
    return commit_run(lake.messages, messages, commit, work.started_from)


def _refused(manifest: Sequence[ManifestRow]) -> tuple[int, int]:
    """Return the numbers of rows for `quarantine` and `gaps`."""
    counts = [counts for row in manifest for counts in row.refusal_counts.values()]
    return sum(count.quarantined for count in counts), sum(count.missing_ranges for count in counts)


def _losses(manifest: Sequence[ManifestRow], config: Config) -> Losses:
    quarantined, gaps = _refused(manifest)
    return Losses(quarantined, gaps, config.on_corrupt is OnRefusal.ACCEPT, config.on_gap is OnRefusal.ACCEPT)


def _check_gaps(parts: Sequence[Part], on_gap: OnRefusal) -> None:
    """Refuse a gap that shows before anything is read."""
    missing = [part for part in parts if isinstance(part, Split) and part.missing]
    if missing and on_gap is OnRefusal.FAIL:
        first = missing[0]
        raise RefusedError(
            f"{first.broker}: physical offsets {first.start} to {first.end} are gone, {len(missing)} gaps in all: "
            f"expected a segment {first.path}. Nothing was archived; '--on-gap record' archives what is there"
        )


def _check_refused(manifest: Sequence[ManifestRow], config: Config) -> None:
    """Refuse what only the tasks have seen, before it is committed."""
    quarantined, gaps = _refused(manifest)
    for on_refusal, count, option in (
        (config.on_corrupt, quarantined, "--on-corrupt quarantine"),
        (config.on_gap, gaps, "--on-gap record"),
    ):
        if count and on_refusal is OnRefusal.FAIL:
            first = next(row.first_refused for row in manifest if row.first_refused)
            raise RefusedError(
                f"{first}; {count} such ranges in all. Nothing was archived; '{option}' writes them down and archives "
                "everything else"
            )
