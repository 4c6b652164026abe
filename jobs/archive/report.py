"""The report of an archive run: messages archived, problems, and earlier runs; and its summary as text."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError

from commitlake.connectors.lake.backoff import TableUpdate
from commitlake.connectors.lake.reader import clean_engine_message
from commitlake.connectors.reading.snapshots import LogTailKind, StoreRange
from commitlake.jobs.arguments.durations import duration_text
from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.report.findings import Example, FindingGroup, findings_section
from commitlake.jobs.report.page_file import Facts, PageFile, join_names, period_text
from commitlake.jobs.report.run_history import history_section, read_run_history
from commitlake.jobs.report.text_blocks import block_lines
from commitlake.jobs.report.value_decoding import bytes_text, decode_first_bytes, decode_value, offset_text, time_text
from commitlake.pipelines.archive.quarantine_rows import RefusedRangeGroup, read_refused_ranges
from commitlake.pipelines.archive.result import ArchivePageWriter, Result
from commitlake.pipelines.archive.run import HBASE
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
    Sparkline,
    Table,
    Verdict,
)
from commitlake.schemas.report_columns import Column
from commitlake.schemas.tables.profile import WINDOW_SECONDS
from commitlake.schemas.times import TimeWindows, parse_iso

TITLE = "Archive run"
_KINDS = {"good": Kind.GOOD, "warning": Kind.WARNING, "critical": Kind.CRITICAL}
_WORDS = {Kind.GOOD: "Archived", Kind.WARNING: "Archived, with warnings", Kind.CRITICAL: "Damage or loss"}
_STOPPED, _NOTHING_NEW = "Stopped", "Nothing new"
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
_ROW_NAMES = {
    "message_keys": ("message key", ""),
    "consumptions": ("consume record", ""),
    HBASE: ("message", " written to HBase"),
}
"""Names for rows of tables, and texts after them; rows of others are named by their table."""
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


def make_run_page_writer(page_file: PageFile) -> ArchivePageWriter:
    """Return a function that writes the page of each run of a job into a file."""
    return ArchivePageWriter(page_file.path, lambda run: page_file.write(archive_report(run)))


def archive_report(run: Result) -> Report:
    """Return the report of an archive run: committed, stopped by its expectations, or without new messages."""
    history = read_run_history(run.lake)
    refused, problem = _read_refused_ranges(run)
    groups = [*_refused_range_findings(refused, run), *(_unmet_expectation_findings(run.report) if run.report else ())]
    if problem:
        groups.append(FindingGroup(Kind.WARNING, "The refused parts of the log cannot be listed", why=problem))
    groups += [*_unread_messages_finding(run.newer_data_notes), *_side_files_finding(run.problems)]
    expected = ", and all expectations are met." if run.report else ". No expectations were checked."
    no_problems = f"No problems: all records are intact{expected}" if run.commits else "No problems were found."
    sections = [
        _run_section(run),
        findings_section(groups, no_problems),
        *_time_chart_section(run.figures),
        *_topics_section(run.figures),
        *_met_expectations_section(run.report),
        history_section(history, run.run_id),
    ]
    facts = _run_facts(run, history.runs[0].ended_at if history.runs else None)
    return Report(TITLE, _verdict(run), facts, sections, "archive")


def _verdict(run: Result) -> Verdict:
    kind = _KINDS[run.verdict.kind]
    if run.is_stopped or run.sequence:
        text = run.verdict.text
        return Verdict(kind, text[:1].upper() + text[1:], _STOPPED if run.is_stopped else _WORDS[kind])
    return Verdict(kind, _outcome_sentence(run), _NOTHING_NEW)


def summary_lines(run: Result) -> list[str]:
    """Return the section of a report about the run itself as text, with the run's warnings and verdict."""
    first, *others = block_lines(block for block in _run_section(run).blocks if not isinstance(block, KeyFigures))
    others += [*run.problems, *run.warnings]
    if run.sequence:
        others.append(f"verdict: {run.verdict.text}")
    return [first, *(f"  {line}" for line in others)]


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


def _run_facts(run: Result, last_run_end: datetime.datetime | None) -> Facts:
    number = "none: nothing was committed"
    if run.commits:
        number = _commit_numbers_text(run).removeprefix("run ")
    if run.earlier and run.is_stopped:
        number += "; then this part was not committed"
    facts = [("Lake", run.lake.root), ("Broker" if len(run.ranges) == 1 else "Brokers", join_names([*run.ranges]))]
    if run.report is not None:
        facts.append(("Messages stored", period_text(run.figures.first_time, run.figures.last_time)))
    facts.append(("Run", f"{number} ({run.run_id})"))
    if run.started_at is not None:
        facts.append(("Began", time_text(run.started_at)))
    elif run.report is not None:
        facts.append(("Judged", time_text(run.report.judged_at)))
    elif last_run_end is not None:
        facts.append(("Last run", time_text(last_run_end)))
    return facts


def _commit_numbers_text(run: Result) -> str:
    """Return the numbers of a run's commits: `run 3`, `runs 3 to 5`, `2 of the runs 3 to 5`."""
    (first, _), (last, _) = run.commits[0], run.commits[-1]
    if first == last:
        return f"run {last}"
    others = "" if last - first + 1 == len(run.commits) else f"{len(run.commits)} of the "
    return f"{others}runs {first} to {last}"


def _run_section(run: Result) -> Section:
    outcome = [] if run.is_stopped else [Paragraph(_outcome_sentence(run))]
    figures = [KeyFigures(shown)] if (shown := _run_figures(run)) else []
    return Section("run", "This run", [*outcome, *figures, *_run_details(run)])


def _run_figures(run: Result) -> dict[str, str]:
    shown: dict[str, str] = {}
    if run.sequence:
        shown["messages archived"] = f"{run.messages:,}"
    elif run.report is not None:
        shown["messages read"] = f"{run.figures.messages:,}"
    if run.bytes:
        shown["log"] = size_text(run.bytes)
    if run.sequence:
        shown["unreadable"] = f"{run.quarantined:,}"
        shown["gaps"] = f"{run.gaps:,}"
    if run.report is not None:
        met = sum(found.success for found in run.report.judgements)
        shown["expectations met"] = f"{met} of {len(run.report.judgements)}"
        shown["topics"] = f"{run.figures.topics:,}"
        shown["queues"] = f"{run.figures.queues:,}"
    return shown


def _outcome_sentence(run: Result) -> str:
    if run.sequence:
        rate = f"{run.messages / run.seconds:,.0f} messages/s, {size_text(run.bytes / run.seconds)}/s"
        messages = f"{format_count(run.messages, 'message')} from {size_text(run.bytes)}"
        return f"{_commit_numbers_text(run)}: {messages} in {run.seconds:.1f} s ({rate})"
    if run.bytes_of_others:
        return _others_text(run)
    return f"No new messages in {format_count(len(run.ranges), 'store')}"


def _run_details(run: Result) -> Iterator[Block]:
    if run.sequence:
        lake_bytes = f"metadata {size_text(run.metadata_bytes)}, bodies {size_text(run.pack_bytes)}"
        yield Paragraph(f"in the lake: {lake_bytes}", is_quiet=True)
    yield from _range_paragraphs(run.ranges)
    for sentence in (*run.notes, *_update_texts(run.updates), *_concurrent_run_texts(run)):
        yield Paragraph(Name(sentence), is_quiet=True)


def _range_paragraphs(ranges: Mapping[str, StoreRange]) -> Iterator[Block]:
    """Yield a paragraph for each store with new messages or an incomplete last record; a long list is cut."""
    shown = {name: part for name, part in ranges.items() if part.size or part.tail is LogTailKind.TORN}
    for name, part in list(shown.items())[:_MAX_RANGES]:
        text = f": physical offsets {part.start} to {part.end} ({size_text(part.size)})"
        if part.tail is LogTailKind.TORN:
            text += f"; the last {part.tail_bytes} bytes are an incomplete record, left for the next run"
        yield Paragraph(Name(name), text, is_quiet=True)
    if len(shown) > _MAX_RANGES:
        yield Paragraph(f"and {format_count(len(shown) - _MAX_RANGES, 'more store')}", is_quiet=True)


def _update_texts(updates: Sequence[TableUpdate]) -> Iterator[str]:
    for update in updates:
        if update.rows:
            noun, after = _ROW_NAMES.get(update.table, ("row", f" of {update.table}"))
            seconds = f" ({update.seconds:.1f} s)" if update.seconds else ""
            yield f"{format_count(update.rows, noun)}{after}{seconds}"


def _concurrent_run_texts(run: Result) -> Iterator[str]:
    """Yield sentences about concurrent runs: data that they archived, and tables that this run could not update."""
    for sequence in run.recovered:
        yield f"run {sequence}, which another process had left unfinished, is now finished"
    if run.bytes_of_others and run.sequence:
        yield _others_text(run)
    for name in run.unfinished_tables:
        yield f"{name} is not up to date yet, because other runs were writing to it: the next run adds the rest"


def _others_text(run: Result) -> str:
    return f"{size_text(run.bytes_of_others)} of new log were archived by another run meanwhile"


def _read_refused_ranges(run: Result) -> tuple[Sequence[RefusedRangeGroup], str]:
    """Return the parts of the log that a committed run could not read, or the reason why they cannot be listed."""
    if not (run.quarantined or run.gaps):
        return (), ""
    try:
        return read_refused_ranges(run.lake, [run_id for _, run_id in run.commits]), ""
    except (CommitLakeError, DeltaError, pa.ArrowException, OSError) as error:
        return (), clean_engine_message(str(error))


def _refused_range_findings(refused_groups: Sequence[RefusedRangeGroup], run: Result) -> Iterator[FindingGroup]:
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
    return Cell(Sparkline(f"{format_count(row['messages_sum'], 'message')} over time", values))


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
