"""Report of `commitlake tps`: how many messages were stored, when, in which groups, and how fast."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from commitlake.jobs.arguments.durations import duration_text
from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.report.page_file import join_names
from commitlake.jobs.tps.arguments import TITLE
from commitlake.jobs.tps.notes import (
    RateNote,
    comparison_notes,
    figure_text,
    group_label,
    rate_columns,
    rate_notes,
    tag_notes,
    value_label,
)
from commitlake.pipelines.tps.comparison import COLUMNS
from commitlake.pipelines.tps.coverage import ALL, NONE
from commitlake.pipelines.tps.rates_query import MINUTE
from commitlake.pipelines.tps.report import MAX_SKETCHES, RatesReport
from commitlake.schemas.finding_advice import Advice, Places
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report import (
    MAX_SERIES,
    AdviceBlock,
    Block,
    Cell,
    KeyFigures,
    Kind,
    LineChart,
    Mark,
    MarkKind,
    Name,
    Notice,
    Paragraph,
    Report,
    Section,
    Series,
    Sparkline,
    Table,
    Text,
    TimeText,
    Verdict,
)
from commitlake.schemas.report_columns import Column
from commitlake.schemas.times import format_iso_time, format_time

MAX_MARKS = 100
"""Largest number of marked times in a chart; of more, the longest."""
_LARGE_SHARE = 0.5
"""Share of the messages above which a group is named in the verdict."""
_LONG_UNITS = ((3_600_000, "h"), (60_000, "min"), (1000, "s"))
"""Units of long times in milliseconds, the longest first."""
_PLURALS = {
    "broker": "brokers", "topic": "topics", "queue": "queues", "tag": "tags", "kind": "kinds",
    "producer-host": "producer hosts", "producer-group": "producer groups", "origin-topic": "origin topics",
}  # fmt: skip
_LARGE_RATIO = 50
"""Ratio of the largest to the smallest figure above which a chart has a logarithmic scale."""
_RETRIES = Advice(
    "{} counts them by topic: a retry topic is named after its group", ("tps {source} {period} {filters} --kind retry",)
)
_CLOCKS = Advice("{} counts them by producer", ("tps {source} {period} {filters} --by producer-host",))
_PEAK = Advice("{} shows it second by second", ("tps {source} {peak} {filters} --window 1s",))
_GAPS = Advice(
    "{} shows the parts of the log that were deleted before they were archived", ("query {source} --table gaps",)
)
_ON_NOTES = {
    "Damage": Advice(
        "{} shows the damaged ranges, with their reason and first bytes", ("query {source} --table quarantine",)
    ),
    "Missing": _GAPS, "In part": _GAPS,
    "Dead letters": Advice("{} groups those of all topics by cause", ("dlq {source} {period}",)),
    "Retries": _RETRIES,
    "Transactions": Advice("{} shows the half messages", ("query {source} --kind half {period} {filters}",)),
    "Clocks": _CLOCKS, "Peak": _PEAK,
}  # fmt: skip
"""Advice on notes about the messages of a lake, by the subject of the note."""
_ON_NOTES_OF_STORE = {
    "Damage": Advice("{} shows the damaged ranges, with causes and repairs", ("verify {place}",)),
    "Dead letters": Advice("{} counts them by topic", ("tps {source} {period} {filters} --kind dlq",)),
    "Retries": _RETRIES, "Clocks": _CLOCKS, "Peak": _PEAK,
}  # fmt: skip
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RatesSource:
    """Lake or store whose message rates a page shows.

    Attributes:
        option: `--lake` or `--store`.
        place: Value of the option, as the user gave it.
        damaged: Ranges of a store's log that could not be read.
        widened: Sentences on how the requested time was extended.
    """

    option: str
    place: str
    damaged: int = 0
    widened: Sequence[str] = ()

    @property
    def is_lake(self) -> bool:
        """Return True for a lake, and False for a store."""
        return self.option == "--lake"

    @property
    def label_and_value(self) -> tuple[str, str]:
        """Return the label ("Lake" or "Store") and the location with which a page names its source."""
        return "Lake" if self.is_lake else "Store", self.place


def empty_page(source: RatesSource) -> Report:
    """Return the report, for an HTML page, on a lake or store without messages."""
    verdict = Verdict(Kind.INFO, "No message is archived." if source.is_lake else "The log has no message.")
    return Report(TITLE, verdict, [source.label_and_value], [], "tps")


def rates_report(report: RatesReport, source: RatesSource) -> Report:
    """Return the report, for an HTML page, on message rates."""
    question = report.question
    period = f"{_time_text(question.start)} to {_time_text(question.end)} UTC"
    brokers = join_names(sorted(report.coverage.spans), 5)
    facts = [
        source.label_and_value,
        ("Brokers", brokers),
        ("Period", period),
        ("By", _group_columns_text(report) or "nothing"),
    ]
    facts += [("Rounded", sentence) for sentence in source.widened]
    facts += [(label, ", ".join(map(str, values))) for label, values in _filter_facts(report) if values]
    sections = [Section("summary", "In short", [_summary_figures(report)])]
    if report.total is None and report.groups:
        sections.append(Section("groups", _groups_title(report), [_group_table(report)]))
    if report.total is not None:
        sections += [
            Section("rates", "Rates over time", _rate_charts(report)),
            Section("do", "What to do", list(_advice_blocks(report, source))),
            Section("latency", "Latency", _latency_charts(report)),
            Section("groups", _groups_title(report), [_group_table(report)]),
        ]
    return Report(TITLE, _rates_verdict(report, source), facts, sections, "tps")


def _rates_verdict(report: RatesReport, source: RatesSource) -> Verdict:
    total, question = report.total, report.question
    warnings = [f"{_note_title(note)}." for note in _page_notes(report, source) if note.kind == Kind.WARNING]
    if total is None:
        nothing = f"No message is archived from {_time_text(question.start)} to {_time_text(question.end)} UTC."
        return Verdict(Kind.INFO, " ".join([nothing, *warnings]))
    length = duration_text(question.end - question.start)
    sentence = (
        f"{format_count(total['messages'], 'message')} in {length}: {_rate_text(total['messages_per_s'])} on "
        f"average, at most {_rate_text(total['peak_per_s'])} at {_time_text(total['peak_at'])} UTC"
    )
    if total["sent"] < total["messages"]:
        sent_per_s = total["sent"] / (question.end - question.start).total_seconds()
        sentence = (
            f"Producers sent {format_count(total['sent'], 'message')} in {length}: {_rate_text(sent_per_s)} on "
            f"average. With copies that brokers store themselves, and traces, there are {sentence}"
        )
    largest = report.groups[0]
    if report.group_count > 1 and largest["messages"] > _LARGE_SHARE * total["messages"]:
        share = f"{100 * largest['messages'] / total['messages']:.0f} %"
        sentence += f"; {group_label(report.group_key_of_row(largest))} has {share} of them"
    kind = Kind.WARNING if warnings else Kind.GOOD
    return Verdict(kind, " ".join([f"{sentence}.", *warnings]), "Look" if warnings else "Nothing unusual")


def _page_notes(report: RatesReport, source: RatesSource) -> Iterator[RateNote]:
    """Yield the notes that text output has, and further notes on damage, missing times and the busiest time."""
    question, total, compared = report.question, report.total, report.compared
    if source.damaged or any(report.damage.values()):
        yield RateNote("Damage", "parts of the log are damaged", "warning")
    if report.outcomes.damage:
        unknown = "the outcomes of transactions are not known, because the table edges is damaged"
        yield RateNote("Edges", unknown, "warning", report.outcomes.damage)
    if total is not None and _has_missing_times(report):
        hatched = "Times without figures are hatched; this does not mean that they have no messages."
        if missing := _unarchived_duration(report):
            yield RateNote("Missing", f"{duration_text(missing)} of the time is not archived", "warning", hatched)
        else:
            in_part = "not all of this time is archived" if source.is_lake else "the log has only a part of this time"
            yield RateNote("In part", in_part, why=hatched)
    if total is not None:
        yield from rate_notes(total, report.outcomes.found, question)
        yield from tag_notes(total, question)
    if compared is not None:
        earlier = question.shift_earlier(compared)
        is_complete = not report.coverage.lacks_part_of_range(earlier.start, earlier.end)
        yield from comparison_notes(question, compared, report.silent, is_earlier_time_complete=is_complete)
    if total is not None:
        yield RateNote("Peak", f"the busiest time began at {_time_text(total['peak_at'])} UTC")


def _note_title(note: RateNote) -> str:
    return note.sentence[0].upper() + note.sentence[1:]


def _unarchived_duration(report: RatesReport) -> datetime.timedelta:
    """Return the total length of the windows without archived messages."""
    missing = sum(1 for row in report.all_windows if row["archived"] == NONE)
    return missing * report.windows.length


def _has_missing_times(report: RatesReport) -> bool:
    """Return True if a part of the requested time is not archived, apart from its first and last window.

    The first and the last window may be archived only in part, because the archived time begins and ends in them.
    """
    question = report.question
    gaps = (gap for gaps in report.coverage.gaps.values() for gap in gaps)
    return (
        bool(_unarchived_duration(report))
        or any(row["archived"] != ALL for row in report.all_windows[1:-1])
        or any(gap.start < question.end and question.start < gap.end for gap in gaps)
    )


def _summary_figures(report: RatesReport) -> KeyFigures | Paragraph:
    total = report.total
    if total is None:
        return Paragraph("No message is archived in this time: choose another one with --from and --to.")
    unit = "busiest minute" if report.question.counted_table.unit == MINUTE else "busiest second"
    figures = {
        "messages": f"{total['messages']:,}",
        "sent by producers": f"{total['sent']:,}",
        "copies by brokers, traces": f"{total['messages'] - total['sent']:,}",
        "per second, on average": _rate_text(total["messages_per_s"]),
        f"per second in the {unit}": _rate_text(total["peak_per_s"]),
        "log": size_text(total["bytes"]),
        _PLURALS.get(_group_columns_text(report), "groups"): f"{report.group_count:,}",
        "retries": f"{total['retries']:,}",
        "dead letters": f"{total['dead_letters']:,}",
        "transactions": f"{total['prepared']:,}",
    }
    outcomes = report.outcomes.found
    if outcomes is not None and outcomes.total_count:
        figures |= {
            "transactions committed": f"{outcomes.committed:,}",
            "transactions rolled back": f"{outcomes.rolled_back:,}",
            "transactions given up": f"{outcomes.given_up:,}",
            "transactions open": f"{outcomes.open:,}",
        }
    return KeyFigures(figures)


def _advice_blocks(report: RatesReport, source: RatesSource) -> Iterator[Block]:
    places = _advice_values(report, source)
    on_notes = _ON_NOTES if source.is_lake else _ON_NOTES_OF_STORE
    for note in sorted(_page_notes(report, source), key=lambda note: note.kind != Kind.WARNING):
        if note.kind != Kind.GOOD:
            text = note.names or note.why
            paragraphs = [Paragraph(text)] if text else []
            advice = [AdviceBlock(on_notes[note.word].fill_placeholders(places))] if note.word in on_notes else []
            yield Notice(Kind(note.kind), _note_title(note), *paragraphs, *advice, word=note.word)


def _advice_values(report: RatesReport, source: RatesSource) -> Places:
    """Return the values that replace placeholders in commands of the advice, such as source, period and filters."""
    question, total = report.question, report.total
    assert total is not None
    asked = question.selection
    chosen = (("--topic", asked.topics), ("--queue", asked.queue_ids), ("--tag", asked.tags),
              ("--broker", asked.brokers))  # fmt: skip
    peak = total["peak_at"]
    return {
        "source": [source.option, source.place],
        "place": source.place,
        "period": ["--from", _time_argument(question.start), "--to", _time_argument(question.end)],
        "peak": ["--from", _time_argument(peak), "--to", _time_argument(peak + MINUTE)],
        "filters": [word for option, values in chosen for value in values for word in (option, str(value))],
    }


def _rate_charts(report: RatesReport) -> Sequence[Block]:
    lines = list(report.lines.items())
    fit = MAX_SERIES if report.active_count <= MAX_SERIES else MAX_SERIES - 1
    drawn = lines[:fit]
    series = [Series(group_label(key), [row["messages_per_s"] for row in rows]) for key, rows in drawn]
    if not drawn:
        series = [Series("all messages", [row["messages_per_s"] for row in report.all_windows])]
    elif others := report.active_count - len(drawn):
        series.append(
            Series(
                f"{format_count(others, 'other', 'others')}, summed",
                _rate_of_other_groups(report, [rows for _, rows in drawn]),
            )
        )
    marks = list(_chart_marks(report))
    by_text = f" by {_group_columns_text(report)}" if report.lines else ""
    traffic = [Series("all messages", [row["bytes_per_s"] for row in report.all_windows])]
    windows = report.windows
    note = f"Each point is the average of {duration_text(windows.length)}"
    if windows.start < report.question.start or windows.end > report.question.end:
        note += (
            f"; the first begins at {_time_text(windows.start)} UTC, and the last ends at {_time_text(windows.end)} UTC"
        )
    return [
        LineChart(f"Messages per second{by_text}", report.windows, series, figure_text, marks=marks, note=note),
        LineChart("Bytes of log per second", report.windows, traffic, lambda value: f"{size_text(value)}/s",
                  axis=size_text, marks=marks),
    ]  # fmt: skip


def _rate_of_other_groups(report: RatesReport, drawn_groups: Sequence[Sequence[Row]]) -> list[float | None]:
    """Return the rate in each window of all groups without a line of their own in the chart."""
    rates: list[float | None] = []
    seconds = report.windows.length.total_seconds()
    for at, everything in enumerate(report.all_windows):
        if everything["messages"] is None:
            rates.append(None)
        else:
            rates.append((everything["messages"] - sum(rows[at]["messages"] or 0 for rows in drawn_groups)) / seconds)
    return rates


def _latency_charts(report: RatesReport) -> Sequence[Block]:
    if not report.has_percentiles:
        why = (
            f"{format_count(report.sketches, 'row of topic_minutes has', 'rows of topic_minutes have')} sketches, "
            f"and at most {MAX_SKETCHES:,} can be merged: choose a shorter time, or fewer topics."
            if report.sketches
            else "latencies come from topic_minutes, which has them only for windows of whole minutes."
        )
        return [Paragraph(f"Percentiles are not shown. {why}")]
    charts = [_percentile_chart(report, "latency_ms", "From born to stored", "")]
    waiting = "From born to stored, for messages that were stored later on purpose"
    if any(row.get("wait_ms_p50") is not None for row in report.all_windows):
        charts.append(
            _percentile_chart(report, "wait_ms", waiting, "Delayed messages, retries, dead letters and transactions. ")
        )
    return charts


def _percentile_chart(report: RatesReport, column_prefix: str, title: str, note: str) -> LineChart:
    ranks = ("p50", "p95", "p99")
    series = [Series(rank, [row.get(f"{column_prefix}_{rank}") for row in report.all_windows]) for rank in ranks]
    values = [value for one in series for value in one.values if value is not None]
    is_log = max(values, default=0) > _LARGE_RATIO * max(1, min(values, default=0))
    reading = "Half of the messages are below p50, and one in a hundred is above p99"
    scale = "; the scale is logarithmic" if is_log else ""
    return LineChart(
        title, report.windows, series, _milliseconds_text, marks=list(_chart_marks(report)),
        axis=_short_milliseconds_text,
        is_log=is_log, has_bands=True, note=f"{note}{reading}{scale}",
    )  # fmt: skip


def _chart_marks(report: RatesReport) -> Iterator[Mark]:
    """Yield marks for times that have no figures, are only partly archived, or are damaged."""
    windows = report.windows
    notes = {NONE: (MarkKind.MISSING, "not archived"), ALL: None}
    run: list[int] = []
    states = [row["archived"] for row in report.all_windows]
    for at, state in enumerate([*states, None]):
        if run and states[run[0]] != state:
            kind_and_note = notes.get(states[run[0]], (MarkKind.PARTIAL, "partly archived"))
            if kind_and_note is not None:
                start = windows.start + run[0] * windows.length
                yield Mark(kind_and_note[0], start, start + len(run) * windows.length, kind_and_note[1])
            run = []
        run.append(at)
    found = [(span.end - span.start, broker, span) for broker, spans in report.damage.items() for span in spans]
    for _, broker, span in sorted(found, key=lambda each: each[0], reverse=True)[:MAX_MARKS]:
        if span.start < windows.end and windows.start < span.end:
            yield Mark(MarkKind.DAMAGE, span.start, span.end, f"{broker}: a part of the log is damaged")


def _time_text(moment: datetime.datetime) -> str:
    utc = moment.astimezone(datetime.UTC)
    return format_time(utc) if utc.second else f"{utc:%Y-%m-%d %H:%M}"


def _group_table(report: RatesReport) -> Table:
    named = [Column(name, text=Name) for name in report.question.by] or [Column("all")]
    compared = COLUMNS if report.compared is not None else ()
    figures = rate_columns(
        ["messages", "share_percent", "messages_per_s", "peak_per_s", "peak_at", "retries", "dead_letters", *compared]
    )
    figures.insert(5, Column("log", key="bytes", is_number=True, text=size_text))
    columns = [*named, *figures, Column("over time", can_sort=False)]
    rows = [_group_row(report, row) for row in report.groups]
    left_out = report.group_count - len(report.groups)
    rest = (
        f"The {len(rows):,} largest of {report.group_count:,} are shown. The "
        f"{format_count(left_out, 'other has', 'others have')} "
        f"{format_count(report.rest['messages'], 'message')}, {size_text(report.rest['bytes'])} of log, "
        f"{format_count(report.rest['retries'], 'retry', 'retries')} and "
        f"{format_count(report.rest['dead_letters'], 'dead letter')}."
        if left_out
        else ""
    )
    return Table.of(f"{_groups_title(report)}, the largest first", columns, rows, rest)


def _group_row(report: RatesReport, row: Row) -> Row:
    """Return a table row for a group: figures, names, share of all messages, and a sparkline."""
    key, peak = report.group_key_of_row(row), row["peak_at"]
    messages = report.total["messages"] if report.total else 0
    line = report.lines.get(key)
    trend: Text | Sparkline = ""
    if line is not None:
        trend = Sparkline(
            f"Messages per second of {group_label(key)} over time", [each["messages_per_s"] for each in line]
        )
    return {
        **row,
        **dict(zip(report.question.by, map(value_label, key), strict=True)),
        "all": "all messages",
        "peak_at": peak and Cell(TimeText(_time_text(peak)), peak.timestamp()),
        "share_percent": 100 * (row["messages"] or 0) / messages if messages else 0.0,
        "over time": Cell(trend),
    }


def _groups_title(report: RatesReport) -> str:
    return f"By {_group_columns_text(report)}" if report.question.by else "All messages"


def _group_columns_text(report: RatesReport) -> str:
    return ", ".join(report.question.by)


def _filter_facts(report: RatesReport) -> Iterator[tuple[str, Sequence[object]]]:
    asked = report.question.selection
    yield "Only topic", asked.topics
    yield "Only queue", asked.queue_ids
    yield "Only tag", asked.tags
    yield "Only kind", asked.kinds


def _rate_text(value: float) -> str:
    return f"{value:,.0f}/s" if value >= 100 else f"{value:,.3g}/s"


def _milliseconds_text(value: float) -> str:
    return f"{value:,.0f} ms"


def _short_milliseconds_text(value: float) -> str:
    if value < 1000:
        return f"{value:g} ms"
    unit, name = next((unit, name) for unit, name in _LONG_UNITS if value >= unit)
    return f"{value / unit:.2g} {name}"


def _time_argument(moment: datetime.datetime) -> str:
    return format_iso_time(moment).removesuffix("Z")
