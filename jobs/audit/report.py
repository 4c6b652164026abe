"""Report of `commitlake audit`: which places hold the same messages, where they differ, and what is damaged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.report.findings import Example, FindingGroup, findings_section
from commitlake.jobs.report.page_file import join_names, left_out_text, period_text
from commitlake.pipelines.audit.audited_ranges import AuditSpan
from commitlake.pipelines.audit.table_checks import REPAIR, TableFinding
from commitlake.pipelines.audit.topic_tables_check import TopicComparison
from commitlake.pipelines.audit.verdicts import AuditResult
from commitlake.pipelines.audit.verdicts import AuditVerdict as Comparison
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report import Badge, Block, KeyFigures, Kind, Name, Paragraph, Report, Section, Table, Verdict
from commitlake.schemas.report_columns import Column

TITLE = "Audit of a lake"
_MAX_NOTES = 100
_SIDES = {
    "runs": "the runs' counts",
    "messages": "the table messages",
    "packs": "the packs",
    "store": "the stores",
    "hbase": "HBase",
}
_DIFFERENCES = {
    "missing": ("Missing", "These windows are in {expected} and not in {found}"),
    "unexpected": ("Unexpected", "These windows are in {found} and not in {expected}"),
    "different": (
        "Different",
        "These windows differ between {expected} and {found}; the checksum covers every value",
    ),
}
_SAME = "Every message is in every place, and the same. "
_WHOLE = "The tables' data files are whole, and so is what the runs have written."
_COMPARE = REPAIR.with_prefix("compare with --store while the broker still has the messages; ")
_BYTE_FIGURES = ("bytes", "body_bytes")
_TOPIC_COLUMNS = (
    Column("table"), Column("version", 5, is_number=True), Column("verdict"), Column("messages", is_number=True),
    Column("rows", is_number=True), Column("misfits", is_number=True), Column("erased", 3, is_number=True),
    Column("not yet", 2, key="pending", is_number=True), Column("hours", 4, is_number=True),
    Column("differing hours", 1, key="differing", is_number=True),
)  # fmt: skip


def audit_report(result: AuditResult, lake: Lake) -> Report:
    """Return the report of an audit."""
    comparisons, moment, span = result.verdicts, result.moment, result.span
    groups = [
        *(_damage_finding(damage, lake, result.topics) for damage in result.findings),
        *(group for each in comparisons for group in _difference_findings(each, lake)),
    ]
    text = _verdict_text(comparisons, result.findings)
    verdict = Verdict(Kind.GOOD, text, "The same")
    if groups:
        verdict = Verdict(Kind.CRITICAL, text, "Different", ExitCode.DAMAGE)
    brokers = sorted(moment.commit.stores)
    facts = [
        ("Lake", lake.root),
        ("Broker" if len(brokers) == 1 else "Brokers", join_names(brokers)),
        ("Messages stored", "any time" if span == AuditSpan() else period_text(span.first, span.last)),
        ("Compared", f"version {moment.version} of messages, archived up to run {moment.commit.sequence}"),
    ]
    notes = [*(f"{_comparison_title(each)}: {note}" for each in comparisons for note in each.notes), *result.notes]
    sections = [
        Section("compared", "What was compared", _comparison_blocks(comparisons)),
        *_topics_section(result.topics),
        findings_section(groups, (_SAME if any(each.compared for each in comparisons) else "") + _WHOLE),
        *_notes_section(notes),
    ]
    return Report(TITLE, verdict, facts, sections, "audit")


def _verdict_text(comparisons: Sequence[Comparison], damages: Sequence[TableFinding]) -> str:
    compared = [each for each in comparisons if each.compared]
    differing = [each for each in compared if each.differing]
    said = []
    if damages:
        names = join_names(list(dict.fromkeys(each.table for each in damages)))
        said.append(f"{format_count(len(damages), 'table is', 'tables are')} damaged ({names})")
    if differing:
        windows = sum(each.differing for each in differing)
        said.append(
            f"{len(differing)} of {format_count(len(compared), 'comparison')} differ, in "
            f"{format_count(windows, 'window')} "
            f"of ten minutes: {'; '.join(_comparison_title(each) for each in differing)}"
        )
    if said:
        return f"Differences found: {', and '.join(said)}"
    if not compared:
        return "Nothing was compared"
    messages = max(each.messages for each in compared)
    return f"No differences: {format_count(messages, 'message')} in {format_count(len(compared), 'comparison')}"


def _comparison_title(comparison: Comparison) -> str:
    return (
        f"{_SIDES.get(comparison.expected, comparison.expected)} and {_SIDES.get(comparison.found, comparison.found)}"
    )


def _comparison_blocks(comparisons: Sequence[Comparison]) -> Sequence[Block]:
    if not comparisons:
        return [Paragraph("Nothing was compared, because the tables cannot be read.")]
    compared = [each for each in comparisons if each.compared]
    figures = {
        "messages": f"{max((each.messages for each in compared), default=0):,}",
        "windows": f"{max((each.windows for each in compared), default=0):,}",
        "comparisons": f"{len(compared)}",
        "that differ": f"{sum(each.differing > 0 for each in compared)}",
    }
    columns = (
        Column("comparison"), Column("verdict"), Column("messages", is_number=True), Column("windows", is_number=True),
        Column("differing windows", key="differing", is_number=True),
    )  # fmt: skip
    rows = map(_comparison_row, comparisons)
    return [KeyFigures(figures), Table.of("Each place is compared in windows of ten minutes", columns, rows)]


def _comparison_row(comparison: Comparison) -> dict[str, object]:
    row: dict[str, object] = {"comparison": _comparison_title(comparison), "verdict": Badge(Kind.INFO, "not done")}
    if not comparison.compared:
        return row | dict.fromkeys(("messages", "windows", "differing"))
    verdict = Badge(Kind.CRITICAL, "different") if comparison.differing else Badge(Kind.GOOD, "the same")
    return row | {
        "verdict": verdict,
        "messages": comparison.messages,
        "windows": comparison.windows,
        "differing": comparison.differing,
    }


def _topics_section(topics: Sequence[TopicComparison]) -> Iterator[Section]:
    if topics:
        title = "Each message of a topic is a row of its table, a misfit, or erased; compared by hour"
        yield Section("topics", "Typed tables of topics", [Table.of(title, _TOPIC_COLUMNS, map(_topic_row, topics))])


def _topic_row(topic: TopicComparison) -> dict[str, object]:
    names = ("messages", "rows", "misfits", "erased", "pending", "hours", "differing")
    verdict = Badge(Kind.CRITICAL, "different") if topic.differing else Badge(Kind.GOOD, "the same")
    return {
        "table": Name(topic.table),
        "version": topic.version,
        "verdict": verdict if topic.compared else Badge(Kind.INFO, "not done"),
        **{name: getattr(topic, name) if topic.compared else None for name in names},
    }


def _damage_finding(damage: TableFinding, lake: Lake, topics: Sequence[TopicComparison]) -> FindingGroup:
    different = next((each for each in topics if each.table == damage.table and each.differing), None)
    if different is not None:
        return FindingGroup(
            Kind.CRITICAL,
            damage.table,
            damage.count,
            advice=different.advice.fill_placeholders({"lake": lake.root, "topic": different.topic}),
            examples=[Example(damage.table, note, "") for note in damage.notes],
            word="Different",
            counted=damage.counted_text,
        )
    return FindingGroup(
        Kind.CRITICAL,
        damage.table,
        damage.count,
        advice=REPAIR.fill_placeholders({"lake": lake.root}),
        examples=[Example(damage.table, note, "") for note in damage.notes],
        word="Damaged",
        counted=damage.counted_text,
    )


def _difference_findings(comparison: Comparison, lake: Lake) -> Iterator[FindingGroup]:
    sides = {"expected": _SIDES.get(comparison.expected, comparison.expected),
             "found": _SIDES.get(comparison.found, comparison.found)}  # fmt: skip
    for difference, count in comparison.kinds.items():
        title, why = _DIFFERENCES[difference]
        rows = [row for row in comparison.differences if row["difference"] == difference]
        yield FindingGroup(
            Kind.CRITICAL,
            f"{sides['expected']} and {sides['found']}",
            count,
            why.format(**sides),
            _COMPARE.fill_placeholders({"lake": lake.root}),
            [_difference_example(row) for row in rows],
            word=title,
            counted=format_count(count, "window"),
        )


def _difference_example(row: Mapping[str, Any]) -> Example:
    window = row["window_start"]
    start = "without a time" if window is None else f"ten minutes from {window:%Y-%m-%d %H:%M} UTC"
    where = f"{row['broker']}, topic {row['topic']}, queue {row['queue_id']}, {start}"
    names = row["different_columns"] if row["difference"] == "different" else ("messages", "bytes")
    found, expected = (
        "; ".join(_figure_text(figure, row[f"{side}_{figure}"]) for figure in names if f"{side}_{figure}" in row)
        for side in ("found", "expected")
    )
    return Example(where, found, expected)


def _figure_text(figure: str, value: object) -> str:
    words = figure.replace("_", " ")
    if value is None:
        return f"{words}: none"
    if isinstance(value, int):
        shown = size_text(value) if figure in _BYTE_FIGURES and value >= 1024 else f"{value:,}"
        if figure.endswith("checksum"):
            shown = f"{value & 0xFFFFFFFFFFFFFFFF:016x}"
        return f"{words}: {shown}" + (
            f" ({format_count(value, 'byte')})" if figure in _BYTE_FIGURES and value >= 1024 else ""
        )
    return f"{words}: {value}"


def _notes_section(notes: Sequence[str]) -> Iterator[Section]:
    if notes:
        shown = [Paragraph(Name(note)) for note in notes[:_MAX_NOTES]]
        if len(notes) > _MAX_NOTES:
            shown.append(Paragraph(left_out_text(len(notes) - _MAX_NOTES, "note")))
        yield Section("notes", "Notes", shown)
