"""Columns of rates, notes on the counted messages, and missing times, which text and page of `tps` share.

This module does not import `schemas.report`, so that text does not load what only a page needs.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from commitlake.connectors.printable import escape_line
from commitlake.jobs.arguments.durations import duration_text
from commitlake.jobs.tps.arguments import COMPARED
from commitlake.pipelines.tps.rates_query import GROUPS, RatesQuestion
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report_columns import Column
from commitlake.schemas.times import format_iso_time

if TYPE_CHECKING:
    from commitlake.jobs.tps.rates_source import TpsSource
    from commitlake.pipelines.tps.transaction_outcomes import TransactionOutcomes


OWN_COPIES = "are copies that brokers store themselves (timers, half and op messages, retries, POP) and traces"
_MAX_NAMES = 10
"""Largest number of groups that a sentence names."""


def figure_text(value: str | float) -> str:
    """Format a figure for people, with at most three digits after the point; a text is returned unchanged."""
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return f"{value:,}" if isinstance(value, int) else value


def _figure(title: str, spare_rank: int = 0, key: str = "", format_value: Callable[[Any], str] = figure_text) -> Column:
    return Column(title, spare_rank, key=key or title.replace(" ", "_"), is_number=True, text=format_value)


_COLUMNS = {column.key: column for column in (
    _figure("messages"), _figure("msg/s", 1, "messages_per_s"), _figure("bytes/s", 2, "bytes_per_s"),
    _figure("sent", 3), _figure("messages before", 4), _figure("peak msg/s", 5, "peak_per_s"),
    _figure("change", 6, "change_percent", "{:+,.1f} %".format),
    _figure("share", 0, "share_percent", "{:.1f} %".format),
    _figure("share of topic", 7, "topic_share_percent", "{:.1f} %".format), _figure("skew", 8), _figure("retries", 9),
    _figure("dead letters", 10), Column("peak at", 11, key="peak_at", is_ranked=True), _figure("committed", 12),
    _figure("prepared", 13), _figure("rolled back", 14), _figure("given up", 15), _figure("open", 16),
    _figure("clock skew", 17), Column("archived", 18), Column("oldest overdue", 19, key="oldest_overdue"),
    _figure("max late s", 20), _figure("outlives segment", 21), _figure("without id", 22),
)}  # fmt: skip


def rate_columns(column_keys: Iterable[str]) -> list[Column]:
    """Return table columns for the given keys, which are figures or values that name a group."""
    return [
        _COLUMNS.get(name) or Column(name.replace("_", " "), key=name, text=None if name in GROUPS else figure_text)
        for name in column_keys
    ]


class RateNote(NamedTuple):
    """Note below the message rates, such as on retries or dead letters among the counted messages.

    Attributes:
        word: Subject of the note, for its badge.
        sentence: The note, without a full stop.
        kind: Severity, a value of `schemas.report.Kind`; a page has no notice for a good one.
        why: Further sentence, which only a page has.
        names: Names of groups, separated by semicolons.
    """

    word: str
    sentence: str
    kind: str = "info"
    why: str = ""
    names: str = ""

    @property
    def line(self) -> str:
        """The note's sentence, followed by the groups that it names, as one line of text."""
        return escape_line(f"{self.sentence}: {self.names}" if self.names else self.sentence)


def rate_notes(
    totals: Mapping[str, int], outcomes: TransactionOutcomes | None, question: RatesQuestion
) -> Iterator[RateNote]:
    """Yield notes on how many counted messages are retries, dead letters or parts of transactions, and on clock errors.

    Args:
        totals: sums over all rows, by name.
        outcomes: outcomes of the transactions, if they are known.
        question: the question, with its time range.
    """
    messages, seconds = totals["messages"], (question.end - question.start).total_seconds()
    if totals["sent"] < messages:
        sent = f"producers sent {format_count(totals['sent'], 'message')}, {totals['sent'] / seconds:,.4g} per second"
        yield RateNote("Sent", f"{sent}; the other {messages - totals['sent']:,} {OWN_COPIES}", "good")
    share = "{:.3g} % of the messages".format
    if dead := totals["dead_letters"]:
        why = "Their consumers failed on every permitted attempt."
        sentence = f"{format_count(dead, 'dead letter')}, {share(100 * dead / messages)}"
        yield RateNote("Dead letters", sentence, "warning", why)
    if retries := totals["retries"]:
        yield RateNote("Retries", f"{format_count(retries, 'retry', 'retries')}, {share(100 * retries / messages)}")
    if totals["prepared"]:
        yield _transactions_note(totals, outcomes)
    if skewed := totals["clock_skew"]:
        sentence = (
            f"{format_count(skewed, 'message has', 'messages have')} a store time before the born time, by the clocks "
            "of both hosts"
        )
        yield RateNote("Clocks", sentence, why="They are not part of any latency.")


def _transactions_note(totals: Mapping[str, int], outcomes: TransactionOutcomes | None) -> RateNote:
    if outcomes is None:
        open_or_back = max(0, totals["prepared"] - totals["committed"])
        sentence = (
            f"{format_count(totals['prepared'], 'transaction')}: "
            f"{format_count(totals['committed'], 'message was', 'messages were')} committed, {open_or_back:,} were "
            "rolled back, given up or are open: only the table edges tells them apart"
        )
        return RateNote("Transactions", sentence, "info" if open_or_back else "good")
    sentence = (
        f"{format_count(outcomes.total_count, 'transaction')}: {outcomes.committed:,} committed, "
        f"{outcomes.rolled_back:,} rolled back, {outcomes.given_up:,} given up, {outcomes.open:,} open"
    )
    missing = totals["prepared"] - outcomes.total_count
    if missing > 0:
        sentence += f"; {missing:,} more are not in the table edges"
    return RateNote("Transactions", sentence, "good" if outcomes.total_count == outcomes.committed else "info")


def tag_notes(totals: Mapping[str, int], question: RatesQuestion) -> Iterator[RateNote]:
    """Yield notes on messages with tags that `topic_minutes` counts together, without their names."""
    if totals["other_tags"] and ("tag" in question.by or question.selection.tags):
        rare = format_count(totals["other_tags"], "message has a rare tag", "messages have rare tags")
        yield RateNote("Tags", f"{rare} that topic_minutes does not name: they are counted without a tag")
    if question.selection.tags and question.counted_table.name == "topic_minutes":
        only = "only the most frequent tags of each topic are named"
        yield RateNote("Tags", f"a tag may have more messages than shown: {only}")


def comparison_notes(
    question: RatesQuestion,
    comparison_distance: datetime.timedelta,
    silent_groups: Sequence[tuple[Any, ...]],
    *,
    is_earlier_time_complete: bool,
) -> Iterator[RateNote]:
    """Yield notes on groups that have no messages now, and on an earlier time that is not completely archived.

    Args:
        question: the question about the later time.
        comparison_distance: distance to the earlier time.
        silent_groups: groups that have messages only at the earlier time.
        is_earlier_time_complete: whether all of the earlier time is there.
    """
    if silent_groups:
        before = next(
            (f"a {name}" for name, by in COMPARED.items() if by == comparison_distance),
            duration_text(comparison_distance),
        )
        have = format_count(len(silent_groups), "group has", "groups have")
        names = "; ".join(group_label(key) for key in silent_groups[:_MAX_NAMES] if key)
        more = f" and {len(silent_groups) - _MAX_NAMES:,} more" if len(silent_groups) > _MAX_NAMES else ""
        sentence = f"{have} no messages now, but had some {before} before"
        yield RateNote("Silent", sentence, "warning", names=names + more)
    if not is_earlier_time_complete:
        sentence = (
            f"the time compared with, {_time_range_text(question.shift_earlier(comparison_distance))}, is not complete"
        )
        why = "Its messages that are not there are not counted, and changes are not known."
        yield RateNote("Compared", sentence, "warning", why)


def group_label(group_key: Sequence[str | int | None]) -> str:
    """Return the values that identify a group, separated by commas."""
    return ", ".join(map(value_label, group_key))


def value_label(value: str | int | None) -> str:
    """Return one of the values that identify a group as text; `(none)` if it is missing or empty."""
    return "(none)" if value is None or value == "" else str(value)


def coverage_notes(question: RatesQuestion, source: TpsSource) -> list[str]:
    """Return sentences on parts of the requested time that are missing or damaged."""
    return missing_time_notes(question, source) + [
        f"{broker}: {format_count(count, 'range of the log is', 'ranges of the log are')} damaged; messages "
        "there are not counted; 'commitlake verify' shows where"
        for broker, count in sorted(source.damaged.items())
        if count
    ]


def missing_time_notes(question: RatesQuestion, source: TpsSource) -> list[str]:
    """Return sentences on parts of the requested time that the lake or store does not have."""
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
    """Return a sentence if the time range was extended to whole minutes or seconds, otherwise none.

    Args:
        start: requested start; None for that of the archive.
        end: requested end, likewise.
        unit: unit of time to which both were rounded.
    """
    if start in (None, question.start) and end in (None, question.end):
        return []
    asked = " to ".join("" if time is None else format_iso_time(time, _precision_word(time)) for time in (start, end))
    counted = f"counted in whole units of {duration_text(unit)}: {_time_range_text(question)}"
    return [f"{counted}, which is longer than {asked.strip()}"]


def _precision_word(time: datetime.datetime) -> str:
    return "milliseconds" if time.microsecond else "seconds"


def time_range_note(question: RatesQuestion, table_names: str, source: TpsSource, seconds_taken: float) -> str:
    """Return the last line of output: the time range covered, the source, and the seconds taken."""
    origin = "the log" if source.stores else table_names
    return f"{_time_range_text(question)}, from {origin} ({seconds_taken:.1f} s)"


def _time_range_text(question: RatesQuestion) -> str:
    return f"{format_iso_time(question.start)} to {format_iso_time(question.end)}"


def top_limit_note(shown_count: int, total_count: int, noun: str) -> list[str]:
    """Return a sentence if only the largest groups are shown, otherwise none."""
    return (
        [f"{shown_count} of {total_count:,} {noun} are shown; --top 0 shows all"] if shown_count < total_count else []
    )


def sum_columns(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, int]:
    """Return the sum of each named column over all rows."""
    return {name: sum(row[name] or 0 for row in rows) for name in names}
