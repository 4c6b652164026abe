"""Report of `commitlake tps`: how many messages were stored, when, in which groups, and how fast."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from commitlake.jobs.arguments.durations import duration_text
from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.report.page_file import join_names
from commitlake.jobs.tps.arguments import TITLE
from commitlake.jobs.tps.notes import DAMAGED, figure_text, group_label, make_notice, rate_columns, value_label
from commitlake.pipelines.tps.comparison import COLUMNS
from commitlake.pipelines.tps.coverage import ALL, NONE
from commitlake.pipelines.tps.rates_query import MINUTE
from commitlake.pipelines.tps.report import MAX_SKETCHES, RatesReport
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report import (
    MAX_SERIES,
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
    to_plain_text,
)
from commitlake.schemas.report_columns import Column
from commitlake.schemas.times import format_time

if TYPE_CHECKING:
    from commitlake.jobs.tps.rates_source import TpsSource
    from commitlake.pipelines.tps.transaction_outcomes import ReadOutcomes, TransactionOutcomes

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
Row = Mapping[str, Any]


def empty_report(source: TpsSource) -> Report:
    """Return the report on a lake or store without messages."""
    verdict = Verdict(Kind.INFO, "The log has no message." if source.stores else "No message is archived.")
    return Report(TITLE, verdict, [_source_fact(source)], [], "tps")


def _source_fact(source: TpsSource) -> tuple[str, str]:
    option, place = source.option
    return option.removeprefix("--").capitalize(), place


def rates_report(
    report: RatesReport,
    source: TpsSource,
    outcomes: ReadOutcomes,
    text_notices: Sequence[Notice],
    widened_time_notes: Sequence[str],
) -> Report:
    """Return the report, for an HTML page, on message rates.

    Args:
        outcomes: Outcomes of the transactions.
        text_notices: Notices that text has, too.
        widened_time_notes: Sentences on how the requested time was extended.
    """
    question, total = report.question, report.total
    facts = [
        _source_fact(source),
        ("Brokers", join_names(sorted(report.coverage.spans), 5)),
        ("Period", f"{_time_text(question.start)} to {_time_text(question.end)} UTC"),
        ("By", _group_columns_text(report) or "nothing"),
    ]
    facts += [("Rounded", sentence) for sentence in widened_time_notes]
    facts += [(label, ", ".join(map(str, values))) for label, values in _filter_facts(report) if values]
    notices = [*_page_notices(report, source, outcomes), *text_notices]
    notices.sort(key=lambda notice: notice.kind is not Kind.WARNING)
    summary = Section("summary", "In short", [_summary_figures(report, outcomes.found)])
    advice = Section("do", "What to do", [notice for notice in notices if notice.kind is not Kind.GOOD])
    groups = Section("groups", _groups_title(report), [_group_table(report)])
    if total is None:
        sections = [summary, *([advice] if notices else ()), *([groups] if report.groups else ())]
    else:
        rates, latency = _rate_charts(report), _latency_charts(report)
        sections = [
            summary, Section("rates", "Rates over time", rates), advice, Section("latency", "Latency", latency), groups
        ]  # fmt: skip
    return Report(TITLE, _rates_verdict(report, notices), facts, sections, "tps")


def _rates_verdict(report: RatesReport, notices: Sequence[Notice]) -> Verdict:
    total, question = report.total, report.question
    warnings = [f"{to_plain_text(notice.title)}." for notice in notices if notice.kind is Kind.WARNING]
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


def _page_notices(report: RatesReport, source: TpsSource, outcomes: ReadOutcomes) -> Iterator[Notice]:
    """Yield notices that only a page has: on damage of a lake's log and of its edges, and on the busiest time."""
    make = partial(make_notice, report.question, source)
    if any(report.damage.values()) and not any(source.damaged.values()):
        yield make("Damage", DAMAGED, kind=Kind.WARNING)
    if outcomes.damage:
        title = "The outcomes of transactions are not known, because the table edges is damaged"
        yield make("Edges", title, outcomes.damage, kind=Kind.WARNING)
    if report.total is not None:
        peak = report.total["peak_at"]
        yield make("Peak", f"The busiest time began at {_time_text(peak)} UTC", peak_at=peak)


def _summary_figures(report: RatesReport, outcomes: TransactionOutcomes | None) -> KeyFigures | Paragraph:
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
    if outcomes is not None and outcomes.total_count:
        figures |= {
            "transactions committed": f"{outcomes.committed:,}",
            "transactions rolled back": f"{outcomes.rolled_back:,}",
            "transactions given up": f"{outcomes.given_up:,}",
            "transactions open": f"{outcomes.open:,}",
        }
    return KeyFigures(figures)


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
    compared = COLUMNS if report.is_compared else ()
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
