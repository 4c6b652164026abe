"""Compare what was archived with what is there: store, tables, packs and HBase, window by window.

    commitlake audit --lake /data/lake --store /data/rocketmq/store

For each topic, queue and window of ten minutes: messages, bytes, first and last offsets, and a checksum in which every
message is. `messages` is compared with what the archive's runs counted when they read the log, with the bodies in the
packs (each is read, and compared with its CRC), with the store as far as it still has what was archived, and with
HBase. One message less anywhere is a difference. The tables' data files, and the tables that follow `messages`, are
looked at as `pipelines.audit.tables` says. What has expired is none: what maintain drops it writes down, and
--bodies-kept and --hbase-kept say what a lifecycle rule or HBase drops by itself. All sides are of one version of
`messages`, so that an archive may go on beside it.

Exit codes: 0 where all are the same; 1 where a run has committed and is not finished; 2 for a wrong store or lake, or
where there is nothing to compare; 3 where something differs.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from commitlake.connectors.lake.paths import LakePaths
from commitlake.jobs.cli.broker_name import broker_name
from commitlake.jobs.cli.combinations import check_has_effect
from commitlake.jobs.cli.command import JobError, job_parser, run_job
from commitlake.jobs.cli.durations import parse_duration
from commitlake.jobs.cli.layouts import add_layout_argument, layout_of
from commitlake.jobs.cli.places import add_place_arguments, bodies_of, lake_of
from commitlake.jobs.cli.progress import runner_progress
from commitlake.jobs.cli.times import join_times, parse_time
from commitlake.pipelines.audit.moment import read_moment, wait_for_hbase
from commitlake.pipelines.audit.tables import (
    TableFinding,
    compare_message_keys,
    compare_runs,
    damaged_files,
    finding_lines,
    prevents_comparison,
)
from commitlake.schemas.errors import ExitCode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from commitlake.connectors.formats.engine.plan import StoreRange
    from commitlake.pipelines.audit.moment import Moment
    from commitlake.pipelines.audit.sides import Sides, Span
    from commitlake.pipelines.audit.verdicts import Verdict

DESCRIPTION = (
    "Tell whether everything that was archived is there, and the same everywhere: what the runs counted, the table "
    "messages, the bodies in the packs, the store as far as it still has it, and HBase."
)
EXAMPLES = (
    ("audit --lake /data/lake", "the lake by itself, bodies included"),
    ("audit --lake /data/lake --store '/mnt/brokers/{broker}/store'", "and with the brokers' logs"),
    ("audit --lake /data/lake --from -1d --no-bodies --output json", "the last day, without reading the packs"),
    ("audit --lake /data/lake --deep", "and every page of every data file, with its checksum"),
    ("audit --lake /data/lake --hbase hbase-thrift:9090", "and with HBase"),
)
_BODY_FIGURES = ("messages", "bytes", "body_bytes", "checksum")


def build_parser() -> argparse.ArgumentParser:
    """The job's arguments."""
    parser = job_parser("audit", DESCRIPTION, EXAMPLES)
    add_place_arguments(parser)
    store_help = "stores to compare with, as for archive; they may have lost what was archived long ago"
    parser.add_argument("--store", metavar="PATH", help=store_help)
    parser.add_argument("--broker", help="the store's name, where the path does not tell it")
    add_layout_argument(parser)
    time_help = "{} stored from then on, in whole windows: 2026-11-20T14:00, 2026-11-20, ms since 1970, now, or -2h"
    parser.add_argument("--from", dest="first", type=parse_time, metavar="TIME", help=time_help.format("messages"))
    parser.add_argument("--to", dest="last", type=parse_time, metavar="TIME", help=time_help.format("no messages"))
    parser.add_argument("--no-bodies", action="store_true", help="do not read the packs")
    kept_help = "older {} may have expired by {}: {}"
    bodies_help = kept_help.format("bodies", "a lifecycle rule (what maintain drops is known)", "30d")
    parser.add_argument("--bodies-kept", type=parse_duration, metavar="TIME", help=bodies_help)
    deep_help = "read every page of every data file, and compare it with its checksum"
    parser.add_argument("--deep", action="store_true", help=deep_help)
    parser.add_argument("--hbase", metavar="HOST[:PORT]", help="compare with HBase, by its Thrift server")
    parser.add_argument("--hbase-table", metavar="NAME", help="its table there (default: commitlake_messages)")
    hbase_help = kept_help.format("messages", "HBase's ttlSeconds", "90d")
    parser.add_argument("--hbase-kept", type=parse_duration, metavar="TIME", help=hbase_help)
    parser.add_argument("--output", choices=("table", "json"), default="table", help="default: table")
    return parser


def job(arguments: argparse.Namespace) -> ExitCode:
    """Compare, tell, and say whether all is the same."""
    check_has_effect(arguments, ["broker", "layout"], "store")
    check_has_effect(arguments, ["hbase-table", "hbase-kept"], "hbase")
    if arguments.no_bodies and arguments.bodies_kept is not None:
        raise JobError("--bodies-kept has no effect with --no-bodies", "leave one of them out")
    lake = lake_of(arguments)
    bodies = _bodies_of(arguments, lake)
    moment = read_moment(lake)
    if arguments.store:
        known, layouts = moment.commit.stores, layout_of(arguments).formats
        arguments.broker = broker_name(arguments.store, arguments.broker, None, known, layouts).name
    ranges, store_notes = _ranges_of(arguments, moment)
    findings = [*damaged_files(lake, deep=arguments.deep)]
    if prevents_comparison(findings):
        _print(arguments, [], findings, ["nothing else was compared: the tables cannot be read"])
        return ExitCode.DAMAGE
    findings += compare_runs(lake, moment)
    from commitlake.connectors.runtime.spark_runner import SparkRunner
    from commitlake.jobs.cli.runner import open_session
    from commitlake.pipelines.audit.sides import Sides, Span
    from commitlake.pipelines.audit.verdicts import cached

    spark = open_session("audit", lake.s3)
    span = Span(arguments.first, arguments.last).whole_windows()
    sides = Sides(spark, lake, bodies, span.since(moment.expired.get("messages")), moment)
    verdicts = []
    showing = runner_progress(SparkRunner(spark), f"auditing {lake.root}", 0, quiet=arguments.quiet)
    with showing, cached(sides.messages()) as messages:
        verdicts.append(_compare_runs(sides, messages, _notes_of(arguments, span, sides.span)))
        if not arguments.no_bodies:
            verdicts.append(_compare_packs(sides, arguments.bodies_kept))
        if arguments.store:
            verdicts.append(_compare_store(sides, arguments, ranges, store_notes))
        if arguments.hbase:
            verdicts.append(_compare_hbase(sides, messages, arguments))
        of_keys, note = ([], "") if _is_damaged("message_keys", findings) else compare_message_keys(sides)
    findings += of_keys
    _print(arguments, verdicts, findings, [note] if note else [])
    if not any(verdict.compared for verdict in verdicts):
        raise JobError("there was nothing to compare", "Name a store with --store, or leave out --no-bodies")
    return ExitCode.DAMAGE if findings or any(verdict.differing for verdict in verdicts) else ExitCode.OK


def _is_damaged(table: str, findings: Sequence[TableFinding]) -> bool:
    return any(finding.table == table for finding in findings)


def _print(
    arguments: argparse.Namespace, verdicts: Sequence[Verdict], findings: Sequence[TableFinding], notes: Sequence[str]
) -> None:
    """Print what was compared; as JSON, a table's damage is an element of its own."""
    from commitlake.pipelines.audit.verdicts import as_json, as_text

    if arguments.output == "json":
        print(as_json([*verdicts, *findings]))
        return
    whole = [] if findings else ["whole       the tables' data files, and what the runs have written"]
    print("\n".join([*whole, *([as_text(verdicts)] if verdicts else []), *finding_lines(findings), *notes]))


def _bodies_of(arguments: argparse.Namespace, lake: LakePaths) -> str:
    """The root of the packs, or a refusal before Spark starts."""
    from commitlake.connectors.lake.packs.stores import open_store

    root = bodies_of(arguments, lake)
    open_store(root)
    return root


def _ranges_of(arguments: argparse.Namespace, moment: Moment) -> tuple[Mapping[str, StoreRange], Sequence[str]]:
    """What of the stores can be compared, and what is to be said of it; a refusal where there is nothing."""
    if not arguments.store:
        return {}, ()
    from commitlake.pipelines.audit.sides import ranges_in_store

    ranges, notes = ranges_in_store(arguments.store, arguments.broker, moment.commit.stores, layout_of(arguments))
    if not ranges:
        raise JobError(f"the store and the lake have nothing in common: {'; '.join(notes)}", "Is it the right --store?")
    return ranges, notes


def _notes_of(arguments: argparse.Namespace, span: Span, kept: Span) -> list[str]:
    """What all sides leave out, where that is not just what was asked for."""
    notes = []
    if (span.first, span.last) != (arguments.first, arguments.last):
        notes.append(f"compared in whole windows of ten minutes: {span}")
    if kept != span:
        notes.append(f"messages that were stored before {kept.first:%Y-%m-%d} have expired, and are left out")
    return notes


def _compare_runs(sides: Sides, messages: DataFrame, notes: Sequence[str]) -> Verdict:
    """What the runs counted, as far as they did, and the table."""
    from commitlake.pipelines.audit.verdicts import Verdict, cached, compare, count_messages

    names = ("runs", "messages")
    counted = sides.counted()
    if counted is None:
        reason = "no run has a profile of what it took: all were archived with --no-quality, or the profiles expired"
        return Verdict(*names, notes=[*notes, reason], compared=False)
    if counted.stretches is None:
        return compare(names, sides.archived(), messages, notes=notes)
    with cached(counted.stretches) as stretches, cached(sides.messages(stretches)) as found:
        left_out = count_messages(messages)[1] - count_messages(found)[1]
        reason = (
            f"{left_out:,} messages are left out: {counted.runs:,} runs have no profile of what they took, as with "
            "--no-quality, or it has expired"
        )
        return compare(names, sides.archived(), found, notes=[*notes, *([reason] if left_out else [])])


def _compare_packs(sides: Sides, kept: datetime.timedelta | None) -> Verdict:
    """The table, and what the packs really hold; a maintain that takes packs away meanwhile is no difference."""
    from pyspark.sql import functions as F

    from commitlake.connectors.lake.delta import delta_table
    from commitlake.pipelines.audit.verdicts import SHOWN, cached, compare
    from commitlake.pipelines.maintenance.expiry import read_expiries
    from commitlake.pipelines.transforms.profile import to_profile

    since = _kept_since(sides.moment.expired, kept)
    while True:
        notes = [] if since is None else [f"bodies of messages stored before {since} may have expired: left out"]
        messages, found = sides.with_bodies(since)
        with cached(found) as rows:
            broken = rows.where(F.col("error").isNotNull()).limit(SHOWN).collect()
            notes += [f"{row['broker']} {row['physical_offset']}: {row['error']}" for row in broken]
            verdict = compare(("messages", "packs"), messages, to_profile(rows), _BODY_FIGURES, notes)
        before, since = since, _kept_since(read_expiries(delta_table(sides.lake.messages)), kept)
        if not verdict.differing or since == before:
            return verdict


def _compare_store(
    sides: Sides, arguments: argparse.Namespace, ranges: Mapping[str, StoreRange], notes: Sequence[str]
) -> Verdict:
    """The store, and the table; a broker that deletes its oldest segments meanwhile is no difference."""
    from commitlake.pipelines.audit.verdicts import compare

    while True:
        store = sides.store(arguments.store, arguments.broker, ranges, layout_of(arguments))
        verdict = compare(("store", "messages"), store, sides.messages(sides.stretches(ranges)), notes=notes)
        before = ranges
        ranges, notes = _ranges_of(arguments, sides.moment)
        if not verdict.differing or ranges == before:
            return verdict


def _kept_since(expired: Mapping[str, datetime.date], kept: datetime.timedelta | None) -> datetime.date | None:
    """The first date of which all bodies must be there, or None where that is so of all."""
    dates = [expired[what] for what in ("messages", "bodies") if what in expired]
    if kept is not None:
        dates.append((datetime.datetime.now(datetime.UTC) - kept).date())
    return max(dates, default=None)


def _compare_hbase(sides: Sides, messages: DataFrame, arguments: argparse.Namespace) -> Verdict:
    """The table, and HBase."""
    from commitlake.connectors.hbase import register_hbase
    from commitlake.connectors.hbase.client import Client
    from commitlake.connectors.hbase.options import Options
    from commitlake.connectors.hbase.progress import read_progress
    from commitlake.pipelines.audit.verdicts import compare

    options = Options.of_address(arguments.hbase, **({"table": arguments.hbase_table} if arguments.hbase_table else {}))

    def version_there() -> int | None:
        with Client(options) as client:
            progress = read_progress(client)
        return None if progress is None else progress.version

    wait_for_hbase(version_there, sides.moment)
    notes = []
    if arguments.hbase_kept is not None:
        since = (datetime.datetime.now(datetime.UTC) - arguments.hbase_kept).date()
        notes.append(f"messages that were stored before {since} may have expired there: left out")
        sides = replace(sides, span=sides.span.since(since))
        messages = sides.messages()
    register_hbase(sides.spark)
    place = {"host": options.host, "port": str(options.port), "table": options.table}
    return compare(("messages", "hbase"), messages, sides.hbase(place), notes=notes)


def main(argv: Sequence[str] | None = None) -> int:
    """`commitlake audit`."""
    arguments = join_times(sys.argv[1:] if argv is None else argv, "--from", "--to")
    return run_job(build_parser(), job, arguments)
