"""The page of verify: stores, findings, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.report.findings import Example, FindingGroup, findings_section
from commitlake.jobs.report.page_file import join_names, left_out_text
from commitlake.jobs.report.run_history import history_section, read_run_history
from commitlake.jobs.report.value_decoding import decode_value, ms_to_time_text, offset_text
from commitlake.jobs.verify.report import Remedies, reports_with_finding
from commitlake.pipelines.verify.finding_classes import CLASSES, FindingClass, Severity
from commitlake.pipelines.verify.findings import Finding, Findings, make_verdict
from commitlake.pipelines.verify.store_verification import StoreReport, join_findings
from commitlake.schemas.finding_advice import FilledAdvice
from commitlake.schemas.report import Badge, Cell, Figures, Kind, MutedText, Name, Report, Section, Table, Verdict
from commitlake.schemas.report_columns import Column

TITLE = "Stores verified"
MAX_STORES = 200
"""Largest number of stores that are listed, the worst first."""
_KINDS = {Severity.DAMAGE: Kind.CRITICAL, Severity.REPAIRABLE: Kind.WARNING, Severity.INFO: Kind.INFO}
_WORDS = {Kind.GOOD: "Sound", Kind.INFO: "Sound", Kind.WARNING: "Repairable", Kind.CRITICAL: "Damaged"}


def make_verify_page(reports: Sequence[StoreReport], remedies: Remedies | None = None) -> Report:
    """Return the page of `verify` about all stores.

    Args:
        remedies: Advice for these stores; by default without a lake.
    """
    remedies = remedies or Remedies()
    together = join_findings(reports)
    verdict = make_verdict(together, len(reports))
    kind = _KINDS[together.worst_severity] if together.worst_severity is not None else Kind.GOOD
    groups = [
        _finding_group(CLASSES[code], together, remedies.advice_for(CLASSES[code], reports_with_finding(code, reports)))
        for code in CLASSES
        if code in together.codes
    ]
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
        sections.append(history_section(read_run_history(remedies.lake)))
    text = verdict.text
    return Report(TITLE, Verdict(kind, text[:1].upper() + text[1:], _WORDS[kind]), facts, sections, "verify")


def _period_text(reports: Sequence[StoreReport]) -> str:
    first = min((report.first_time for report in reports if report.first_time is not None), default=None)
    last = max((report.last_time for report in reports if report.last_time is not None), default=None)
    if first is None or last is None:
        return "there is no message"
    return f"{ms_to_time_text(first).removesuffix(' UTC')} to {ms_to_time_text(last)}"


def _verification_figures(reports: Sequence[StoreReport], all_findings: Findings) -> Figures:
    figures = {
        "records": f"{sum(report.records for report in reports):,}",
        "log": size_text(sum(report.bytes for report in reports)),
        "segments": f"{sum(report.segments for report in reports):,}",
        "queues": f"{sum(report.queues for report in reports):,}",
        "index files": f"{sum(report.index_files for report in reports):,}",
        "consumer groups": f"{sum(report.groups for report in reports):,}",
    }
    return Figures(figures | {str(severity): f"{all_findings.count_by_severity(severity):,}" for severity in Severity})


def _finding_group(finding_class: FindingClass, findings: Findings, advice: FilledAdvice) -> FindingGroup:
    kept = findings.kept.get(finding_class.code, [])
    return FindingGroup(
        _KINDS[finding_class.severity],
        finding_class.code.replace("_", " ").capitalize(),
        findings.counts[finding_class.code],
        finding_class.cause,
        advice,
        [_finding_example(finding) for finding in kept],
        word=str(finding_class.severity).capitalize(),
        code=finding_class.code,
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
    worst = report.findings.worst_severity
    kind = Kind.GOOD if worst is None else _KINDS[worst]
    live = " a broker has it open" if report.is_live else ""
    return {
        "store": Cell((Name(report.broker), " ", MutedText(report.root))),
        "verdict": Cell((Badge(kind, _WORDS[kind]), live)),
        "records": report.records,
        "log": report.bytes,
        "queues": report.queues,
        **{severity: report.findings.count_by_severity(severity) for severity in Severity},
    }
