"""Messages of `tps` on standard error: the time that the rows cover, and what is missing."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from commitlake.connectors.printable import escape_line
from commitlake.jobs.arguments.durations import duration_text
from commitlake.jobs.tps.arguments import COMPARED
from commitlake.pipelines.tps.question import RatesQuestion
from commitlake.schemas.counts import format_count
from commitlake.schemas.times import format_iso_time

if TYPE_CHECKING:
    from commitlake.jobs.tps.source import TpsSource
    from commitlake.pipelines.tps.transactions import TransactionOutcomes


OWN_COPIES = "are copies that brokers store themselves (timers, half and op messages, retries, POP) and traces"
_MAX_NAMES = 10
"""Largest number of groups that a sentence names."""


def rate_notes(totals: Mapping[str, int], outcomes: TransactionOutcomes | None, seconds: float) -> list[str]:
    """Return sentences on messages of producers, retries, dead letters, transactions, and clock errors.

    Args:
        totals: sums over all rows, by name.
        outcomes: outcomes of the transactions, if they are known.
        seconds: length of the time range.
    """
    lines = []
    messages = totals["messages"]
    if totals["sent"] < messages:
        lines.append(
            f"producers sent {format_count(totals['sent'], 'message')}, {totals['sent'] / seconds:,.4g} per second; "
            f"the other {messages - totals['sent']:,} {OWN_COPIES}"
        )
    for name, what in (("retries", ("retry", "retries")), ("dead_letters", ("dead letter",))):
        if totals[name]:
            lines.append(f"{format_count(totals[name], *what)}: {100 * totals[name] / messages:.3g} % of the messages")
    if totals["prepared"]:
        lines.append(_transactions_text(totals, outcomes))
    if totals["clock_skew"]:
        lines.append(
            f"{format_count(totals['clock_skew'], 'message has', 'messages have')} a store time before the born time, "
            "by the clocks of both hosts"
        )
    return lines


def _transactions_text(totals: Mapping[str, int], outcomes: TransactionOutcomes | None) -> str:
    if outcomes is None:
        open_or_back = max(0, totals["prepared"] - totals["committed"])
        return (
            f"{format_count(totals['prepared'], 'transaction')}: "
            f"{format_count(totals['committed'], 'message was', 'messages were')} committed, {open_or_back:,} were "
            "rolled back, given up or are open: only the table edges tells them apart"
        )
    sentence = (
        f"{format_count(outcomes.total, 'transaction')}: {outcomes.committed:,} committed, "
        f"{outcomes.rolled_back:,} rolled back, {outcomes.given_up:,} given up, {outcomes.open:,} open"
    )
    missing = totals["prepared"] - outcomes.total
    return f"{sentence}; {missing:,} more are not in the table edges" if missing > 0 else sentence


def tag_notes(totals: Mapping[str, int], question: RatesQuestion) -> list[str]:
    """Return sentences on messages with tags that `topic_minutes` counts together, without their names."""
    lines = []
    if totals["other_tags"] and ("tag" in question.by or question.selection.tags):
        lines.append(
            f"{format_count(totals['other_tags'], 'message has a rare tag', 'messages have rare tags')} that "
            "topic_minutes does not name: they are counted without a tag"
        )
    if question.selection.tags and question.table.name == "topic_minutes":
        lines.append("a tag may have more messages than shown: only the most frequent tags of each topic are named")
    return lines


def comparison_notes(
    question: RatesQuestion, compared: str, silent: Sequence[tuple[Any, ...]], source: TpsSource
) -> list[str]:
    """Return sentences on groups without messages now, and on missing parts of the earlier time.

    Args:
        compared: name of the time distance, from `COMPARED`.
        silent: groups without messages now.
        source: the tables.
    """
    lines = []
    if silent:
        names = [", ".join("(none)" if value is None else str(value) for value in key) for key in silent]
        listed = f": {escape_line('; '.join(names[:_MAX_NAMES]))}" if any(names) else ""
        more = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
        lines.append(
            f"{format_count(len(silent), 'group has', 'groups have')} no messages now, but had some a {compared} "
            f"before{listed}{more}"
        )
    if missing := _missing_times(question.shift_earlier(COMPARED[compared]), source):
        lines += [f"time of --compare: {note}" for note in missing]
        lines.append(
            "where the time of --compare is not complete, messages_before counts only what is there, and "
            "change_percent is not known"
        )
    return lines


def coverage_notes(question: RatesQuestion, source: TpsSource) -> list[str]:
    """Return sentences on parts of the requested time that are missing or damaged."""
    return _missing_times(question, source) + [
        f"{broker}: {format_count(count, 'range of the log is', 'ranges of the log are')} damaged; messages "
        "there are not counted; 'commitlake verify' shows where"
        for broker, count in sorted(source.damaged.items())
        if count
    ]


def _missing_times(question: RatesQuestion, source: TpsSource) -> list[str]:
    is_there = "the log has" if source.stores else "archived"
    missing = "is not there" if source.stores else "is not archived"
    lines = []
    for broker, span in sorted(source.coverage.spans.items()):
        if question.start < span.start or question.end > span.end:
            lines.append(f"{broker}: {is_there} from {format_iso_time(span.start)} to {format_iso_time(span.end)} only")
        lines += [
            f"{broker}: a part of the log from {format_iso_time(gap.start)} to {format_iso_time(gap.end)} {missing}"
            for gap in source.coverage.gaps.get(broker, ())
            if gap.start < question.end and question.start < gap.end
        ]
    return lines


def widened_time_range_note(
    question: RatesQuestion,
    start: datetime.datetime | None,
    end: datetime.datetime | None,
    unit: datetime.timedelta,
) -> list[str]:
    """Return a sentence if the counted time is longer than the requested time, otherwise none.

    Args:
        start: requested start; None for that of the archive.
        end: requested end, likewise.
        unit: unit of time to which both were rounded.
    """
    if start in (None, question.start) and end in (None, question.end):
        return []
    asked = " to ".join("" if time is None else format_iso_time(time, _precision_word(time)) for time in (start, end))
    counted = f"{format_iso_time(question.start)} to {format_iso_time(question.end)}"
    return [f"counted in whole units of {duration_text(unit)}: {counted}, which is longer than {asked.strip()}"]


def _precision_word(time: datetime.datetime) -> str:
    return "milliseconds" if time.microsecond else "seconds"


def time_range_note(question: RatesQuestion, table: str, source: TpsSource, seconds: float) -> str:
    """Return the last line of output: the time covered, the source, and the seconds taken."""
    origin = "the log" if source.stores else table
    return f"{format_iso_time(question.start)} to {format_iso_time(question.end)}, from {origin} ({seconds:.1f} s)"


def top_limit_note(shown: int, found: int, what: str) -> list[str]:
    """Return a sentence if only the largest groups are shown, otherwise none."""
    return [f"{shown} of {found:,} {what} are shown; --top 0 shows all"] if shown < found else []


def sum_columns(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, int]:
    """Return the sum of each named column over all rows."""
    return {name: sum(row[name] or 0 for row in rows) for name in names}
