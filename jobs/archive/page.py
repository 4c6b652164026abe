"""The page of an archive run: messages archived, problems, and earlier runs."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError

from commitlake.connectors.lake.archive_commits import CommittedRange
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import clean_engine_message
from commitlake.jobs.arguments.durations import duration_text
from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.report.findings import Example, FindingGroup, findings_section
from commitlake.jobs.report.page_file import Facts, PageFile, join_names, period_text
from commitlake.jobs.report.run_history import history_section, read_run_history, seconds_text
from commitlake.jobs.report.value_decoding import bytes_text, decode_first_bytes, decode_value, offset_text, time_text
from commitlake.pipelines.archive.quarantine_rows import RefusalGroup, read_refused
from commitlake.pipelines.archive.run_page import RunPage, ShownRun, commit_numbers_text
from commitlake.pipelines.quality.page_figures import ChartSpan, Counts, RunPageSummary
from commitlake.pipelines.quality.report import MAX_EXAMPLES, Judgement, QualityReport
from commitlake.schemas.errors import CommitLakeError
from commitlake.schemas.finding_advice import Advice
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.quality.expectation import Grain, Severity
from commitlake.schemas.quality.suites import SUITES
from commitlake.schemas.report import (
    Block,
    Cell,
    CollapsedContent,
    KeyFigures,
    Kind,
    LineChart,
    Name,
    Paragraph,
    Report,
    Section,
    Series,
    Table,
    Trend,
    Verdict,
)
from commitlake.schemas.report_columns import Column
from commitlake.schemas.tables.profile import WINDOW_SECONDS
from commitlake.schemas.times import TimeWindows, parse_iso

TITLE = "Archive run"
_KINDS = {"good": Kind.GOOD, "warning": Kind.WARNING, "critical": Kind.CRITICAL}
_WORDS = {Kind.GOOD: "Archived", Kind.WARNING: "Archived, with warnings", Kind.CRITICAL: "Damage or loss"}
_STOPPED = "Stopped"
_GAPS = Advice(
    "archive more often, and run 'commitlake guard' to be warned: a deleted segment cannot be archived. {} lists all "
    "missing parts",
    ("query --lake {lake} --table gaps",),
)
_QUARANTINE = Advice(
    "look for this part of the log in a replica or a backup. {} shows the first bytes of all such parts",
    ("query --lake {lake} --table quarantine",),
)
_FROM_BROKER = Advice("archive these brokers with --from-broker")
_SEVERITIES = {
    Severity.CRITICAL: ("Stops the run", "the run stops"),
    Severity.DAMAGE: ("Damage", "damage, exit code 3"),
    Severity.WARNING: ("Warning", "a warning"),
}
_MAX_WINDOWS = 240
_SPARK_WINDOWS = 48
_MAX_RANGES = 12
_WINDOW = datetime.timedelta(seconds=WINDOW_SECONDS)
_GRAINS = {Grain.WINDOW: "windows of ten minutes of a queue", Grain.TOPIC: "topics", Grain.BROKER: "brokers"}
_ROWS = {suite.name: _GRAINS[suite.grain] for suite in SUITES}
_LAST_YEAR = 9900
_FAULTS = {
    "magic": "Bytes that are not the start of a record",
    "total_size": "Records of an impossible size",
    "physical_offset": "Records whose stored offset differs from their position",
    "part_lengths": "Records whose parts do not add up to their size",
    "body_crc": "Bodies whose checksum is wrong",
    "blank_size": "Fillers that do not reach their segment's end",
    "hole": "Zeros with records after them",
    "cut": "Files that end within a record",
    "topic_encoding": "Topics that are not valid text",
    "properties_encoding": "Properties that are not valid text",
    "timestamp": "Timestamps outside the range of the column",
    "body_compression": "Bodies that cannot be decompressed",
}


def make_run_page_writer(page_file: PageFile) -> RunPage:
    """Return a function that writes the page of each run of a job into a file."""
    return RunPage(page_file.path, lambda run: page_file.write(make_archive_run_page(run)))


def make_archive_run_page(run: ShownRun) -> Report:
    """Return the page of a run that was committed, or that was stopped by its expectations."""
    kind = _KINDS[run.verdict.kind]
    word = _STOPPED if run.sequence is None else _WORDS[kind]
    refused, problem = _read_refused_ranges(run)
    groups = [*_refused_range_findings(refused, run), *(_unmet_expectation_findings(run.report) if run.report else ())]
    if problem:
        groups.append(FindingGroup(Kind.WARNING, "The refused parts of the log cannot be listed", why=problem))
    groups += [*_unread_messages_finding(run.newer), *_side_files_finding(run.problems)]
    sections = [
        Section("run", "This run", _run_figures(run)),
        findings_section(groups, "No problems: all records are intact, and all expectations are met."
                         if run.report else "No problems: all records are intact. No expectations were checked."),
        *_time_chart_section(run.figures),
        *_topics_section(run.figures),
        *_met_expectations_section(run.report),
        history_section(read_run_history(run.lake), run.run_id),
    ]  # fmt: skip
    text = run.verdict.text
    return Report(TITLE, Verdict(kind, text[:1].upper() + text[1:], word), _run_facts(run), sections, "archive")


def no_new_messages_page(
    lake: Lake, stores: Sequence[str], sentence: str, problems: Sequence[str] = (), unread_sentences: Sequence[str] = ()
) -> Report:
    """Return the page of an archive run that found no new messages.

    Args:
        stores: Names of the stores.
        sentence: The result of the run, as a sentence.
        problems: Sentences on files beside the logs that could not be read.
        unread_sentences: Sentences on messages of the stores that are not read.
    """
    history = read_run_history(lake)
    last = history.runs[0] if history.runs else None
    facts = [("Lake", lake.root), (_stores_label(len(stores)), join_names(stores))]
    if last is not None:
        facts.append(("Last run", time_text(last.ended_at)))
    sections = [history_section(history)]
    if problems or unread_sentences:
        sections.insert(
            0, findings_section([*_unread_messages_finding(unread_sentences), *_side_files_finding(problems)], "")
        )
    kind = Kind.CRITICAL if unread_sentences else Kind.WARNING if problems else Kind.GOOD
    said = sentence[:1].upper() + sentence[1:]
    return Report(TITLE, Verdict(kind, said, "Nothing new"), facts, sections, "archive")


def _unread_messages_finding(unread_sentences: Sequence[str]) -> Iterator[FindingGroup]:
    """Yield a finding if the stores have messages in other folders, which this run does not read."""
    if unread_sentences:
        yield FindingGroup(
            Kind.CRITICAL,
            "Messages of the stores that are not read",
            len(unread_sentences),
            "Brokers keep parts of their logs in other folders, or the stores are incomplete copies",
            _FROM_BROKER.fill_placeholders(),
            [Example("", sentence, "") for sentence in unread_sentences],
        )


def _side_files_finding(problem_sentences: Sequence[str]) -> Iterator[FindingGroup]:
    """Yield a finding if files beside the log, such as those of consumer offsets, could not be read."""
    if problem_sentences:
        yield FindingGroup(
            Kind.WARNING,
            "Files beside the log that cannot be read",
            len(problem_sentences),
            "All messages are archived. Offsets, settings, consumptions or retries that are in these files are not",
            Advice("look at the files; the next run tries again").fill_placeholders(),
            [Example("", problem, "") for problem in problem_sentences],
        )


def _run_facts(run: ShownRun) -> Facts:
    figures = run.figures
    number = "none: nothing was committed"
    if sequences := [*(sequence for sequence, _ in run.earlier), *([] if run.sequence is None else [run.sequence])]:
        number = commit_numbers_text(sequences).removeprefix("run ")
    if run.earlier and run.sequence is None:
        number += "; then this part was not committed"
    facts = [("Lake", run.lake.root), (_stores_label(len(run.ranges)), join_names([*run.ranges]))]
    if run.report is not None:
        facts.append(("Messages stored", period_text(figures.first_time, figures.last_time)))
    facts.append(("Run", f"{number} ({run.run_id})"))
    if run.started_at is not None:
        facts.append(("Began", time_text(run.started_at)))
    elif run.report is not None:
        facts.append(("Judged", time_text(run.report.judged_at)))
    return facts


def _stores_label(count: int) -> str:
    return "Broker" if count == 1 else "Brokers"


def _run_figures(run: ShownRun) -> Sequence[Block]:
    figures, counts = run.figures, run.counts
    shown: dict[str, str] = {}
    if counts is not None:
        shown["messages archived"] = f"{counts.messages:,}"
    elif run.report is not None:
        shown["messages read"] = f"{figures.messages:,}"
    if run.ranges:
        shown["log"] = size_text(sum(part.end - part.start for part in run.ranges.values()))
    if counts is not None:
        shown["in the lake"] = size_text(run.metadata_bytes + run.pack_bytes)
        shown["unreadable"] = f"{counts.quarantined:,}"
        shown["gaps"] = f"{counts.gaps:,}"
    if run.report is not None:
        met = sum(found.success for found in run.report.judgements)
        shown["expectations met"] = f"{met} of {len(run.report.judgements)}"
        shown["topics"] = f"{figures.topics:,}"
        shown["queues"] = f"{figures.queues:,}"
    if run.seconds is not None:
        shown["took"] = seconds_text(run.seconds)
        if counts is not None and run.seconds > 0:
            shown["messages per second"] = f"{counts.messages / run.seconds:,.0f}"
    return [KeyFigures(shown), *_range_paragraphs(run.ranges)]


def _range_paragraphs(ranges: Mapping[str, CommittedRange]) -> Iterator[Block]:
    lines = [
        Paragraph(Name(broker), f": physical offsets {part.start} to {part.end} ({size_text(part.end - part.start)})",
                  is_quiet=True)
        for broker, part in list(ranges.items())[:_MAX_RANGES]
    ]  # fmt: skip
    yield from lines
    if len(ranges) > _MAX_RANGES:
        yield Paragraph(f"and {len(ranges) - _MAX_RANGES:,} more stores", is_quiet=True)


def _read_refused_ranges(run: ShownRun) -> tuple[Sequence[RefusalGroup], str]:
    """Return the parts of the log that a committed run could not read, or the reason why they cannot be listed."""
    if run.counts is None or not (run.counts.quarantined or run.counts.gaps):
        return (), ""
    try:
        return read_refused(run.lake, [*(run_id for _, run_id in run.earlier), run.run_id]), ""
    except (CommitLakeError, DeltaError, pa.ArrowException, OSError) as error:
        return (), clean_engine_message(str(error))


def _refused_range_findings(refused_groups: Sequence[RefusalGroup], run: ShownRun) -> Iterator[FindingGroup]:
    kind = Kind.CRITICAL if run.verdict.is_damage else Kind.WARNING
    for group in refused_groups:
        if group.table == "gaps":
            title = "Missing parts of the log"
            why = f"{bytes_text(group.bytes)} of the log were missing: a broker deleted them before they were archived"
            advice = _GAPS
        else:
            title = _FAULTS.get(group.reason, f"Unreadable: {group.reason}")
            why = f"{bytes_text(group.bytes)} of the log are damaged; all other records were archived"
            advice = _QUARANTINE
        examples = [_refused_range_example(row, group.reason) for row in group.first]
        word = "Gap" if group.table == "gaps" else "Damage"
        filled = advice.fill_placeholders({"lake": run.lake.root})
        yield FindingGroup(kind, title, group.count, why, filled, examples, word)


def _refused_range_example(row: Mapping[str, Any], reason: str) -> Example:
    start, end = row["start_offset"], row["end_offset"]
    size = "" if start is None or end is None else f", {bytes_text(end - start)}"
    file = str(row["segment"] or "").rsplit("/", 1)[-1]
    where = f"{row['broker']}, {file}, physical offset {'unknown' if start is None else offset_text(start)}{size}"
    expected = row.get("expected")
    return Example(
        where,
        decode_value(row["found"] or "", reason),
        decode_value(expected, reason) if expected else "a segment" if reason == "" else "",
        decode_first_bytes(row.get("first_bytes") or b""),
    )


def _unmet_expectation_findings(report: QualityReport) -> Iterator[FindingGroup]:
    for found in report.unmet_judgements:
        wanted = found.expectation
        kind = Kind.CRITICAL if found.is_critical or found.is_damage else Kind.WARNING
        observed = "" if found.observed is None else f"; observed {_value_text(found.observed)}"
        yield FindingGroup(
            kind,
            f"Expected: {wanted.name.replace('_', ' ')}",
            found.unexpected,
            wanted.why,
            Advice(wanted.action).fill_placeholders(),
            [_unmet_expectation_example(row) for row in found.examples[:MAX_EXAMPLES]],
            word=_SEVERITIES[wanted.severity][0],
            counted=f"not met in {found.unexpected:,} of {found.judged:,} {_ROWS.get(found.suite, 'rows')}{observed}",
            code=f"{found.suite}.{wanted.name}",
        )


def _unmet_expectation_example(row: Mapping[str, object]) -> Example:
    places = {"broker": "broker", "topic": "topic", "queue_id": "queue", "window_start": "from"}
    where = ", ".join(
        f"{word} {_position_part_text(key, row[key])}" for key, word in places.items() if row.get(key) is not None
    )
    values = {key.replace("_", " "): _value_text(value) for key, value in row.items() if key not in places}
    return Example(where, "; ".join(f"{key}: {value}" for key, value in values.items()), "")


def _position_part_text(key: str, value: object) -> str:
    """Return one value of a finding's position, such as a topic, as text. A window's start becomes a time in UTC."""
    if key != "window_start":
        return str(value)
    try:
        return time_text(parse_iso(str(value)))
    except (ValueError, OverflowError):
        return str(value)


def _value_text(value: object) -> str:
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else f"{value}"


def _time_chart_section(figures: RunPageSummary) -> Iterator[Section]:
    span = figures.time_span
    if span is None:
        return
    windows, values = _count_messages_by_window(figures.counts_by_window, span, _MAX_WINDOWS)
    length = duration_text(windows.length)
    chart = LineChart(
        f"Messages stored in each {length}",
        windows,
        [Series("messages", values)],
        lambda value: f"{value:,.0f}",
        note="By the broker's clock; damaged records are not counted",
    )
    yield Section("time", "When messages were stored", [chart])


def _count_messages_by_window(
    counts: Counts, span: ChartSpan, max_windows: int
) -> tuple[TimeWindows, list[float | None]]:
    """Divide a time span into a limited number of windows, and count the messages in each."""
    windows = _time_windows(span, max_windows)
    values = [0.0] * windows.count
    for begin, count in counts.items():
        values[min((begin - windows.start) // windows.length, windows.count - 1)] += count
    return windows, list(values)


def _time_windows(span: ChartSpan, max_windows: int) -> TimeWindows:
    if span.end.year <= _LAST_YEAR:
        windows = TimeWindows.covering(span.begin, span.end, max_windows, _WINDOW)
        if windows.count <= max_windows:
            return windows
    # With wrong clocks, messages may seem to be thousands of years apart.
    length = max(_WINDOW, (span.end - span.begin) // max_windows)
    return TimeWindows(span.begin, length, max(1, (span.end - span.begin) // length))


def _topics_section(figures: RunPageSummary) -> Iterator[Section]:
    if not figures.topics:
        return
    columns = (
        Column("topic", text=Name), Column("broker", text=Name),
        Column("messages", key="messages_sum", is_number=True),
        Column("log", key="bytes_sum", is_number=True, text=size_text),
        Column("queues", key="queue_id_count_distinct", is_number=True),
        Column("missing", key="missing_offsets_sum", is_number=True),
        Column("messages over time", can_sort=False),
    )  # fmt: skip
    shown, others = figures.topic_rows, figures.others
    rest = ""
    if figures.topics > len(shown):
        rest = (
            f"{format_count(figures.topics - len(shown), 'other topic has', 'other topics have')} "
            f"{format_count(others['messages'], 'message')}, {size_text(others['bytes'])}, "
            f"{others['missing_offsets']:,} "
            "missing."
        )
    rows = [{**row, "messages over time": _topic_trend_cell(row, figures)} for row in shown]
    caption = "The largest topics first; missing: queue offsets without a message, within windows of ten minutes"
    yield Section("topics", "Topics", [Table.of(caption, columns, rows, rest)])


def _topic_trend_cell(row: Mapping[str, Any], figures: RunPageSummary) -> Cell:
    if figures.time_span is None:
        return Cell("")
    _, values = _count_messages_by_window(
        figures.counts_of_topic((row["broker"], row["topic"])), figures.time_span, _SPARK_WINDOWS
    )
    return Cell(Trend(f"{format_count(row['messages_sum'], 'message')} over time", values))


def _met_expectations_section(report: QualityReport | None) -> Iterator[Section]:
    met = [found for found in report.judgements if found.success] if report else []
    if met:
        rows = [
            [Cell(found.expectation.name.replace("_", " ")), Cell(found.suite), Cell(_severity_text(found))]
            for found in met
        ]
        columns = (Column("expectation"), Column("suite"), Column("if not met"))
        listed = CollapsedContent(
            f"{format_count(len(met), 'expectation is', 'expectations are')} met",
            Table("Expectations that are met", columns, rows),
        )
        yield Section("met", "As expected", [listed])


def _severity_text(judgement: Judgement) -> str:
    return _SEVERITIES[judgement.expectation.severity][1]
