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

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commitlake.connectors.runtime.memory import use_system_memory
from commitlake.connectors.storage.uris import is_uri
from commitlake.jobs.archive.broker_arguments import add_broker_arguments, check_broker_arguments
from commitlake.jobs.cli.collector import collector_off
from commitlake.jobs.cli.command import JobError, job_parser, run_job
from commitlake.jobs.cli.durations import parse_duration
from commitlake.jobs.cli.evidence import EvidenceArgument
from commitlake.jobs.cli.html import HTML_HELP, HtmlArgument
from commitlake.jobs.cli.layouts import FOLDERS, LayoutArgument
from commitlake.jobs.cli.missing_packages import require
from commitlake.jobs.cli.once import Once
from commitlake.jobs.cli.options import add_options
from commitlake.jobs.cli.places import LakeArguments
from commitlake.jobs.cli.process import is_own_process
from commitlake.jobs.cli.runner import ThreadArguments, check_local_arguments
from commitlake.jobs.cli.store_arguments import file_size
from commitlake.schemas.errors import ExitCode

if TYPE_CHECKING:
    from commitlake.pipelines.quality.judge_process import JudgeProcess

DESCRIPTION = (
    "Copy new messages from broker stores into the lake: one row in the table messages for every record of every topic "
    "and kind, and its body in a pack. Run it as often as you like: each run continues where the last one ended, and "
    "no message is archived twice."
)
EXAMPLES = (
    ("archive --store /data/rocketmq/store --lake /data/lake", "one broker"),
    ("archive --store /data/rocketmq/store --lake /data/lake --local", "on this machine's cores, without Spark"),
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
        "archive --lake /data/lake --backfill topic_minutes --local",
        "compute topic_minutes for messages that earlier versions archived",
    ),
    ("archive --lake /data/lake --backfill edges --local", "compute edges for messages that earlier versions archived"),
    (
        "archive --store /data/rocketmq/store --lake /data/lake --hbase hbase-thrift:9090",
        "also write the messages to HBase",
    ),
    (
        "archive --store /data/rocketmq/store --lake /data/lake --mask keys=hash --mask body.customer.email=null",
        "mask sensitive fields; COMMITLAKE_MASK_KEY holds the key of the hashes",
    ),
    (
        "archive --from-broker 10.0.0.1:9876 --lake /data/lake --local",
        "pull from all brokers of a cluster, without access to their files",
    ),
    (
        "archive --from-broker 10.0.0.1:9876 --broker broker-a --topic orders --max-rate 20MiB/s --lake /data/lake",
        "pull one topic of one broker at a limited rate",
    ),
)


_PAGE = "quality.html in the lake, if the lake is a folder and expectations were checked"


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the job's arguments."""
    parser = job_parser("archive", DESCRIPTION, EXAMPLES)
    store_help = (
        f"store folder (the one that holds {FOLDERS}), a glob, or several separated by commas; {{broker}} stands for "
        "the path component that names the broker"
    )
    parser.add_argument("--store", metavar="PATH", help=store_help)
    add_broker_arguments(parser)
    lake_help = (
        "the lake: a folder or s3://bucket/prefix, created if it does not exist, or catalog.schema of Unity Catalog, "
        "which must exist"
    )
    add_options(parser, LakeArguments, texts={"lake": lake_help})
    moved_help = (
        "all bodies of the lake were moved to --bodies (or back into the lake); needed once, later runs remember it"
    )
    parser.add_argument("--bodies-moved", action="store_true", help=moved_help)
    broker_help = (
        "the store's name in the lake; otherwise brokerName of --broker-conf, or of a broker.conf beside the store, or "
        "the folder's name. With --from-broker: the only broker to pull from"
    )
    parser.add_argument("--broker", action=Once, help=broker_help)
    conf_help = "the broker's settings file broker.conf, for brokerName and the folders of the log"
    parser.add_argument("--broker-conf", metavar="FILE", help=conf_help)
    add_options(parser, LayoutArgument)
    mib_help = "size of the log whose bodies go into one pack, MiB (default: 32)"
    parser.add_argument("--partition-mib", type=int, default=32, metavar="N", help=mib_help)
    corrupt_help = (
        "bytes that are not an intact record: fail (archive nothing, exit 3) or quarantine (record them in the table "
        "quarantine, archive the rest, exit 0); without this option, as quarantine, but exit 3"
    )
    parser.add_argument("--on-corrupt", choices=("fail", "quarantine"), help=corrupt_help)
    gap_help = (
        "segments that are missing: fail (archive nothing, exit 3) or record (record them in the table gaps, archive "
        "the rest, exit 0); without this option, as record, but exit 3"
    )
    parser.add_argument("--on-gap", choices=("fail", "record"), help=gap_help)
    quality_help = "commit without checking expectations; the run then stores no profiles for audit"
    parser.add_argument("--no-quality", action="store_true", help=quality_help)
    add_options(parser, HtmlArgument, texts={"html": f"{HTML_HELP} (default: {_PAGE})"})
    parser.add_argument("--quality-page", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    keys_help = (
        "do not update message_keys, edges and consumptions in this run; look-ups by key read the missing part from "
        "messages"
    )
    parser.add_argument("--no-keys", action="store_true", help=keys_help)
    edges_help = (
        "do not update edges and consumptions in this run; lineage does not show the newest messages until a later run "
        "does"
    )
    parser.add_argument("--no-edges", action="store_true", help=edges_help)
    hbase_help = "also write messages to a table in HBase, through its Thrift server (default: off)"
    parser.add_argument("--hbase", metavar="HOST[:PORT]", help=hbase_help)
    option_help = "further HBase options, see connectors/hbase/options.py: table, ttlSeconds, compression, batchRows, …"
    parser.add_argument("--hbase-option", action="append", default=[], metavar="NAME=VALUE", help=option_help)
    mask_help = (
        "mask a field of every message before it is archived: body, body.NAME, property.NAME, keys or tags by hash, "
        "null, last:N, truncate:N or text:T, as in keys=hash. The rules and the key (COMMITLAKE_MASK_KEY) cannot "
        "change after the lake's first message"
    )
    parser.add_argument("--mask", action="append", default=[], metavar="FIELD=RULE", help=mask_help)
    backfill_help = (
        "instead of archiving, add the missing rows of this table, computed from the lake's messages, as after an "
        "upgrade; needs no --store"
    )
    parser.add_argument("--backfill", choices=("topic_minutes", "edges"), help=backfill_help)
    commit_help = (
        "size of the log after which a run commits, so that a run that is killed loses no more than that, as in 16GiB "
        "(default: 8GiB for each core); a run that is set to fail at damage or a gap commits once"
    )
    parser.add_argument("--commit-every", type=file_size, metavar="SIZE", help=commit_help)
    add_options(parser, EvidenceArgument)
    add_options(parser, ThreadArguments)
    parser.add_argument(
        "--follow",
        action="store_true",
        help="keep running and archive messages as they arrive, until stopped (SIGTERM)",
    )
    trigger_help = "with --follow: how often to look for new messages (default: 2s)"
    parser.add_argument("--trigger", type=parse_duration, default="2s", metavar="TIME", help=trigger_help)
    snapshot_help = "with --follow: how often to save the offsets of consumer groups (default: 60s)"
    parser.add_argument("--snapshot-every", type=parse_duration, default="60s", metavar="TIME", help=snapshot_help)
    available_help = (
        "as --follow, but stop after the messages that were there at the start, in runs of --max-mib-per-run"
    )
    parser.add_argument("--available-now", action="store_true", help=available_help)
    most_help = "with --follow or --available-now: size of the log that one run may read, MiB (default: 1024)"
    parser.add_argument("--max-mib-per-run", type=int, default=1024, metavar="N", help=most_help)
    return parser


def job(arguments: argparse.Namespace) -> ExitCode:
    """Check the arguments, and run the archive."""
    for option in ("partition_mib", "max_mib_per_run"):
        if getattr(arguments, option) < 1:
            raise JobError(f"--{option.replace('_', '-')}: expected at least 1, found {getattr(arguments, option)}")
    if arguments.html is not None and arguments.quality_page is not None:
        raise JobError("--quality-page is another name of --html", "leave one of them out")
    arguments.html = arguments.html or arguments.quality_page
    check_local_arguments(arguments)
    if arguments.backfill is not None:
        return _backfill(arguments)
    check_broker_arguments(arguments)
    if arguments.store is None and arguments.from_broker is None:
        raise JobError("the following arguments are required: --store", "Name the store's folder, or --from-broker")
    if arguments.from_broker is None and arguments.local and (arguments.follow or arguments.available_now):
        raise JobError("--follow and --available-now need Spark, and --local runs without Spark", "leave --local out")
    if not arguments.local:
        require("pyspark", "archive without --local")
    if not arguments.no_quality:
        require("great_expectations", "archive without --no-quality")
    if arguments.hbase is not None:
        require("happybase", "--hbase")
    if not arguments.local or arguments.no_quality:
        return _archive(arguments, None)
    from commitlake.pipelines.quality.judge_process import JudgeProcess

    with JudgeProcess() as judge:
        if _is_new_folder(arguments.lake):
            judge.start()  # load both processes in parallel, because loading is most of a short run
        return _archive(arguments, judge)


def _is_new_folder(lake: str) -> bool:
    """Return True if the lake is a folder that does not exist yet, so that all messages of a store are new."""
    return not is_uri(lake) and not Path(lake).exists()


def _backfill(arguments: argparse.Namespace) -> ExitCode:
    for option in ("store", "from_broker", "follow", "available_now", "html"):
        if getattr(arguments, option):
            name = option.replace("_", "-")
            raise JobError(f"--{name} has no effect with --backfill, which reads the lake", "leave one of them out")
    from commitlake.jobs.archive.backfill import backfill

    return backfill(arguments)


def _archive(arguments: argparse.Namespace, judge: JudgeProcess | None) -> ExitCode:
    if arguments.local and is_own_process():
        use_system_memory()  # before Arrow is loaded
    with collector_off():
        from commitlake.jobs.archive.run import run

    return run(arguments, judge)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `commitlake archive`."""
    return run_job(build_parser(), job, argv)
