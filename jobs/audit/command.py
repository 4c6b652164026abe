"""Compare what was archived with stores, tables, packs and HBase, window by window.

    commitlake audit --lake /data/lake --store /data/rocketmq/store

For each topic, queue and window of ten minutes, it compares messages, bytes, first and last offsets, and a checksum
over all messages. `messages` is compared with what the archive's runs counted when they read the log, with the bodies
in the packs (each is read, and compared with its CRC), with the archived part of the store that still exists, and
with HBase. A single missing message is a difference. The tables' data files, and the tables that follow `messages`, are
checked by `pipelines.audit.table_checks`. Expired messages are not differences: maintain records what it deletes, and
--bodies-kept and --hbase-kept give the ages at which a lifecycle rule or HBase deletes. All sides are read at one
version of `messages`, so an archive may run at the same time. With --spark, tasks on Spark give the same result.

Exit codes: 0 if all sides are equal; 1 if a run has committed but is not finished; 2 for a wrong store or lake, or if
there is nothing to compare; 3 if there is a difference.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.jobs.arguments.broker_name import choose_broker_name
from commitlake.jobs.arguments.durations import parse_duration
from commitlake.jobs.arguments.evidence_key import EvidenceArgument, read_evidence_key, write_evidence
from commitlake.jobs.arguments.html_option import HtmlPageOption
from commitlake.jobs.arguments.lake_location import LakeArguments, open_lake_argument, open_packs
from commitlake.jobs.arguments.runner import ThreadArguments, make_runner
from commitlake.jobs.arguments.selection import TimeRange
from commitlake.jobs.arguments.store_layout import LayoutArgument, find_formats, layout_option
from commitlake.jobs.arguments.stores import StoreName, declare_broker_option
from commitlake.jobs.arguments.times import parse_time
from commitlake.jobs.audit.report import TITLE, audit_report
from commitlake.jobs.cli.command import Command, JobError
from commitlake.jobs.cli.options import flag, only_with, option, overrides
from commitlake.jobs.cli.progress import runner_progress
from commitlake.jobs.cli.terminal import print_line, print_text
from commitlake.jobs.report.output_formats import OutputArguments
from commitlake.jobs.report.page_file import PageFile
from commitlake.jobs.report.rows_output import write_varying_rows
from commitlake.jobs.report.text_blocks import print_sections
from commitlake.pipelines.audit.audited_ranges import AuditSpan
from commitlake.pipelines.audit.audited_versions import LakeState, read_lake_state
from commitlake.pipelines.audit.compared_sides import AuditSides, open_audit_sides
from commitlake.pipelines.audit.comparisons import (
    ComparedStores,
    compare_hbase,
    compare_packed_bodies,
    compare_run_counts,
    compare_store_logs,
)
from commitlake.pipelines.audit.table_checks import (
    TableFinding,
    compare_archive_runs,
    compare_contents,
    compare_edges,
    compare_message_keys,
    find_damaged_table_files,
    find_lost_messages,
    prevents_comparison,
)
from commitlake.pipelines.audit.topic_minutes_check import compare_minutes
from commitlake.pipelines.audit.topic_tables_check import compare_topic_tables
from commitlake.pipelines.audit.verdicts import AuditResult, AuditVerdict, collect_audit_evidence, to_json_objects
from commitlake.pipelines.audit.window_profiles import Profile
from commitlake.schemas.errors import ExitCode

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

DESCRIPTION = (
    "Check that every archived message is still there, and is the same everywhere: in the counts of the archive runs, "
    "the table messages, the packs of bodies, the store (as far as the broker still has it), and HBase."
)
EXAMPLES = (
    ("audit --lake /data/lake", "check the lake alone, bodies included"),
    ("audit --lake /data/lake --store '/mnt/brokers/{broker}/store'", "also compare with the brokers' logs"),
    ("audit --lake /data/lake --from -1d --no-bodies --format json", "check the last day, without reading the packs"),
    ("audit --lake /data/lake --spark", "use Spark instead of this machine's cores"),
    ("audit --lake /data/lake --deep", "also check the checksum of every page of every data file"),
    ("audit --lake /data/lake --html audit.html", "also write an HTML page"),
    ("audit --lake /data/lake --hbase hbase-thrift:9090", "also compare with HBase"),
)


_TIME_HELP = "{} stored from this time on, in windows of ten minutes: 2026-11-20T14:00, 2026-11-20, ms since 1970, -2h"
_KEPT_HELP = "older {} may have expired by {}: {}"


@dataclass(frozen=True, kw_only=True)
class Audit(
    Command,
    LakeArguments,
    StoreName,
    LayoutArgument,
    TimeRange,
    ThreadArguments,
    OutputArguments,
    HtmlPageOption,
    EvidenceArgument,
    after={
        StoreName: "broker",
        LayoutArgument: "broker",
        TimeRange: "layout",
        ThreadArguments: "hbase_kept",
        OutputArguments: "hbase_kept",
        HtmlPageOption: "hbase_kept",
        EvidenceArgument: "hbase_kept",
    },
):
    """The command `audit`, which compares archived messages with the bodies, the broker's store, and HBase."""

    NAME = "audit"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    store: str | None = option(
        "stores to compare with, as for archive; a store may have deleted old messages meanwhile", metavar="PATH"
    )
    broker: str | None = declare_broker_option(
        "the store's name in the lake, if the path does not give it", only_with("store")
    )
    layout: str | None = layout_option(rules=only_with("store"))
    start: datetime.datetime | None = option(_TIME_HELP.format("messages"), "--from", parse=parse_time, metavar="TIME")
    end: datetime.datetime | None = option(_TIME_HELP.format("no messages"), "--to", parse=parse_time, metavar="TIME")
    no_bodies: bool = flag("do not read the packs", rules=overrides("bodies_kept", hint="leave one of them out"))
    bodies_kept: datetime.timedelta | None = option(
        _KEPT_HELP.format("bodies", "a lifecycle rule (deletions by maintain are known)", "30d"),
        parse=parse_duration,
        metavar="TIME",
    )
    deep: bool = flag("read every page of every data file, and check its checksum")
    hbase: str | None = option("compare with HBase, through its Thrift server", metavar="HOST[:PORT]")
    hbase_table: str | None = option(
        "name of the table in HBase (default: commitlake_messages)", metavar="NAME", rules=only_with("hbase")
    )
    hbase_kept: datetime.timedelta | None = option(
        _KEPT_HELP.format("messages", "HBase's ttlSeconds", "90d"),
        parse=parse_duration,
        metavar="TIME",
        rules=only_with("hbase"),
    )

    def run(self) -> ExitCode:
        """Run the audit, print the result, and return an exit code."""
        lake = open_lake_argument(self)
        facts = [("Lake", lake.root), *([("Store", self.store)] if self.store else [])]
        with self.open_page("audit", TITLE, facts, lake) as file:
            return _run_audit(self, lake, file)


def _run_audit(command: Audit, lake: Lake, page_file: PageFile | None) -> ExitCode:
    key = read_evidence_key(command)
    open_packs(lake)  # fails for an invalid place before much is read
    moment = read_lake_state(lake)
    reading = lake.pin_versions()
    span = AuditSpan(command.start, command.end).whole_windows()
    stores = _find_compared_stores(command, moment)
    ranges, store_notes = stores.find_common_ranges(moment) if stores else ({}, ())
    # Spark is not started for a lake with missing files, unless all files are read anyway.
    reads_much = not command.is_on_spark or command.deep
    runner = make_runner(command, "audit") if reads_much else HERE
    findings = find_damaged_table_files(reading, is_deep=command.deep, runner=runner)
    if prevents_comparison(findings):
        notes = ["nothing else was compared, because the tables cannot be read"]
        return _publish_result(command, lake, AuditResult(moment, span, [], findings, notes), page_file, key)
    findings += compare_archive_runs(reading, moment, {finding.table for finding in findings})
    if not reads_much:
        runner = make_runner(command, "audit")
    with (
        runner_progress(runner, f"auditing {lake.root}", 0, quiet=command.quiet),
        open_audit_sides(runner, reading, span.limit_to_dates_from(moment.expired.get("messages")), moment) as sides,
        sides.profile_messages() as messages,
    ):
        runs_notes = _time_range_notes(command, span, sides.span)
        comparisons: list[Callable[[], Any]] = [partial(compare_run_counts, sides, messages, runs_notes)]
        if not command.no_bodies:
            comparisons.append(partial(compare_packed_bodies, sides, command.bodies_kept))
        if stores:
            comparisons.append(partial(compare_store_logs, sides, stores, ranges, store_notes))
        if command.hbase:
            comparisons.append(partial(_compare_hbase, sides, messages, command, command.hbase))
        compares_keys = not _has_finding_for_table("message_keys", findings)
        if compares_keys:
            comparisons.append(partial(compare_message_keys, sides))
        verdicts = runner.run_concurrently(comparisons)
        of_keys, note = verdicts.pop() if compares_keys else ([], "")
    of_minutes, minutes_note = (
        ([], "") if _has_finding_for_table("topic_minutes", findings) else compare_minutes(reading, moment)
    )
    of_edges, edges_note = ([], "") if _has_finding_for_table("edges", findings) else compare_edges(lake, moment)
    if span.first is not None or span.last is not None:
        verdicts = [replace(verdict, compared=verdict.windows > 0) for verdict in verdicts]
    damaged = {finding.table for finding in findings}
    of_contents, content_notes = compare_contents(lake, damaged, runner)
    findings += [*of_contents, *of_keys, *of_minutes, *of_edges, *find_lost_messages(reading, span)]
    notes = [each for each in (note, minutes_note, edges_note, *content_notes) if each]
    topics = compare_topic_tables(reading, moment, span, {finding.table for finding in findings})
    findings += [finding for each in topics for finding in each.to_finding()]
    notes += [f"{each.table} {line}" for each in topics for line in each.notes]
    result = AuditResult(moment, span, verdicts, findings, notes, topics)
    return _publish_result(command, lake, result, page_file, key)


def _publish_result(
    command: Audit, lake: Lake, result: AuditResult, file: PageFile | None, key: Ed25519PrivateKey | None
) -> ExitCode:
    """Write an audit's page, print its result, sign evidence of it, and return the exit code.

    Raises:
        JobError: There was nothing to compare.
    """
    report = audit_report(result, lake)
    if file is not None:
        file.write(report, lake)
    if command.output == "table":
        print_sections(report, "compared", "topics", "findings", "notes")
        print_text(report.verdict.sentence)
    else:
        write_varying_rows(command.output, to_json_objects([*result.verdicts, *result.findings, *result.topics]))
    if not result.findings and not any(verdict.compared for verdict in result.verdicts):
        is_empty = any(not verdict.windows for verdict in result.verdicts)
        why = f": no message was stored in this time, {result.span}" if is_empty else ""
        raise JobError(
            f"the audit found nothing to compare{why}",
            "Name another time" if is_empty else "Name a store with --store, or leave out --no-bodies",
        )
    code = report.verdict.exit_code
    if key is not None:
        facts = collect_audit_evidence(result) | {"exit_code": int(code), "store": command.store}
        line = write_evidence(lake, key, "audit", [facts])
        if line is not None and not command.quiet:
            print_line(line)
    return code


def _has_finding_for_table(table: str, findings: Sequence[TableFinding]) -> bool:
    return any(finding.table == table for finding in findings)


def _find_compared_stores(command: Audit, moment: LakeState) -> ComparedStores | None:
    """Return the stores to compare with, under their names in the lake."""
    if not command.store:
        return None
    layout = find_formats(command)
    name = choose_broker_name(command.store, command.broker, None, moment.commit.stores, layout).name
    return ComparedStores(command.store, name, layout)


def _time_range_notes(command: Audit, requested_span: AuditSpan, compared_span: AuditSpan) -> list[str]:
    """Return sentences on how the compared time range differs from the requested one."""
    notes = []
    if (requested_span.first, requested_span.last) != (command.start, command.end):
        notes.append(f"compared in whole windows of ten minutes: {requested_span}")
    if compared_span != requested_span:
        notes.append(f"messages stored before {compared_span.first:%Y-%m-%d} have expired, and are not compared")
    return notes


def _compare_hbase(sides: AuditSides, messages: Profile, command: Audit, address: str) -> AuditVerdict:
    """Compare the table `messages` with HBase."""
    from commitlake.connectors.hbase.client import Client
    from commitlake.connectors.hbase.options import HBaseOptions
    from commitlake.connectors.hbase.progress import read_progress

    options = HBaseOptions.of_address(address, **({"table": command.hbase_table} if command.hbase_table else {}))

    def read_hbase_version() -> int | None:
        with Client(options) as client:
            progress = read_progress(client)
        return None if progress is None else progress.version

    return compare_hbase(sides, messages, options, read_hbase_version, command.hbase_kept)


build_parser, main = Audit.parser, Audit.main
