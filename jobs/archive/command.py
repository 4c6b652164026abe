"""Archive broker logs: every record's metadata into the lake's table `messages`, every body into a pack.

    commitlake archive --store /data/rocketmq/store --lake /data/lake

Reads the stores' logs, RocketMQ's or JMQ's, from the end of the last run to the last complete record. Tasks write packs
and data files, which one Delta commit adds to `messages` together with the new end offsets; the other tables are
updated after that. If a run is killed before its commit, it leaves only files that no table names, and the next run
starts from the same offsets. If two runs read the same store at once, one commits, and the other reports it.

    commitlake archive --from-broker 10.0.0.1:9876 --lake /data/lake

Pulls the same messages from brokers whose files are not accessible: from the queue offsets that the last run committed
together with its rows, up to the end of each log at the start of the run. It sends requests like any client, for the
group TOOLS_CONSUMER, whose offsets it never changes. It gets all messages that are in a queue, including those of the
system's topics, but no messages of deleted topics.

Before the commit, suites of expectations check the run's profile; a critical one that is not met stops the run.

Exit codes: 0; 1 if a broker does not answer; 2 for a wrong store or lake; 3 if data is damaged or missing and no option
allows it, or if an expectation stopped the run; 4 if a store is not the one that was archived, or if other runs over it
committed first ten times.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from commitlake.connectors.runtime.memory import use_system_allocator
from commitlake.connectors.storage.uris import is_uri
from commitlake.jobs.archive.arguments import ArchiveOptions
from commitlake.jobs.arguments.runner import refuse_workers_on_spark
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.missing_packages import require_package
from commitlake.jobs.cli.process import runs_in_own_process
from commitlake.jobs.cli.python_garbage_collection import garbage_collection_off
from commitlake.schemas.errors import ExitCode

if TYPE_CHECKING:
    from commitlake.pipelines.quality.judge_subprocess import JudgeSubprocess

DESCRIPTION = (
    "Copy new messages from broker stores into the lake: one row in the table messages for every record of every topic "
    "and kind, and its body in a pack. Run it as often as you like: each run continues where the last one ended, and "
    "no message is archived twice."
)
EXAMPLES = (
    ("archive --store /data/rocketmq/store --lake /data/lake", "one broker"),
    ("archive --store /data/rocketmq/store --lake /data/lake --spark", "on Spark, for stores of many gigabytes"),
    (
        "archive --store '/mnt/brokers/{broker}/store' --lake /data/lake",
        "all brokers of a cluster, named by their folders",
    ),
    ("archive --store /data/rocketmq/store --broker broker-a --lake /data/lake", "archive a store under a given name"),
    (
        "archive --store /data/rocketmq/store --lake /data/lake --on-gap record",
        "continue although some segments are known to be missing",
    ),
    (
        "archive --store /data/rocketmq/store --lake /data/lake --html run.html",
        "also write an HTML page about the run, even if it fails",
    ),
    (
        "archive --store /data/rocketmq/store --lake /data/lake --bodies s3://archive/bodies",
        "store bodies in an object store",
    ),
    (
        "archive --store /data/rocketmq/store --lake /data/lake --follow --trigger 10s",
        "archive messages as they arrive",
    ),
    (
        "archive --lake /data/lake --backfill topic_minutes",
        "compute topic_minutes for messages that earlier versions archived",
    ),
    ("archive --lake /data/lake --backfill edges", "compute edges for messages that earlier versions archived"),
    (
        "archive --store /data/rocketmq/store --lake /data/lake --hbase hbase-thrift:9090",
        "also write the messages to HBase",
    ),
    (
        "archive --store /data/rocketmq/store --lake /data/lake --mask keys=hash --mask body.customer.email=null",
        "mask sensitive fields; COMMITLAKE_MASK_KEY holds the key of the hashes",
    ),
    (
        "archive --from-broker 10.0.0.1:9876 --lake /data/lake",
        "pull from all brokers of a cluster, without access to their files",
    ),
    (
        "archive --from-broker 10.0.0.1:9876 --broker broker-a --topic orders --max-rate 20MiB/s --lake /data/lake",
        "pull one topic of one broker at a limited rate",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Archive(ArchiveOptions):
    """The command `archive`, which copies new messages from broker stores into a lake."""

    NAME = "archive"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    def run(self) -> ExitCode:
        """Check the options, and archive new messages once or continuously."""
        if self.backfill is not None:
            from commitlake.jobs.archive.backfill import backfill_table

            return backfill_table(self)
        return _check_and_archive(self)


def _check_and_archive(command: ArchiveOptions) -> ExitCode:
    if command.store is None and command.from_broker is None:
        raise JobError(
            "one of --store and --from-broker is required, found none of them",
            "Name the store's folder, or --from-broker",
        )
    if command.is_on_spark:
        refuse_workers_on_spark(command)
        require_package("pyspark", "archive --spark")
    elif command.follows_store:
        raise JobError("--follow and --available-now need Spark, and cannot be used with --local", "leave out --local")
    if not command.no_quality:
        require_package("great_expectations", "archive without --no-quality")
    if command.hbase is not None:
        require_package("happybase", "--hbase")
    if command.is_on_spark or command.no_quality:
        return _run_archive(command, None)
    from commitlake.pipelines.quality.judge_subprocess import JudgeSubprocess

    with JudgeSubprocess() as judge:
        if _is_new_folder(command.lake):
            judge.start()  # load both processes in parallel, because loading is most of a short run
        return _run_archive(command, judge)


def _is_new_folder(lake: str) -> bool:
    """Return True if the lake is a folder that does not exist yet, so that all messages of a store are new."""
    return not is_uri(lake) and not Path(lake).exists()


def _run_archive(command: ArchiveOptions, quality_judge: JudgeSubprocess | None) -> ExitCode:
    if not command.is_on_spark and runs_in_own_process():
        use_system_allocator()  # before Arrow is loaded
    with garbage_collection_off():
        from commitlake.jobs.archive.run import run_archive

    return run_archive(command, quality_judge)


build_parser, main = Archive.parser, Archive.main
