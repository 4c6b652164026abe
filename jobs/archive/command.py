"""Archive broker logs: every record's metadata into the lake's table `messages`, every body into a pack.

    commitlake archive --store /data/rocketmq/store --lake /data/lake

Reads the stores' logs, RocketMQ's or JMQ's, from where the last run ended to the last whole record. Tasks write packs
and data files, which one Delta commit adds to `messages` together with the new end offsets; the other tables follow. A
run that is killed leaves a whole commit or none, and in that case files that no table knows of; run again, it goes on
from there. Of two runs at once over the same store one commits, and the other says so.

    commitlake archive --from-broker 10.0.0.1:9876 --lake /data/lake

Pulls the same messages from brokers whose files nobody can read: from the queue offsets on that the last run has
committed together with its rows, up to the end that each log has when the run begins. It asks as any client does, for
the group TOOLS_CONSUMER, whose offsets it never changes. It gets what a queue leads to, the system's topics included;
it does not get what no queue leads to any longer, as messages of a deleted topic.

Before the commit, suites of expectations judge the run's profile; a critical one that is not met stops it.

Exit codes: 0; 1 where a broker does not answer; 2 for a wrong store or lake; 3 where something was damaged or gone,
unless the option for it says that it is to be written down, and where the judgement stopped the run; 4 where a store is
not the one that was archived, or other runs over it were first ten times.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from commitlake.jobs.archive.broker_arguments import add_broker_arguments, check_broker_arguments
from commitlake.jobs.cli.collector import collector_off
from commitlake.jobs.cli.command import JobError, job_parser, run_job
from commitlake.jobs.cli.durations import parse_duration
from commitlake.jobs.cli.evidence import add_evidence_argument
from commitlake.jobs.cli.html import add_html_argument
from commitlake.jobs.cli.layouts import FOLDERS, add_layout_argument
from commitlake.jobs.cli.places import add_place_arguments
from commitlake.jobs.cli.process import is_own_process
from commitlake.jobs.cli.runner import add_local_arguments, check_local_arguments
from commitlake.schemas.errors import ExitCode

if TYPE_CHECKING:
    from commitlake.pipelines.quality.judge_process import JudgeProcess

DESCRIPTION = (
    "Take what is new in broker stores into the lake: a row in the table messages for every record, of every topic and "
    "kind, and its body in a pack. Run it as often as you like: each run goes on where the last one ended, and nothing "
    "is taken twice."
)
EXAMPLES = (
    ("archive --store /data/rocketmq/store --lake /data/lake", "one broker"),
    ("archive --store /data/rocketmq/store --lake /data/lake --local", "on this machine's cores, without Spark"),
    ("archive --store '/mnt/brokers/{broker}/store' --lake /data/lake", "a cluster, named by its folders"),
    ("archive --store /data/rocketmq/store --broker broker-a --lake /data/lake", "a name of its own"),
    ("archive --store /data/rocketmq/store --lake /data/lake --on-gap record", "some segments are known to be gone"),
    (
        "archive --store /data/rocketmq/store --lake /data/lake --html run.html",
        "and a page about the run, also if it fails",
    ),
    (
        "archive --store /data/rocketmq/store --lake /data/lake --bodies s3://archive/bodies",
        "bodies in an object store",
    ),
    ("archive --store /data/rocketmq/store --lake /data/lake --follow --trigger 10s", "as messages arrive"),
    ("archive --lake /data/lake --backfill topic_minutes --local", "count by minute what earlier versions archived"),
    ("archive --lake /data/lake --backfill edges --local", "link the messages that earlier versions archived"),
    ("archive --store /data/rocketmq/store --lake /data/lake --hbase hbase-thrift:9090", "HBase follows"),
    (
        "archive --store /data/rocketmq/store --lake /data/lake --mask keys=hash --mask body.customer.email=null",
        "without what must not be kept; COMMITLAKE_MASK_KEY is the key of the hashes",
    ),
    ("archive --from-broker 10.0.0.1:9876 --lake /data/lake --local", "all brokers of a cluster, without their files"),
    (
        "archive --from-broker 10.0.0.1:9876 --broker broker-a --topic orders --max-rate 20MiB/s --lake /data/lake",
        "one topic of one broker, gently",
    ),
)

_UNUSED = ("pandas", "scipy.linalg")


def build_parser() -> argparse.ArgumentParser:
    """The job's arguments."""
    parser = job_parser("archive", DESCRIPTION, EXAMPLES)
    store_help = (
        f"store folder (the one that holds {FOLDERS}), a glob, or several with commas between; {{broker}} stands for "
        "the path component that names the broker"
    )
    parser.add_argument("--store", metavar="PATH", help=store_help)
    add_broker_arguments(parser)
    add_place_arguments(parser, "the lake: a folder, or s3://bucket/prefix; made where it is not there")
    moved_help = (
        "all bodies that the lake has were moved to --bodies (or back into the lake); said once, it is remembered"
    )
    parser.add_argument("--bodies-moved", action="store_true", help=moved_help)
    broker_help = (
        "the store's name in the lake; else brokerName of --broker-conf, or of a broker.conf beside the store, else "
        "the folder's name. With --from-broker: the only broker to pull from"
    )
    parser.add_argument("--broker", help=broker_help)
    conf_help = "the broker's broker.conf, which has its name"
    parser.add_argument("--broker-conf", metavar="FILE", help=conf_help)
    add_layout_argument(parser)
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
    quality_help = "commit without a judgement on what was read; no profiles for the audit then, either"
    parser.add_argument("--no-quality", action="store_true", help=quality_help)
    add_html_argument(
        parser, "quality.html in the lake, if that is a folder; there, only runs that were judged are shown"
    )
    parser.add_argument("--quality-page", type=Path, metavar="FILE", help="another name of --html")
    keys_help = "let message_keys and edges follow another time; look-ups by key read what it lacks from messages"
    parser.add_argument("--no-keys", action="store_true", help=keys_help)
    edges_help = "let edges follow another time; what happened to the newest messages is not known until then"
    parser.add_argument("--no-edges", action="store_true", help=edges_help)
    hbase_help = "let a table in HBase follow, by its Thrift server; off where not given"
    parser.add_argument("--hbase", metavar="HOST[:PORT]", help=hbase_help)
    option_help = (
        "more of HBase's options, see connectors/hbase/options.py: table, ttlSeconds, compression, batchRows, …"
    )
    parser.add_argument("--hbase-option", action="append", default=[], metavar="NAME=VALUE", help=option_help)
    mask_help = (
        "mask a field of every message before it is archived: body, body.NAME, property.NAME, keys or tags by hash, "
        "null, last:N, truncate:N or text:T, as in keys=hash. The rules and the key (COMMITLAKE_MASK_KEY) are the same "
        "from a lake's first message on; can be given more than once"
    )
    parser.add_argument("--mask", action="append", default=[], metavar="FIELD=RULE", help=mask_help)
    backfill_help = (
        "instead of archiving, add to this table what the lake's messages give and the table lacks, as after an "
        "upgrade; needs no --store"
    )
    parser.add_argument("--backfill", choices=("topic_minutes", "edges"), help=backfill_help)
    add_evidence_argument(parser)
    add_local_arguments(parser)
    parser.add_argument("--follow", action="store_true", help="go on as messages arrive, until told to stop (SIGTERM)")
    trigger_help = "with --follow: how often to look for more (default: 2s)"
    parser.add_argument("--trigger", type=parse_duration, default="2s", metavar="TIME", help=trigger_help)
    snapshot_help = "with --follow: how often to keep how far consumer groups have come (default: 60s)"
    parser.add_argument("--snapshot-every", type=parse_duration, default="60s", metavar="TIME", help=snapshot_help)
    available_help = "as --follow, but end with what was there at the start, in runs of --max-mib-per-run"
    parser.add_argument("--available-now", action="store_true", help=available_help)
    most_help = "with --follow or --available-now: log of one run, MiB (default: 1024)"
    parser.add_argument("--max-mib-per-run", type=int, default=1024, metavar="N", help=most_help)
    return parser


def job(arguments: argparse.Namespace) -> ExitCode:
    """Check the arguments, and archive."""
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
        raise JobError("--follow and --available-now need Spark, and --local goes without", "leave --local out")
    if not arguments.local or arguments.no_quality:
        return _archive(arguments, None)
    from commitlake.connectors.runtime.blocked_imports import blocked_imports
    from commitlake.pipelines.quality.judge_process import JudgeProcess

    # Arrow would load pandas, and numba what it multiplies matrices with: neither is used here.
    with blocked_imports(*_UNUSED) if is_own_process() else nullcontext(), JudgeProcess() as judge:
        if _is_new_folder(arguments.lake):
            judge.start()  # it loads while this process does: most of a short run is loading
        return _archive(arguments, judge)


def _is_new_folder(lake: str) -> bool:
    """Whether a lake is in a folder that is still to be made, so that all of a store is new."""
    return "://" not in lake and not Path(lake).exists()


def _backfill(arguments: argparse.Namespace) -> ExitCode:
    for option in ("store", "from_broker", "follow", "available_now", "html"):
        if getattr(arguments, option):
            name = option.replace("_", "-")
            raise JobError(f"--{name} has no effect with --backfill, which reads the lake", "leave one of them out")
    from commitlake.jobs.archive.backfill import backfill

    return backfill(arguments)


def _archive(arguments: argparse.Namespace, judge: JudgeProcess | None) -> ExitCode:
    with collector_off():
        from commitlake.jobs.archive.run import run

    return run(arguments, judge)


def main(argv: Sequence[str] | None = None) -> int:
    """`commitlake archive`."""
    return run_job(build_parser(), job, argv)
