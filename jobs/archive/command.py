"""Archive broker logs: every record's metadata into the lake's table `messages`, every body into a pack.

    commitlake archive --store /data/rocketmq/store --lake /data/lake

Reads the stores' logs, RocketMQ's or JMQ's, from where the last run ended to the last whole record. Tasks write packs
and data files, which one Delta commit adds to `messages` together with the new end offsets; the other tables follow. A
run that is killed leaves a whole commit or none, and in that case files that no table knows of; run again, it goes on
from there. Of two runs at once over the same store one commits, and the other says so.

Before the commit, suites of expectations judge the run's profile; a critical one that is not met stops it.

Exit codes: 0; 2 for a wrong store or lake; 3 where something was damaged or gone, unless the option for it says that it
is to be written down, and where the judgement stopped the run; 4 where a store is not the one that was archived, or
other runs over it were first ten times.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from commitlake.connectors.formats.engine.errors import EmptyStoreError
from commitlake.connectors.lake.archive_log import read_last_commit
from commitlake.connectors.lake.lost_tables import check_writable
from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.runtime.runner import Runner
from commitlake.jobs.archive.summary import summary
from commitlake.jobs.cli.broker_name import BrokerName, broker_name
from commitlake.jobs.cli.command import JobError, job_parser, run_job
from commitlake.jobs.cli.durations import parse_duration
from commitlake.jobs.cli.layouts import FOLDERS, add_layout_argument, layout_of
from commitlake.jobs.cli.places import add_place_arguments, lake_of
from commitlake.jobs.cli.progress import runner_progress
from commitlake.jobs.cli.runner import add_local_arguments, check_local_arguments, make_runner, open_session
from commitlake.jobs.cli.sizes import size_text
from commitlake.jobs.pages.quality import write_page
from commitlake.pipelines.archive.judging import JudgementPage
from commitlake.pipelines.archive.places import check_bodies
from commitlake.pipelines.archive.run import MIB, Config, OnRefusal, Result, finish_earlier_runs
from commitlake.pipelines.archive.work import find_work
from commitlake.schemas.errors import ExitCode

if TYPE_CHECKING:
    from commitlake.connectors.hbase.options import Options

VERSION = importlib.metadata.version("commitlake")
PAGE = "quality.html"
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
        "archive --store /data/rocketmq/store --lake /data/lake --bodies s3://archive/bodies",
        "bodies in an object store",
    ),
    ("archive --store /data/rocketmq/store --lake /data/lake --follow --trigger 10s", "as messages arrive"),
    ("archive --store /data/rocketmq/store --lake /data/lake --hbase hbase-thrift:9090", "HBase follows"),
)
_ON_REFUSAL = {
    None: OnRefusal.KEEP,
    "fail": OnRefusal.FAIL,
    "quarantine": OnRefusal.ACCEPT,
    "record": OnRefusal.ACCEPT,
}


def build_parser() -> argparse.ArgumentParser:
    """The job's arguments."""
    parser = job_parser("archive", DESCRIPTION, EXAMPLES)
    store_help = (
        f"store folder (the one that holds {FOLDERS}), a glob, or several with commas between; {{broker}} stands for "
        "the path component that names the broker"
    )
    parser.add_argument("--store", required=True, metavar="PATH", help=store_help)
    add_place_arguments(parser, "the lake: a folder, or s3://bucket/prefix; made where it is not there")
    moved_help = (
        "all bodies that the lake has were moved to --bodies (or back into the lake); said once, it is remembered"
    )
    parser.add_argument("--bodies-moved", action="store_true", help=moved_help)
    broker_help = (
        "the store's name in the lake; else brokerName of --broker-conf, or of a broker.conf beside the store, "
    )
    parser.add_argument("--broker", help=f"{broker_help}else the folder's name")
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
    page_help = "HTML page of the judgement (default: quality.html in the lake, if that is a folder)"
    parser.add_argument("--quality-page", metavar="FILE", help=page_help)
    keys_help = "let message_keys follow another time; look-ups by key read what it lacks from messages"
    parser.add_argument("--no-keys", action="store_true", help=keys_help)
    hbase_help = "let a table in HBase follow, by its Thrift server; off where not given"
    parser.add_argument("--hbase", metavar="HOST[:PORT]", help=hbase_help)
    option_help = (
        "more of HBase's options, see connectors/hbase/options.py: table, ttlSeconds, compression, batchRows, …"
    )
    parser.add_argument("--hbase-option", action="append", default=[], metavar="NAME=VALUE", help=option_help)
    add_local_arguments(parser)
    parser.add_argument("--follow", action="store_true", help="go on as messages arrive, until told to stop (SIGTERM)")
    trigger_help = "with --follow: how often to look for more (default: 2s)"
    parser.add_argument("--trigger", type=parse_duration, default="2s", metavar="TIME", help=trigger_help)
    available_help = "as --follow, but end with what was there at the start, in runs of --max-mib-per-run"
    parser.add_argument("--available-now", action="store_true", help=available_help)
    most_help = "with --follow or --available-now: log of one run, MiB (default: 1024)"
    parser.add_argument("--max-mib-per-run", type=int, default=1024, metavar="N", help=most_help)
    return parser


def job(arguments: argparse.Namespace) -> ExitCode:
    """Find out what there is to do, start Spark only where there is something, and tell the result."""
    for option in ("partition_mib", "max_mib_per_run"):
        if getattr(arguments, option) < 1:
            raise JobError(f"--{option.replace('_', '-')}: expected at least 1, found {getattr(arguments, option)}")
    if arguments.no_quality and arguments.quality_page is not None:
        raise JobError("--quality-page has no effect with --no-quality", "leave one of them out")
    check_local_arguments(arguments)
    if arguments.local and (arguments.follow or arguments.available_now):
        raise JobError("--follow and --available-now need Spark, and --local goes without", "leave --local out")
    lake = lake_of(arguments)
    name = _name_of(arguments, lake)
    config = Config(
        store=arguments.store,
        lake=lake.root,
        bodies=arguments.bodies,
        bodies_moved=arguments.bodies_moved,
        broker=name.name,
        layout=layout_of(arguments),
        max_partition_bytes=arguments.partition_mib * MIB,
        on_corrupt=_ON_REFUSAL[arguments.on_corrupt],
        on_gap=_ON_REFUSAL[arguments.on_gap],
        parser_version=VERSION,
        keys=not arguments.no_keys,
        quality=not arguments.no_quality,
        hbase=_hbase_options(arguments),
        page=_page(arguments.quality_page, lake),
    )
    if name.told and not arguments.quiet:
        print(name.told, file=sys.stderr)
    if arguments.follow or arguments.available_now:
        return _follow(arguments, config)
    work = find_work(config.store, config.broker, lake, formats=config.layout.formats)
    check_bodies(lake, config.bodies)
    if not work.snapshot.size and config.hbase is None:
        result = finish_earlier_runs(config, work)
    else:
        from commitlake.pipelines.archive.concurrent import archive_beside_others

        runner = make_runner(arguments, "archive", lake.s3)
        result = archive_beside_others(runner, config, work, partial(archive_progress, quiet=arguments.quiet))
    return _tell(arguments, result)


def _name_of(arguments: argparse.Namespace, lake: LakePaths) -> BrokerName:
    """The store's name, which must stay what it was."""
    last = read_last_commit(lake.messages)
    known = () if last is None else tuple(last.stores)
    try:
        return broker_name(
            arguments.store, arguments.broker, arguments.broker_conf, known, layout_of(arguments).formats
        )
    except EmptyStoreError:  # nothing to archive yet, which is told later, or waited for
        return BrokerName(arguments.broker)


def page_in(lake: LakePaths) -> JudgementPage | None:
    """Where a judgement is shown if nothing else is asked for: in the lake, if that is a folder."""
    return None if lake.s3 else JudgementPage(Path(lake.root) / PAGE, write_page)


def _page(given: str | None, lake: LakePaths) -> JudgementPage | None:
    """Where the judgement is shown: a file that is given, else one in the lake, if that is a folder.

    Raises:
        JobError: for a page that could not be written once all is read.
    """
    if given is None:
        return page_in(lake)
    if not Path(given).absolute().parent.is_dir():
        raise JobError(f"--quality-page {given}: expected a file in a folder that is there")
    return JudgementPage(Path(given), write_page)


def _hbase_options(arguments: argparse.Namespace) -> Options | None:
    given = {}
    for option in arguments.hbase_option:
        name, equals, value = option.partition("=")
        if not equals:
            raise JobError(f"--hbase-option: expected NAME=VALUE, found {option!r}")
        given[name] = value
    if arguments.hbase is None:
        if given:
            raise JobError("--hbase-option goes with --hbase HOST[:PORT]")
        return None
    from commitlake.connectors.hbase.options import Options

    return Options.of_address(arguments.hbase, **given)


def _follow(arguments: argparse.Namespace, config: Config) -> ExitCode:
    """Archive as messages arrive; the worst that any run came to."""
    from commitlake.jobs.archive.follow import Follower, find_left

    lake = LakePaths(config.lake)
    check_writable(lake)
    check_bodies(lake, config.bodies)
    left = find_left(config)
    worst = ExitCode.OK

    def tell(result: Result) -> None:
        nonlocal worst
        worst = max(worst, _tell(arguments, result))

    interval = None if arguments.available_now else arguments.trigger
    follower = Follower(open_session("archive", lake.s3), config, tell)
    follower.follow(interval, arguments.max_mib_per_run * MIB, left)
    return worst


def _tell(arguments: argparse.Namespace, result: Result) -> ExitCode:
    if not arguments.quiet:
        print("\n".join(summary(result)), file=sys.stderr)
    return ExitCode.DAMAGE if result.verdict.is_damage else ExitCode.OK


def archive_progress(runner: Runner, log_bytes: int, *, quiet: bool) -> AbstractContextManager[Callable[[int], None]]:
    """Show how far a run's tasks are."""
    return runner_progress(runner, f"archiving {size_text(log_bytes)}", log_bytes, quiet=quiet)


def main(argv: Sequence[str] | None = None) -> int:
    """`commitlake archive`."""
    return run_job(build_parser(), job, argv)
