"""The output of verify: a row for each class of findings and its first examples, or everything as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.storage.uris import is_uri
from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.cli.terminal import print_text
from commitlake.jobs.report.rows_output import Row, write_rows, write_table
from commitlake.pipelines.verify.finding_classes import CLASSES, FindingClass, Severity
from commitlake.pipelines.verify.findings import Finding, make_verdict
from commitlake.pipelines.verify.store_verification import StoreReport, join_findings
from commitlake.schemas.count_texts import format_count
from commitlake.schemas.finding_advice import FilledAdvice
from commitlake.schemas.report_columns import Column

_SHOWN = 3
MAX_ADVISED_STORES = 5
"""Largest number of stores for which commands are given for one class of findings."""
FINDING_COLUMNS = (
    Column("severity", 2), Column("class"), Column("count", is_number=True), Column("store", 3), Column("place"),
    Column("found"), Column("expected", 1),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Remedies:
    """Advice on findings of `verify`, with commands for the stores that have these findings.

    Attributes:
        lake: The lake that the stores were compared with, if any.
        settings: The options for reading the stores, which `rebuild` needs as well.
    """

    lake: Lake | None = None
    settings: Sequence[str] = ()

    def advice_for(self, finding_class: FindingClass, reports: Sequence[StoreReport]) -> FilledAdvice:
        """Return the advice on a class of findings, with commands for the stores of the given reports."""
        advice = finding_class.action
        if finding_class.action_without_salvage is not None and not all(report.can_salvage for report in reports):
            advice = finding_class.action_without_salvage
        return advice.fill_for_each_place(
            [self._advice_placeholders(report) for report in reports[:MAX_ADVISED_STORES]]
        )

    def _advice_placeholders(self, report: StoreReport) -> dict[str, str | list[str]]:
        # Nothing but `ship` writes into a copy in an object store, so its repaired files go to a folder.
        is_remote = is_uri(report.root)
        places: dict[str, str | list[str]] = {
            "store": report.root,
            "into": ["--out", "rebuilt", *self.settings] if is_remote else ["--in-place", *self.settings],
            "salvaged": "salvaged" if is_remote else f"{report.root}-salvaged",
            "named": [] if self.lake is None else ["--broker", report.broker],
        }
        return places if self.lake is None else places | {"lake": self.lake.root}


def print_report(output_format: str, reports: Sequence[StoreReport], remedies: Remedies) -> None:
    """Print all stores to standard output: a table with explanations, JSON (a row per store), or CSV of findings."""
    if output_format in {"json", "jsonl"}:
        write_rows(output_format, (_store_json_object(report, remedies) for report in reports), [])
        return
    if output_format == "csv":
        write_rows(output_format, _all_finding_rows(reports), FINDING_COLUMNS)
        return
    write_table(_first_finding_rows(reports), FINDING_COLUMNS, sys.stdout)
    for line in _explanation_lines(reports, remedies):
        print_text(line)


def _first_finding_rows(reports: Sequence[StoreReport]) -> Iterator[Row]:
    """Yield the first findings of each class and store, the worst class first, with the number of all such findings."""
    for severity in Severity:
        for code, kind in CLASSES.items():
            if kind.severity is not severity:
                continue
            for report in reports:
                count = report.findings.counts[code]
                for place, finding in enumerate(report.findings.kept.get(code, ())[:_SHOWN]):
                    yield _finding_row(finding, f"{count:,}" if place == 0 else "", is_first=place == 0)


def _all_finding_rows(reports: Sequence[StoreReport]) -> Iterator[Row]:
    """Yield a row for each listed finding, with all columns."""
    for report in reports:
        for code, findings in report.findings.kept.items():
            for finding in findings:
                yield _finding_row(finding, str(report.findings.counts[code]), is_first=True)


def _finding_row(finding: Finding, count: str, *, is_first: bool) -> Row:
    return {
        "severity": str(finding.finding_class.severity) if is_first else "",
        "class": finding.code if is_first else "",
        "count": count,
        "store": finding.broker,
        "place": finding.place_text,
        "found": finding.found,
        "expected": finding.expected,
    }


def _explanation_lines(reports: Sequence[StoreReport], remedies: Remedies) -> Iterator[str]:
    codes = join_findings(reports).codes
    for severity in Severity:
        for code, kind in CLASSES.items():
            if code in codes and kind.severity is severity:
                yield f"\n{code} ({severity}): {kind.cause}."
                advice = remedies.advice_for(kind, reports_with_finding(code, reports))
                yield f"  What to do: {advice.sentence}."
                for command in advice.others:
                    yield f"  Likewise: {command.line}"


def reports_with_finding(finding_code: str, reports: Sequence[StoreReport]) -> list[StoreReport]:
    """Return the reports that have at least one finding with the given code."""
    return [report for report in reports if report.findings.counts[finding_code]]


def summary(reports: Sequence[StoreReport]) -> str:
    """Return the last line of the report."""
    together = join_findings(reports)
    records, size = sum(report.records for report in reports), sum(report.bytes for report in reports)
    queues = sum(report.queues for report in reports)
    return (
        f"{format_count(records, 'record')} in {size_text(size)} and {format_count(queues, 'queue')}; "
        f"{make_verdict(together, len(reports)).text}"
    )


def _store_json_object(report: StoreReport, remedies: Remedies) -> dict[str, Any]:
    findings = report.findings
    return {
        "broker": report.broker,
        "root": report.root,
        "is_live": report.is_live,
        "segments": report.segments,
        "bytes": report.bytes,
        "records": report.records,
        "queues": report.queues,
        "index_files": report.index_files,
        "groups": report.groups,
        "counts": {code: findings.counts[code] for code in CLASSES if code in findings.codes},
        "findings": [
            _finding_json_object(finding, remedies.advice_for(finding.finding_class, [report])) for finding in findings
        ],
    }


def _finding_json_object(finding: Finding, advice: FilledAdvice) -> dict[str, Any]:
    kind = finding.finding_class
    return {
        "code": finding.code,
        "severity": str(kind.severity),
        "cause": kind.cause,
        "action": advice.sentence,
        "commands": [command.words for command in advice.commands],
        "file": finding.file or None,
        "position": finding.position,
        "physical_offset": finding.physical_offset,
        "queue": finding.queue or None,
        "number": finding.number,
        "found": finding.found,
        "expected": finding.expected,
    }
