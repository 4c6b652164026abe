"""Archive broker logs: every record's metadata into the lake's table `messages`, every body into a pack.

    commitlake archive --store /data/rocketmq/store --lake /data/lake

Reads the stores' CommitLogs from where the last run ended to the last whole record. Tasks write packs and data files,
which one Delta commit adds to `messages` together with the new end offsets; the other tables follow. A run that is
killed leaves a whole commit or none, and in that case files that no table knows of; run again, it goes on from there.
Of two runs at once over the same store one commits, and the other says so.

Exit codes: 0; 2 for a wrong store or lake; 3 where something was damaged or gone, unless the option for it says that it
is to be written down; 4 where another run was first, or a store is not the one that was archived.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from connectors.archive.run import MIB, Config, OnRefusal, Result, run_archive
from connectors.archive.work import find_work
from connectors.lake.paths import LakePaths
from jobs.archive_summary import size_text, summary
from jobs.command import ExitCode, JobError, job_parser, run_job
from jobs.progress import spark_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSION = importlib.metadata.version("commitlake")
DESCRIPTION = (
    "Take what is new in broker stores into the lake: a row in the table messages for every record, of every topic and "
    "kind, and its body in a pack. Run it as often as you like: each run goes on where the last one ended, and nothing "
    "is taken twice."
)
EXAMPLES = (
    ("archive --store /data/rocketmq/store --lake /data/lake", "one broker"),
    ("archive --store '/mnt/brokers/{broker}/store' --lake /data/lake", "a cluster, named by its folders"),
    ("archive --store /data/rocketmq/store --broker broker-a --lake /data/lake", "a name of its own"),
    ("archive --store /data/rocketmq/store --lake /data/lake --on-gap record", "some segments are known to be gone"),
)


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
    corrupt_help = (
        "bytes that are no intact record: fail (archive nothing, exit 3) or quarantine (write them down, archive all "
        "else, exit 0); where not given, the same, but exit 3"
    )
    parser.add_argument("--on-corrupt", choices=("fail", "quarantine"), help=corrupt_help)
    gap_help = (
        "segments that are gone: fail (archive nothing, exit 3) or record (write them down, archive all else, exit 0); "
        "where not given, the same, but exit 3"
    )
    parser.add_argument("--on-gap", choices=("fail", "record"), help=gap_help)
    return parser


def job(arguments: argparse.Namespace) -> ExitCode:
    """Find out what there is to do, start Spark only where there is something, and tell the result."""
    if arguments.partition_mib < 1:
        raise JobError(f"--partition-mib: expected at least 1, found {arguments.partition_mib}")
    config = Config(
        arguments.store,
        arguments.lake,
        arguments.broker,
        arguments.partition_mib * MIB,
        OnRefusal.FAIL if arguments.on_corrupt == "fail" else OnRefusal.KEEP,
        OnRefusal.FAIL if arguments.on_gap == "fail" else OnRefusal.KEEP,
        VERSION,
    )
    work = find_work(config.store, config.broker, LakePaths(config.lake))
    if work.is_nothing:
        result = Result(0, work.snapshot.ranges)
    else:
        from connectors.spark_session import get_session

        result = run_archive(get_session("archive"), config, work, partial(archive_progress, quiet=arguments.quiet))
    if not arguments.quiet:
        print("\n".join(summary(result)), file=sys.stderr)
    unexpected = (result.quarantined and not arguments.on_corrupt) or (result.gaps and not arguments.on_gap)
    return ExitCode.DAMAGE if unexpected else ExitCode.OK


def archive_progress(spark: SparkSession, log_bytes: int, *, quiet: bool) -> AbstractContextManager[None]:
    """The progress of a run's tasks."""
    return spark_progress(spark, f"archiving {size_text(log_bytes)}", quiet=quiet)


def main(argv: Sequence[str] | None = None) -> int:
    """`commitlake archive`."""
    return run_job(build_parser(), job, argv)
