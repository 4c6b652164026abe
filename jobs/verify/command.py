"""Look for damage and contradictions in broker stores, and report where, why, and what to do.

    commitlake verify /data/rocketmq/store

Reads the log with its checksums, the queues, the IndexFiles, the checkpoint, and the offsets of groups, and compares
each with the others; with --lake also the archive. Stores are of RocketMQ, BoltMQ or JMQ, in folders, or as copies that
`commitlake ship` made in an object store or HDFS. Writes only its report. A broker may be running. Exit codes: 0 if no
problem was found (there may be notes); 2 for a wrong store or option; 3 if a problem was found.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from commitlake.jobs.arguments.broker_conf import BrokerConfArgument, read_store_conf
from commitlake.jobs.arguments.html_option import HtmlPageOption
from commitlake.jobs.arguments.lake_location import open_lake_argument
from commitlake.jobs.arguments.runner import ProcessArguments, make_runner
from commitlake.jobs.arguments.s3 import S3Arguments, set_s3_environment
from commitlake.jobs.arguments.store_layout import FOLDERS, LayoutArgument, find_formats
from commitlake.jobs.arguments.stores import (
    StoreName,
    declare_store_argument,
    parse_delay_levels_option,
    positive,
    require_store,
)
from commitlake.jobs.cli.command import Command, JobError
from commitlake.jobs.cli.options import environment_variable_of, option
from commitlake.jobs.report.output_formats import OutputArguments
from commitlake.schemas.errors import ExitCode

if TYPE_CHECKING:
    from commitlake.connectors.reading.stores import Store
    from commitlake.pipelines.verify.store_precheck import VerifyOptions
    from commitlake.pipelines.verify.store_verification import StoreReport

DESCRIPTION = (
    "Cross-check the log, queues, IndexFiles, checkpoint and group offsets of stores of RocketMQ, BoltMQ or JMQ. Every "
    "finding has its place, the value found and the value expected; every class of findings has its cause and its "
    "repair."
)
EXAMPLES = (
    ("verify /data/rocketmq/store", "one store, with all cores"),
    ("verify '/mnt/brokers/{broker}/store' --spark --html report.html", "a cluster, on Spark, with an HTML page"),
    ("verify /data/jmq/store", "a JMQ store, found by its journal/"),
    ("verify s3://logs/broker-a", "a copy that 'commitlake ship' made"),
    ("verify /data/rocketmq/store --lake /data/lake", "also compare with the archive"),
    ("verify /data/rocketmq/store --format json | jq '.rows[].findings[].code'", "for a program"),
)


@dataclass(frozen=True, kw_only=True)
class Verify(
    Command,
    StoreName,
    LayoutArgument,
    ProcessArguments,
    BrokerConfArgument,
    S3Arguments,
    OutputArguments,
    HtmlPageOption,
    after={
        **dict.fromkeys((StoreName, LayoutArgument, ProcessArguments, BrokerConfArgument), "store"),
        S3Arguments: "lake",
        OutputArguments: "lake",
        HtmlPageOption: "lake",
    },
):
    """The command `verify`, which compares a store's log, queues, indexes, checkpoint and offsets with one another."""

    NAME = "verify"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    store: str | None = declare_store_argument(
        f"store folder (the one that holds {FOLDERS}), a glob, or several separated by commas; {{broker}} stands for "
        "the path component that names the broker. In an object store or HDFS, it must be a copy by 'commitlake ship'"
    )
    delay_levels: tuple[int, ...] | None = option(
        "the broker's messageDelayLevel, as '1s 5s 30s' (default: that of --broker-conf, or the "
        "levels that the store's schedule queues show)",
        parse=parse_delay_levels_option,
        metavar="LEVELS",
    )
    findings: int = option(
        "maximum number of findings per class and store in JSON and on the page; text shows "
        "three; all are counted (default: 20)",
        parse=positive,
        default=20,
        metavar="N",
    )
    lake: str | None = option(
        "also compare with this lake: a folder, s3://bucket/prefix, or catalog.schema", metavar="PLACE"
    )

    def run(self) -> ExitCode:
        """Verify the stores, print a report, and return an exit code."""
        store = require_store(self.store)
        from commitlake.jobs.report.text_blocks import print_summary
        from commitlake.jobs.verify.report import TITLE, FindingRemedies, print_report, verify_report

        if "s3://" in store:
            set_s3_environment(self)
        elif self.lake is None:
            self._check_object_store_options()
        lake = open_lake_argument(self) if self.lake else None
        remedies = FindingRemedies(lake, list(_rebuild_reading_options(self)))
        facts = [("Store", store), *([("Lake", lake.root)] if lake else [])]
        with self.open_page("verify", TITLE, facts, lake) as file:
            stores = _verify_stores(self)
            report = verify_report(stores, remedies)
            if file is not None:
                file.write(report, lake)
        print_report(self.output, report, stores, remedies)
        if not self.quiet:
            print_summary(report, "read")
        return report.verdict.exit_code

    def _check_object_store_options(self) -> None:
        for name in ("s3-endpoint", "s3-region"):
            if getattr(self, name.replace("-", "_")) is not None and environment_variable_of(name) not in os.environ:
                raise JobError(f"--{name} has no effect without --lake", "add --lake, or leave it out")


def _rebuild_reading_options(command: Verify) -> Iterator[str]:
    """Yield the options for `rebuild` that make it read the stores as this command does."""
    for name in ("layout", "broker_conf"):
        if (value := getattr(command, name)) is not None:
            yield from (f"--{name.replace('_', '-')}", value)
    if command.delay_levels is not None:
        yield from ("--delay-levels", " ".join(f"{delay // 1000}s" for delay in command.delay_levels))


def _verify_stores(command: Verify) -> list[StoreReport]:
    """Find the stores, and verify them."""
    from commitlake.connectors.reading.stores import find_stores
    from commitlake.jobs.arguments.broker_name import find_named_stores
    from commitlake.pipelines.verify.store_precheck import VerifyOptions

    place = require_store(command.store)
    formats = find_formats(command)
    if command.lake:
        broker = _find_name_in_lake(command, place)
        stores = find_stores(place, broker, formats=formats)
    else:
        broker = command.broker
        stores = find_named_stores(place, broker, command.broker_conf, formats)
    confs = {store.broker: read_store_conf(command.broker_conf, store.broker) for store in stores}
    options = VerifyOptions(
        command.delay_levels,
        limit=command.findings,
        delay_levels_by_broker={
            broker: command.delay_levels or conf.delay_levels_ms
            for broker, conf in confs.items()
            if conf.delay_levels_ms
        },
    )
    return _verify_with_progress(command, stores, options, broker)


def _find_name_in_lake(command: Verify, store_path: str) -> str | None:
    """Return the name under which the lake has the store at a path, with which it is compared."""
    from commitlake.connectors.lake.archive_commits import read_last_commit
    from commitlake.jobs.arguments.broker_name import choose_broker_name
    from commitlake.jobs.arguments.unknown_lake_names import warn_of_unknown_broker

    last = read_last_commit(open_lake_argument(command))
    known = () if last is None else tuple(last.stores)
    warn_of_unknown_broker("commitlake verify", command.broker, known)
    layouts = find_formats(command)
    return choose_broker_name(store_path, command.broker, command.broker_conf, known, layouts).name


def _verify_with_progress(
    command: Verify, stores: Sequence[Store], options: VerifyOptions, broker: str | None
) -> list[StoreReport]:
    from commitlake.jobs.cli.progress import runner_progress
    from commitlake.pipelines.verify.store_verification import verify_stores

    lake = open_lake_argument(command) if command.lake else None
    runner = make_runner(command, "verify")
    size = sum(segment.file_size for store in stores for segment in store.segments)
    with runner_progress(runner, f"verifying {command.store}", size, quiet=command.quiet) as advance:
        reports = verify_stores(stores, options, runner=runner, advance=advance)
        if lake is not None:
            from commitlake.jobs.verify.lake_comparison import add_lake_findings

            add_lake_findings(runner, lake, require_store(command.store), broker, reports, find_formats(command))
    return reports


build_parser, main = Verify.parser, Verify.main
