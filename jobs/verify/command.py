"""Look for damage and contradictions in broker stores, and report where, why, and what to do.

    commitlake verify /data/rocketmq/store --local

Reads the log with its checksums, the queues, the IndexFiles, the checkpoint, and the offsets of groups, and compares
each with the others; with --lake also the archive. Stores are of RocketMQ, BoltMQ or JMQ, in folders, or as copies that
`commitlake ship` made in an object store or HDFS. Writes only its report. A broker may be running. Exit codes: 0 if no
problem was found (there may be notes); 2 for a wrong store or option; 3 if a problem was found.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from commitlake.jobs.cli.broker_conf import add_broker_conf_argument, read_store_conf
from commitlake.jobs.cli.combinations import check_has_effect
from commitlake.jobs.cli.command import job_parser, run_job
from commitlake.jobs.cli.html import add_html_argument
from commitlake.jobs.cli.layouts import FOLDERS, add_layout_argument, layout_of
from commitlake.jobs.cli.once import Once
from commitlake.jobs.cli.output_forms import add_format_argument
from commitlake.jobs.cli.places import lake_of
from commitlake.jobs.cli.runner import add_local_arguments, check_local_arguments, make_runner
from commitlake.jobs.cli.s3_arguments import add_s3_arguments, set_s3_environment
from commitlake.jobs.cli.store_arguments import add_store_argument, check_store_is_given, delay_levels, positive
from commitlake.schemas.errors import ExitCode

if TYPE_CHECKING:
    from commitlake.connectors.formats.engine.stores import Store
    from commitlake.pipelines.verify.admission import VerifyOptions
    from commitlake.pipelines.verify.doctor import StoreReport

DESCRIPTION = (
    "Cross-check the log, queues, IndexFiles, checkpoint and group offsets of stores of RocketMQ, BoltMQ or JMQ. Every "
    "finding has its place, the value found and the value expected; every class of findings has its cause and its "
    "repair."
)
EXAMPLES = (
    ("verify /data/rocketmq/store --local", "one store, on this machine's cores, without Spark"),
    ("verify '/mnt/brokers/{broker}/store' --html report.html", "a cluster, on Spark, with an HTML page"),
    ("verify /data/jmq/store --local", "a JMQ store, found by its journal/"),
    ("verify s3://logs/broker-a --local", "a copy that 'commitlake ship' made"),
    ("verify /data/rocketmq/store --lake /data/lake", "also compare with the archive"),
    ("verify /data/rocketmq/store --local --format json | jq '.rows[].findings[].code'", "for a program"),
)


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the job's arguments."""
    parser = job_parser("verify", DESCRIPTION, EXAMPLES)
    store_help = (
        f"store folder (the one that holds {FOLDERS}), a glob, or several separated by commas; {{broker}} stands for "
        "the path component that names the broker. In an object store or HDFS, it must be a copy by 'commitlake ship'"
    )
    add_store_argument(parser, store_help)
    parser.add_argument("--broker", action=Once, help="the store's name (default: the folder's name)")
    add_layout_argument(parser)
    add_local_arguments(parser, "processes")
    add_broker_conf_argument(parser)
    parser.add_argument("--delay-levels", type=delay_levels, metavar="LEVELS",
                        help="the broker's messageDelayLevel, as '1s 5s 30s' (default: that of --broker-conf, or the "
                             "levels that the store's schedule queues show)")  # fmt: skip
    parser.add_argument("--findings", type=positive, default=20, metavar="N",
                        help="maximum number of findings per class and store in JSON and on the page; a table shows "
                             "three; all are counted (default: 20)")  # fmt: skip
    parser.add_argument("--lake", metavar="PLACE", help="also compare with this lake: a folder, "
                        "s3://bucket/prefix, or catalog.schema")  # fmt: skip
    add_s3_arguments(parser)
    add_format_argument(parser)
    add_html_argument(parser)
    return parser


def job(arguments: argparse.Namespace) -> ExitCode:
    """Verify the stores, print a report, and return an exit code."""
    check_store_is_given(arguments)
    from commitlake.jobs.pages.output import failure_page, page_file
    from commitlake.jobs.verify.page import TITLE, stores_page
    from commitlake.jobs.verify.report import Remedies, print_report, summary
    from commitlake.pipelines.verify.doctor import join_findings
    from commitlake.pipelines.verify.verdict import verdict_of

    check_local_arguments(arguments)
    if "s3://" in arguments.store:
        set_s3_environment(arguments)
    else:
        check_has_effect(arguments, ["s3-endpoint", "s3-region"], "lake")
    file = page_file(arguments.html)
    lake = lake_of(arguments) if arguments.lake else None
    remedies = Remedies(lake, list(_settings(arguments)))
    facts = [("Store", arguments.store), *([("Lake", lake.root)] if lake else [])]
    with failure_page(file, "verify", TITLE, facts, lake):
        reports = _verify_stores(arguments)
        if file is not None:
            file.write(stores_page(reports, remedies))
    print_report(arguments.output, reports, remedies)
    if not arguments.quiet:
        print(summary(reports), file=sys.stderr)
    verdict = verdict_of(join_findings(reports), len(reports))
    return ExitCode.DAMAGE if verdict.is_damage else ExitCode.OK


def _settings(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield the options that say how to read the stores, for `rebuild`."""
    for option in ("layout", "broker_conf"):
        if (value := getattr(arguments, option)) is not None:
            yield from (f"--{option.replace('_', '-')}", value)
    if arguments.delay_levels is not None:
        yield from ("--delay-levels", " ".join(f"{delay // 1000}s" for delay in arguments.delay_levels))


def _verify_stores(arguments: argparse.Namespace) -> list[StoreReport]:
    """Find the stores, and verify them."""
    from commitlake.connectors.formats.engine.stores import find_stores
    from commitlake.pipelines.verify.admission import VerifyOptions

    if arguments.lake:
        arguments.broker = _name_in_lake(arguments)
    stores = find_stores(arguments.store, arguments.broker, layout_of(arguments).formats)
    confs = {store.broker: read_store_conf(arguments.broker_conf, store.broker) for store in stores}
    options = VerifyOptions(
        arguments.delay_levels,
        limit=arguments.findings,
        delay_levels_by_broker={
            broker: arguments.delay_levels or conf.delay_levels_ms
            for broker, conf in confs.items()
            if conf.delay_levels_ms
        },
    )
    return _verify(arguments, stores, options)


def _name_in_lake(arguments: argparse.Namespace) -> str | None:
    """Return the store's name in the lake to compare with."""
    from commitlake.connectors.lake.archive_log import read_last_commit
    from commitlake.jobs.cli.broker_name import broker_name
    from commitlake.jobs.cli.lake_names import warn_of_unknown_broker

    last = read_last_commit(lake_of(arguments).uri("messages"))
    known = () if last is None else tuple(last.stores)
    warn_of_unknown_broker("commitlake verify", arguments.broker, known)
    layouts = layout_of(arguments).formats
    return broker_name(arguments.store, arguments.broker, arguments.broker_conf, known, layouts).name


def _verify(arguments: argparse.Namespace, stores: Sequence[Store], options: VerifyOptions) -> list[StoreReport]:
    from commitlake.jobs.cli.progress import runner_progress
    from commitlake.pipelines.verify.doctor import verify_stores

    lake = lake_of(arguments) if arguments.lake else None
    runner = make_runner(arguments, "verify", lake.s3 if lake else None)
    size = sum(segment.file_size for store in stores for segment in store.segments)
    with runner_progress(runner, f"verifying {arguments.store}", size, quiet=arguments.quiet) as advance:
        reports = verify_stores(stores, options, runner=runner, advance=advance)
        if lake is not None:
            from commitlake.jobs.verify.lake import add_lake_findings

            add_lake_findings(runner, lake, arguments.store, arguments.broker, reports, layout_of(arguments))
    return reports


def main(argv: Sequence[str] | None = None) -> int:
    """Run `commitlake verify`."""
    return run_job(build_parser(), job, argv)
