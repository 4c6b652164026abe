"""Save the offsets of consumer groups: a snapshot of a store's files, or of live brokers, in the lake.

    commitlake snapshot --lake /data/lake --store /data/rocketmq/store

Reads consumerOffset.json, delayOffset.json, timercheck and consumerFilter.json (or BoltMQ's or JMQ's own files), or
asks brokers over the remoting protocol, which also know the groups' subscriptions and clients. Writes a row for each
offset that has changed to `consumer_offsets`, and for each subscription that has changed to `subscriptions`. A second
run does not change the tables. It never starts Spark. Exit codes: 0; 1 if a broker does not answer; 2 for a wrong lake,
store or option; 3 if a store's offsets exist but cannot be read; 4 if other snapshots committed first ten times.
"""

from __future__ import annotations

import argparse
import datetime
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from commitlake.jobs.cli.command import JobError, job_parser, run_job
from commitlake.jobs.cli.durations import parse_duration
from commitlake.jobs.cli.layouts import FOLDERS, add_layout_argument, layout_of
from commitlake.jobs.cli.names import did_you_mean, some_names, warn
from commitlake.jobs.cli.once import Once
from commitlake.jobs.cli.places import add_place_arguments, lake_of
from commitlake.jobs.cli.terminal import print_line
from commitlake.schemas.errors import ExitCode

if TYPE_CHECKING:
    from commitlake.connectors.lake.lake import Lake
    from commitlake.pipelines.snapshot.progress import StoreSnapshot

DESCRIPTION = (
    "Save the offsets of consumer groups in the tables consumer_offsets and subscriptions of a lake. Offsets are read "
    "from the files of a store, or from live brokers, which also know each group's subscription and clients. Only "
    "offsets that have changed are written. 'commitlake archive' takes a snapshot of its stores with each run."
)
EXAMPLES = (
    ("snapshot --lake /data/lake --store /data/rocketmq/store", "from the files of one broker"),
    ("snapshot --lake /data/lake --store '/mnt/brokers/{broker}/store' --every 30s", "a cluster, every 30 seconds"),
    ("snapshot --lake /data/lake --namesrv 10.0.0.1:9876", "ask all brokers that a name server knows"),
    ("snapshot --lake /data/lake --namesrv 10.0.0.1:9876 --broker broker-a", "ask one of them"),
)


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the job's arguments."""
    parser = job_parser("snapshot", DESCRIPTION, EXAMPLES)
    parser.set_defaults(spark=False)
    add_place_arguments(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    store_help = (
        f"store folder (the one that holds {FOLDERS}), a glob, or several separated by commas; {{broker}} stands for "
        "the path component that names the broker"
    )
    source.add_argument("--store", metavar="PATH", help=store_help)
    source.add_argument("--namesrv", metavar="HOST:PORT", help="name servers, separated by semicolons")
    broker_help = "the store's name in the lake; with --namesrv: only this broker"
    parser.add_argument("--broker", action=Once, help=broker_help)
    parser.add_argument(
        "--broker-conf",
        metavar="FILE",
        help="with --store: the broker's settings file broker.conf, for brokerName and the folders of the log",
    )
    add_layout_argument(parser)
    every_help = "take a snapshot at this interval, until stopped (SIGTERM)"
    parser.add_argument("--every", type=parse_duration, metavar="TIME", help=every_help)
    return parser


def job(arguments: argparse.Namespace) -> ExitCode:
    """Take one snapshot, or one at each interval."""
    from commitlake.jobs.cli.process import stop_softly

    if arguments.namesrv is not None and arguments.broker_conf is not None:
        raise JobError("--broker-conf needs --store", "live brokers report their own names")
    lake = lake_of(arguments)
    lake.table("messages")  # raises an error if this is not a lake
    shown: set[str] = set()
    if arguments.every is None:
        return _take(arguments, shown)
    if arguments.every <= datetime.timedelta(0):
        raise JobError("--every: expected more than 0 seconds")
    stop = threading.Event()
    worst = ExitCode.OK
    with stop_softly(stop.set):
        while not stop.is_set():
            worst = max(worst, _take(arguments, shown))
            stop.wait(arguments.every.total_seconds())
    return worst


def _take(arguments: argparse.Namespace, shown: set[str]) -> ExitCode:
    """Take one snapshot of each store or broker.

    Args:
        shown: notes that were printed before; new ones are added.
    """
    from commitlake.connectors.lake.lake import Lake
    from commitlake.jobs.snapshot.summary import summary_lines
    from commitlake.pipelines.snapshot.append import append_progress

    lake = Lake(arguments.lake)
    code = ExitCode.OK
    for progress in _ask(arguments) if arguments.namesrv is not None else _read(arguments, lake, shown):
        appended = append_progress(lake, progress)
        for sentence in progress.unreadable:
            code = ExitCode.DAMAGE
            warn("commitlake snapshot", f"{sentence}; none of its offsets were saved")
        if not arguments.quiet:
            for line in summary_lines(progress, appended):
                print_line(line)
    return code


def _read(arguments: argparse.Namespace, lake: Lake, shown: set[str]) -> Iterator[StoreSnapshot]:
    """Yield the offsets in the files of each store."""
    from commitlake.connectors.formats.engine.plan import take_snapshot
    from commitlake.connectors.formats.engine.stores import find_stores
    from commitlake.connectors.lake.archive_log import read_last_commit
    from commitlake.jobs.cli.broker_name import broker_name
    from commitlake.jobs.cli.lake_names import warn_of_unknown_broker
    from commitlake.pipelines.snapshot.files import read_store_progress

    last = read_last_commit(lake.uri("messages"))
    known = () if last is None else tuple(last.stores)
    warn_of_unknown_broker("commitlake snapshot", arguments.broker, known)
    formats = layout_of(arguments).formats
    name = broker_name(arguments.store, arguments.broker, arguments.broker_conf, known, formats)
    if name.note and name.note not in shown and not arguments.quiet:
        print_line(name.note)
        shown.add(name.note)
    for store in find_stores(arguments.store, name.name, formats):
        progress = read_store_progress(store, datetime.datetime.now(datetime.UTC))
        if progress is None:
            raise JobError(
                f"{store.root}: expected a folder of this machine, because the age of a copied store is not known",
                "--namesrv asks the broker itself",
            )
        # The log is read after the offsets, so that it has all messages that the offsets count.
        yield replace(progress, log_end=take_snapshot([store]).ranges[store.broker].end)


def _ask(arguments: argparse.Namespace) -> Iterator[StoreSnapshot]:
    """Yield the offsets of live brokers."""
    from commitlake.connectors.rocketmq import Admin, ClientOptions
    from commitlake.pipelines.snapshot.live import ask_progress

    with closing(Admin(ClientOptions(arguments.namesrv))) as admin:
        brokers = sorted(admin.clusters().broker_addr_table)
        if arguments.broker is not None and arguments.broker not in brokers:
            raise JobError(
                f"the name server has no broker {arguments.broker!a}.{did_you_mean(arguments.broker, brokers)}",
                f"brokers: {some_names(brokers)}",
            )
        for broker in brokers if arguments.broker is None else [arguments.broker]:
            yield ask_progress(admin, broker)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `commitlake snapshot`."""
    return run_job(build_parser(), job, argv)
