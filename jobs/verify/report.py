"""The report of verify: stores, findings, and what to do; also its rows for JSON and CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.storage.uris import is_uri
from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.report.findings import SHOWN_EXAMPLES, Example, FindingGroup, findings_section
from commitlake.jobs.report.page_file import join_names, left_out_text
from commitlake.jobs.report.rows_output import Row, write_rows
from commitlake.jobs.report.text_blocks import print_sections
from commitlake.jobs.report.value_decoding import decode_value, ms_to_time_text, offset_text
from commitlake.pipelines.verify.finding_classes import CLASSES, FindingClass, Severity
from commitlake.pipelines.verify.findings import Finding, Findings
from commitlake.pipelines.verify.store_verification import StoreReport, join_findings
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.finding_advice import FilledAdvice
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report import Badge, Cell, KeyFigures, Kind, MutedText, Name, Report, Section, Table, Verdict
from commitlake.schemas.report_columns import Column

TITLE = "Stores verified"
MAX_STORES = 200
"""Largest number of stores that are listed, the worst first."""
MAX_ADVISED_STORES = 5
"""Largest number of stores for which commands are given for one class of findings."""
FINDING_COLUMNS = ("severity", "class", "count", "store", "place", "found", "expected")
_SHOWN_AND_FOLDED = (slice(SHOWN_EXAMPLES), slice(SHOWN_EXAMPLES, None))
_KINDS = {Severity.DAMAGE: Kind.CRITICAL, Severity.REPAIRABLE: Kind.WARNING, Severity.INFO: Kind.INFO}
_WORDS = {Kind.GOOD: "Sound", Kind.INFO: "Sound", Kind.WARNING: "Repairable", Kind.CRITICAL: "Damaged"}


@dataclass(frozen=True, slots=True)
class FindingRemedies:
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


def print_report(output_format: str, report: Report, stores: Sequence[StoreReport], remedies: FindingRemedies) -> None:
    """Print all stores to standard output: findings as text, JSON (a row per store), or CSV of findings."""
    if output_format in {"json", "jsonl"}:
        write_rows(output_format, (_store_json_object(store, remedies) for store in stores), [])
    elif output_format == "csv":
        write_rows(output_format, _finding_rows(stores), FINDING_COLUMNS)
    elif any(store.findings.counts for store in stores):
        print_sections(report, "findings")


def verify_report(reports: Sequence[StoreReport], remedies: FindingRemedies | None = None) -> Report:
    """Return the report of `verify` on all stores.

    Args:
        remedies: Advice for these stores; by default without a lake.
    """
    remedies = remedies or FindingRemedies()
    together = join_findings(reports)
    groups = [_finding_group(CLASSES[code], reports, remedies) for code in CLASSES if code in together.codes]
    sections = [
        Section("read", "What was read", [_verification_figures(reports, together)]),
        findings_section(groups, "No damage was found."),
        Section("stores", "Stores", [_stores_table(reports)]),
    ]
    facts = [
        ("Broker" if len(reports) == 1 else "Brokers", join_names([report.broker for report in reports])),
        ("Folder" if len(reports) == 1 else "Folders", join_names([report.root for report in reports], 3)),
        ("Messages stored", _period_text(reports)),
    ]
    if remedies.lake is not None:
        facts.insert(0, ("Lake", remedies.lake.root))
    return Report(TITLE, _verify_verdict(together, len(reports)), facts, sections, "verify")


def _verify_verdict(findings: Findings, store_count: int) -> Verdict:
    kind = _worst_severity_kind(findings)
    is_sound = kind in {Kind.GOOD, Kind.INFO}
    counts = {severity: findings.count_by_severity(severity) for severity in Severity}
    found = ", ".join(f"{count:,} {severity}" for severity, count in counts.items() if count) or "nothing found"
    sentence = f"{format_count(store_count, 'store')}: {'sound' if is_sound else 'not sound'}, {found}"
    return Verdict(kind, sentence, _WORDS[kind], ExitCode.OK if is_sound else ExitCode.DAMAGE)


def _worst_severity_kind(findings: Findings) -> Kind:
    return Kind.GOOD if findings.worst_severity is None else _KINDS[findings.worst_severity]


def _period_text(reports: Sequence[StoreReport]) -> str:
    first = min((report.first_time for report in reports if report.first_time is not None), default=None)
    last = max((report.last_time for report in reports if report.last_time is not None), default=None)
    if first is None or last is None:
        return "there is no message"
    return f"{ms_to_time_text(first).removesuffix(' UTC')} to {ms_to_time_text(last)}"


def _verification_figures(reports: Sequence[StoreReport], all_findings: Findings) -> KeyFigures:
    figures = {
        "records": f"{sum(report.records for report in reports):,}",
        "log": size_text(sum(report.bytes for report in reports)),
        "segments": f"{sum(report.segments for report in reports):,}",
        "queues": f"{sum(report.queues for report in reports):,}",
        "index files": f"{sum(report.index_files for report in reports):,}",
        "consumer groups": f"{sum(report.groups for report in reports):,}",
    }
    return KeyFigures(
        figures | {str(severity): f"{all_findings.count_by_severity(severity):,}" for severity in Severity}
    )


def _finding_group(
    finding_class: FindingClass, reports: Sequence[StoreReport], remedies: FindingRemedies
) -> FindingGroup:
    """Return the findings of a class in all stores; the first ones of each store are shown at once."""
    code = finding_class.code
    found = [report for report in reports if report.findings.counts[code]]
    counts = {report.broker: report.findings.counts[code] for report in found}
    kept = [report.findings.kept.get(code, []) for report in found]
    shown, folded = ([each for one in kept for each in one[part]] for part in _SHOWN_AND_FOLDED)
    by_store = join_names([f"{broker}: {count:,}" for broker, count in counts.items()])
    return FindingGroup(
        _KINDS[finding_class.severity],
        code.replace("_", " ").capitalize(),
        sum(counts.values()),
        finding_class.cause,
        remedies.advice_for(finding_class, found),
        [_finding_example(finding) for finding in (*shown, *folded)],
        word=str(finding_class.severity).capitalize(),
        counted=f"{sum(counts.values()):,} found ({by_store})" if len(found) > 1 else "",
        code=code,
        shown_count=len(shown),
    )


def _finding_example(finding: Finding) -> Example:
    words = [f"store {finding.broker}", finding.file]
    if finding.position is not None:
        words.append(f"byte {offset_text(finding.position)}")
    if finding.queue:
        words.append(f"queue {finding.queue}")
    if finding.number is not None:
        words.append(f"number {finding.number}")
    if finding.physical_offset is not None and finding.physical_offset != finding.position:
        words.append(f"physical offset {offset_text(finding.physical_offset)}")
    where = ", ".join(word for word in words if word)
    return Example(where, decode_value(finding.found, finding.code), decode_value(finding.expected, finding.code))


def _stores_table(reports: Sequence[StoreReport]) -> Table:
    columns = [
        Column("store"), Column("verdict"), Column("records", is_number=True),
        Column("log", is_number=True, text=size_text), Column("queues", is_number=True),
        *(Column(severity, is_number=True) for severity in Severity),
    ]  # fmt: skip
    order = sorted(reports, key=lambda report: [-report.findings.count_by_severity(severity) for severity in Severity])
    rest = left_out_text(len(order) - MAX_STORES, "store")
    return Table.of("The worst store first", columns, map(_store_row, order[:MAX_STORES]), rest)


def _store_row(report: StoreReport) -> dict[str, object]:
    kind = _worst_severity_kind(report.findings)
    live = " a broker has it open" if report.is_live else ""
    return {
        "store": Cell((Name(report.broker), " ", MutedText(report.root))),
        "verdict": Cell((Badge(kind, _WORDS[kind]), live)),
        "records": report.records,
        "log": report.bytes,
        "queues": report.queues,
        **{severity: report.findings.count_by_severity(severity) for severity in Severity},
    }


def _finding_rows(reports: Sequence[StoreReport]) -> Iterator[Row]:
    """Yield a row for each finding that is kept."""
    for report in reports:
        for code, findings in report.findings.kept.items():
            for finding in findings:
                yield {
                    "severity": str(finding.finding_class.severity),
                    "class": code,
                    "count": str(report.findings.counts[code]),
                    "store": finding.broker,
                    "place": finding.place_text,
                    "found": finding.found,
                    "expected": finding.expected,
                }


def _store_json_object(report: StoreReport, remedies: FindingRemedies) -> dict[str, Any]:
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
