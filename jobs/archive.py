"""Archive broker logs: every record's metadata into the lake's table `messages`.

    commitlake archive --store /data/rocketmq/store --lake /data/lake

Reads the stores' CommitLogs from where the last run ended to the last whole record. Writes `messages` in one Delta
commit that carries the new end offsets with it, then `quarantine` (where something could not be read) and
`archive_runs`. A run that is killed leaves either nothing or a whole commit; run again, it goes on from there. Two
runs at once: one commits, the other says so. Exit codes: 0; 2 for a wrong store or lake; 3 where something was
quarantined; 4 where another run was first, or the store is not the one that was archived.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from connectors.commitlog.continuity import check_continuity, record_digest
from connectors.commitlog.plan import Snapshot, StoreRange, take_snapshot
from connectors.commitlog.stores import Store, find_stores
from connectors.lake.archive_log import (
    ArchiveCommit,
    CommittedRange,
    LastRecord,
    StoreProgress,
    commits_after,
    read_last_commit,
)
from connectors.lake.paths import LakePaths
from connectors.lake.writer import ArchiveRun, append_messages, append_quarantine, append_run, last_finished_run
from jobs.archive_summary import size_text, store_lines
from jobs.command import ExitCode, JobError, job_parser, run_job
from jobs.progress import spark_progress
from pipelines.archive import has_message, is_refused, to_messages, to_quarantine

VERSION = importlib.metadata.version("commitlake")

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Config:
    """What one run archives.

    Attributes:
        store: store folder, glob or comma-separated list, as the source's `path`.
        lake: folder of the lake; made where it is not there.
        broker: the store's name, where the path does not tell it.
        max_partition_bytes: log bytes that one task takes.
        quiet: no progress.
    """

    store: str
    lake: str
    broker: str | None = None
    max_partition_bytes: int = 256 * MIB
    quiet: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """What one run did; `sequence` is 0 where there was nothing new."""

    sequence: int
    ranges: Mapping[str, StoreRange]
    messages: int = 0
    refused: int = 0
    seconds: float = 0.0
    recovered: Sequence[int] = field(default=())

    @property
    def bytes(self) -> int:
        """Log bytes from first to last offset."""
        return sum(store_range.size for store_range in self.ranges.values())


def run(spark: SparkSession, config: Config) -> Result:
    """Archive what is new.

    Raises:
        CommitLogError: for a store that cannot be read, or is another than the one that was archived.
        LakeError: for a folder that is no lake.
        ConcurrentArchiveError: if another run has written meanwhile.
    """
    started = time.monotonic()
    started_at = datetime.datetime.now(datetime.UTC)
    lake = LakePaths(config.lake)
    lake.check_writable()
    stores = find_stores(config.store, config.broker)
    last = read_last_commit(lake.messages) or ArchiveCommit(0, "")
    recovered = _finish_earlier_runs(spark, config, stores, lake, last)
    snapshot = _take_snapshot(stores, last)
    if not snapshot.size:
        return Result(0, snapshot.ranges, seconds=time.monotonic() - started, recovered=recovered)
    commit = _next_commit(last, stores, snapshot)
    source = _read(spark, config, snapshot)
    observation = Observation(commit.run_id)
    observed = source.observe(
        observation,
        F.count_if(has_message()).alias("messages"),
        F.count_if(is_refused()).alias("refused"),
    )
    with spark_progress(spark, f"archiving {size_text(snapshot.size)}", quiet=config.quiet):
        append_messages(to_messages(observed), lake.messages, commit)
    counts = observation.get
    if counts["refused"]:
        _quarantine(spark, config, lake, snapshot, commit.sequence)
    _finish(lake, commit, started_at, counts["messages"], counts["refused"], snapshot.size, recovered=False)
    return Result(
        commit.sequence, snapshot.ranges, counts["messages"], counts["refused"], time.monotonic() - started, recovered
    )


def _take_snapshot(stores: Sequence[Store], last: ArchiveCommit) -> Snapshot:
    """What is new in each store, once each is seen to be the one that was archived."""
    for store in stores:
        progress = last.stores.get(store.broker)
        if progress is not None and progress.last_record is not None:
            record = progress.last_record
            check_continuity(store, progress.end, record.physical_offset, record.size, record.digest)
    return take_snapshot(stores, {broker: progress.end for broker, progress in last.stores.items()})


def _next_commit(last: ArchiveCommit, stores: Sequence[Store], snapshot: Snapshot) -> ArchiveCommit:
    progress = dict(last.stores)
    for store in stores:
        store_range = snapshot.ranges[store.broker]
        if store_range.size:
            progress[store.broker] = _progress_after(store, store_range)
    ranges = {
        broker: CommittedRange(store_range.start, store_range.end)
        for broker, store_range in snapshot.ranges.items()
        if store_range.size
    }
    return ArchiveCommit(last.sequence + 1, uuid.uuid4().hex, progress, ranges)


def _progress_after(store: Store, store_range: StoreRange) -> StoreProgress:
    found = None if store_range.last_record is None else record_digest(store, store_range.last_record)
    if found is None or store_range.last_record is None:
        return StoreProgress(store_range.end)
    size, digest = found
    return StoreProgress(store_range.end, LastRecord(store_range.last_record, size, digest))


def _read(spark: SparkSession, config: Config, snapshot: Snapshot) -> DataFrame:
    reader = spark.read.format("commitlog").option("mode", "PERMISSIVE").option("snapshot", snapshot.to_json())
    if config.broker is not None:
        reader = reader.option("broker", config.broker)
    return reader.option("maxPartitionBytes", str(config.max_partition_bytes)).load(config.store)


def _quarantine(spark: SparkSession, config: Config, lake: LakePaths, snapshot: Snapshot, sequence: int) -> None:
    """Write a run's bad ranges; they are few, and the log is read a second time for them rather than kept in memory."""
    refused = to_quarantine(_read(spark, config, snapshot), sequence=sequence, parser_version=VERSION)
    append_quarantine(refused, lake.quarantine, sequence)


def _finish(
    lake: LakePaths,
    commit: ArchiveCommit,
    started_at: datetime.datetime,
    messages: int,
    refused: int,
    size: int,
    *,
    recovered: bool,
) -> None:
    finished_at = datetime.datetime.now(datetime.UTC)
    run_row = ArchiveRun(
        sequence=commit.sequence,
        run_id=commit.run_id,
        started_at=started_at,
        finished_at=finished_at,
        stores=len(commit.ranges),
        messages=messages,
        bytes=size,
        refused=refused,
        recovered=recovered,
        parser_version=VERSION,
    )
    append_run(run_row, lake.archive_runs)


def _finish_earlier_runs(
    spark: SparkSession, config: Config, stores: Sequence[Store], lake: LakePaths, last: ArchiveCommit
) -> list[int]:
    """Make good what runs left undone that were stopped between their commit and their end: their quarantine."""
    finished = last_finished_run(lake.archive_runs)
    if last.sequence == finished:
        return []
    known = {store.broker for store in stores}
    recovered = []
    for commit in commits_after(lake.messages, finished):
        if not commit.ranges.keys() <= known:
            continue  # a run over other stores: theirs will finish it
        snapshot = Snapshot({broker: StoreRange(part.start, part.end) for broker, part in commit.ranges.items()})
        counts = _read(spark, config, snapshot).agg(
            F.count_if(has_message()).alias("messages"), F.count_if(is_refused()).alias("refused")
        )
        messages, refused = counts.first() or (0, 0)
        if refused:
            _quarantine(spark, config, lake, snapshot, commit.sequence)
        now = datetime.datetime.now(datetime.UTC)
        _finish(lake, commit, now, messages, refused, snapshot.size, recovered=True)
        recovered.append(commit.sequence)
    return recovered


DESCRIPTION = (
    "Take what is new in broker stores into the lake: a row in the table messages for every record, of every topic and kind. "
    "Runs again as often as you like: each run goes on where the last one ended, and nothing is taken twice."
)
EXAMPLES = (
    ("archive --store /data/rocketmq/store --lake /data/lake", "one broker"),
    ("archive --store '/mnt/brokers/{broker}/store' --lake /data/lake", "a cluster, named by its folders"),
    ("archive --store /data/rocketmq/store --broker broker-a --lake /data/lake", "a name of its own"),
)


def build_parser() -> argparse.ArgumentParser:
    """The job's arguments."""
    parser = job_parser("archive", DESCRIPTION, EXAMPLES)
    parser.add_argument("--store", required=True, metavar="PATH",
                        help="store folder (the one that holds commitlog/), a glob, or several with commas between; "
                             "{broker} stands for the path component that names the broker")  # fmt: skip
    parser.add_argument("--lake", required=True, metavar="DIR", help="the lake's folder; made where it is not there")
    parser.add_argument("--broker", help="the store's name; the folder's where not given")
    parser.add_argument("--partition-mib", type=int, default=256, metavar="N",
                        help="log that one task takes, MiB (default: 256)")  # fmt: skip
    return parser


def job(arguments: argparse.Namespace) -> ExitCode:
    """Check what can be checked without Spark, run, and tell the result."""
    from connectors.spark_session import get_session

    if arguments.partition_mib < 1:
        raise JobError(f"--partition-mib: expected at least 1, found {arguments.partition_mib}")
    config = Config(arguments.store, arguments.lake, arguments.broker, arguments.partition_mib * MIB, arguments.quiet)
    LakePaths(config.lake).check_writable()
    find_stores(config.store, config.broker)
    result = run(get_session("archive"), config)
    if not arguments.quiet:
        print("\n".join(summary(result)), file=sys.stderr)
    return ExitCode.DAMAGE if result.refused else ExitCode.OK


def summary(result: Result) -> list[str]:
    """What a run tells at its end."""
    lines = [f"run {sequence}, which had been stopped, is finished" for sequence in result.recovered]
    if not result.sequence:
        return [*lines, f"nothing new in {len(result.ranges)} stores", *store_lines(dict(result.ranges))]
    rate = f"{result.messages / result.seconds:,.0f} messages/s, {size_text(result.bytes / result.seconds)}/s"
    lines.append(
        f"run {result.sequence}: {result.messages:,} messages from {size_text(result.bytes)} in {result.seconds:.1f} s ({rate})"
    )
    lines += store_lines(dict(result.ranges))
    if result.refused:
        lines.append(f"  {result.refused} ranges or records could not be read as they should: see the table quarantine")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """`commitlake archive`."""
    return run_job(build_parser(), job, argv)
