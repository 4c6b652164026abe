"""Archive broker logs: every record's metadata into the lake's table `messages`, every body into a pack.

    commitlake archive --store /data/rocketmq/store --lake /data/lake

Reads the stores' CommitLogs from where the last run ended to the last whole record. Tasks write packs and data files,
which one Delta commit adds to `messages` together with the new end offsets; `quarantine` (where something could not be
read) and `archive_runs` follow. A run that is killed leaves a whole commit or none, and in that case files that no
table knows of; run again, it goes on from there. Two runs
at once: one commits, the other says so. Exit codes: 0; 2 for a wrong store or lake; 3 where something was quarantined;
4 where another run was first, or a store is not the one that was archived.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from connectors.archive.manifest import ManifestRow
from connectors.archive.task import ArchiveTasks
from connectors.commitlog.plan import Snapshot, StoreRange, plan_splits
from connectors.lake.archive_log import ArchiveCommit
from connectors.lake.committer import check_sequence, commit_messages, open_for_append
from connectors.lake.follower import ArchiveRun, append_quarantine, append_run
from connectors.lake.paths import LakePaths
from jobs.archive_summary import size_text, store_lines
from jobs.archive_work import ArchiveWork, find_work, snapshot_of
from jobs.command import ExitCode, JobError, job_parser, run_job
from jobs.progress import spark_progress
from pipelines.archive import has_message, is_refused, to_quarantine

VERSION = importlib.metadata.version("commitlake")
MIB = 1 << 20
DESCRIPTION = (
    "Take what is new in broker stores into the lake: a row in the table messages for every record, of every topic and "
    "kind, and its body in a pack. Run it as often as you like: each run goes on where the last one ended, and nothing "
    "is taken twice."
)
EXAMPLES = (
    ("archive --store /data/rocketmq/store --lake /data/lake", "one broker"),
    ("archive --store '/mnt/brokers/{broker}/store' --lake /data/lake", "a cluster, named by its folders"),
    ("archive --store /data/rocketmq/store --broker broker-a --lake /data/lake", "a name of its own"),
)


@dataclass(frozen=True, slots=True)
class Config:
    """What one run archives.

    Attributes:
        store: store folder, glob or comma-separated list, as the source's `path`.
        lake: folder of the lake; made where it is not there.
        broker: the store's name, where the path does not tell it.
        max_partition_bytes: log bytes whose bodies go into one pack; a task takes several of them.
        quiet: no progress.
    """

    store: str
    lake: str
    broker: str | None = None
    max_partition_bytes: int = 32 * MIB
    quiet: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """What one run did; `sequence` is 0 where there was nothing new."""

    sequence: int
    ranges: Mapping[str, StoreRange]
    messages: int = 0
    refused: int = 0
    metadata_bytes: int = 0
    pack_bytes: int = 0
    seconds: float = 0.0
    recovered: Sequence[int] = field(default=())

    @property
    def bytes(self) -> int:
        """Log bytes from first to last offset."""
        return sum(store_range.size for store_range in self.ranges.values())


@dataclass(frozen=True, slots=True)
class _Written:
    messages: int
    refused: int
    metadata_bytes: int
    pack_bytes: int


def run(spark: SparkSession, config: Config, work: ArchiveWork | None = None) -> Result:
    """Archive what is new.

    Args:
        spark: a session with Delta and the source `commitlog`.
        config: what to archive.
        work: what `find_work` has found, where it has been asked already.

    Raises:
        CommitLogError: for a store that cannot be read, or is another than the one that was archived.
        LakeError: for a folder that is no lake.
        ConcurrentArchiveError: if another run has written meanwhile.
    """
    started = time.monotonic()
    lake = LakePaths(config.lake)
    work = work or find_work(config.store, config.broker, lake)
    for commit in work.unfinished:
        _finish_earlier(spark, config, lake, commit)
    recovered = [commit.sequence for commit in work.unfinished]
    if not work.snapshot.size:
        return Result(0, work.snapshot.ranges, seconds=time.monotonic() - started, recovered=recovered)
    written = _commit(spark, config, lake, work)
    return Result(
        sequence=work.commit.sequence,
        ranges=work.snapshot.ranges,
        messages=written.messages,
        refused=written.refused,
        metadata_bytes=written.metadata_bytes,
        pack_bytes=written.pack_bytes,
        seconds=time.monotonic() - started,
        recovered=recovered,
    )


def _commit(spark: SparkSession, config: Config, lake: LakePaths, work: ArchiveWork) -> _Written:
    """Write the run: its packs and data files, the commit, and what follows it."""
    started_at = datetime.datetime.now(datetime.UTC)
    splits = [
        split
        for store in work.stores
        for split in plan_splits(store, work.snapshot.ranges[store.broker], config.max_partition_bytes)
    ]
    table = open_for_append(lake.messages)
    check_sequence(table, work.commit)
    tasks = ArchiveTasks(splits, lake.messages, lake.bodies, work.commit.run_id)
    with spark_progress(spark, f"archiving {size_text(work.snapshot.size)}", quiet=config.quiet):
        manifest = [ManifestRow(**row.asDict()) for row in tasks.dataframe(spark).collect()]
    commit_messages(table, [row.data_file for row in manifest if row.path], work.commit)
    written = _Written(
        messages=sum(row.rows for row in manifest),
        refused=sum(row.refused for row in manifest),
        metadata_bytes=sum(row.size for row in manifest),
        pack_bytes=sum(row.pack_bytes for row in manifest),
    )
    _follow(spark, config, lake, work.commit, started_at, (written.messages, written.refused), recovered=False)
    return written


def _finish_earlier(spark: SparkSession, config: Config, lake: LakePaths, commit: ArchiveCommit) -> None:
    """Make good what a run left undone that was stopped behind its commit."""
    started_at = datetime.datetime.now(datetime.UTC)
    counts = _read(spark, config, snapshot_of(commit)).agg(F.count_if(has_message()), F.count_if(is_refused())).first()
    assert counts is not None  # an aggregate without groups has one row
    _follow(spark, config, lake, commit, started_at, (counts[0], counts[1]), recovered=True)


def _follow(
    spark: SparkSession,
    config: Config,
    lake: LakePaths,
    commit: ArchiveCommit,
    started_at: datetime.datetime,
    counts: tuple[int, int],
    *,
    recovered: bool,
) -> None:
    """What comes after the commit, and may be done again: the quarantine, and the word that the run is finished.

    Bad ranges are few: the log is read a second time for them, rather than kept.
    """
    messages, refused = counts
    snapshot = snapshot_of(commit)
    if refused:
        source = _read(spark, config, snapshot)
        quarantine = to_quarantine(source, sequence=commit.sequence, parser_version=VERSION)
        append_quarantine(quarantine, lake.quarantine, commit.sequence)
    finished = ArchiveRun(
        sequence=commit.sequence,
        run_id=commit.run_id,
        started_at=started_at,
        finished_at=datetime.datetime.now(datetime.UTC),
        stores=len(commit.ranges),
        messages=messages,
        bytes=snapshot.size,
        refused=refused,
        recovered=recovered,
        parser_version=VERSION,
    )
    append_run(finished, lake.archive_runs)


def _read(spark: SparkSession, config: Config, snapshot: Snapshot) -> DataFrame:
    reader = spark.read.format("commitlog").option("mode", "PERMISSIVE").option("snapshot", snapshot.to_json())
    if config.broker is not None:
        reader = reader.option("broker", config.broker)
    return reader.option("maxPartitionBytes", str(config.max_partition_bytes)).load(config.store)


def build_parser() -> argparse.ArgumentParser:
    """The job's arguments."""
    parser = job_parser("archive", DESCRIPTION, EXAMPLES)
    store_help = (
        "store folder (the one that holds commitlog/), a glob, or several with commas between; {broker} stands for the "
        "path component that names the broker"
    )
    parser.add_argument("--store", required=True, metavar="PATH", help=store_help)
    parser.add_argument("--lake", required=True, metavar="DIR", help="the lake's folder; made where it is not there")
    parser.add_argument("--broker", help="the store's name; the folder's where not given")
    mib_help = "log whose bodies go into one pack, MiB (default: 32)"
    parser.add_argument("--partition-mib", type=int, default=32, metavar="N", help=mib_help)
    return parser


def job(arguments: argparse.Namespace) -> ExitCode:
    """Find out what there is to do, start Spark only where there is something, and tell the result."""
    if arguments.partition_mib < 1:
        raise JobError(f"--partition-mib: expected at least 1, found {arguments.partition_mib}")
    config = Config(arguments.store, arguments.lake, arguments.broker, arguments.partition_mib * MIB, arguments.quiet)
    work = find_work(config.store, config.broker, LakePaths(config.lake))
    if work.is_nothing:
        result = Result(0, work.snapshot.ranges)
    else:
        from connectors.spark_session import get_session

        result = run(get_session("archive"), config, work)
    if not arguments.quiet:
        print("\n".join(summary(result)), file=sys.stderr)
    return ExitCode.DAMAGE if result.refused else ExitCode.OK


def summary(result: Result) -> list[str]:
    """What a run tells at its end."""
    lines = [f"run {sequence}, which had been stopped, is finished" for sequence in result.recovered]
    stores = store_lines(result.ranges)
    if not result.sequence:
        return [*lines, f"nothing new in {len(result.ranges)} stores", *stores]
    rate = f"{result.messages / result.seconds:,.0f} messages/s, {size_text(result.bytes / result.seconds)}/s"
    done = f"{result.messages:,} messages from {size_text(result.bytes)} in {result.seconds:.1f} s ({rate})"
    sizes = f"  in the lake: metadata {size_text(result.metadata_bytes)}, bodies {size_text(result.pack_bytes)}"
    lines += [f"run {result.sequence}: {done}", sizes, *stores]
    if result.refused:
        lines.append(f"  {result.refused} ranges or records could not be read as they should: see the table quarantine")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """`commitlake archive`."""
    return run_job(build_parser(), job, argv)
