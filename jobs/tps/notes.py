"""Columns of rates, and notices on the counted messages and on missing times, which text and page of `tps` share."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from commitlake.jobs.arguments.durations import duration_text
from commitlake.jobs.tps.arguments import COMPARED
from commitlake.pipelines.tps.coverage import Coverage, TimeSpan
from commitlake.pipelines.tps.rates_query import GROUPS, MINUTE, RatesQuestion
from commitlake.schemas.finding_advice import Advice, Places
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report import AdviceBlock, Block, Kind, Name, Notice, Paragraph
from commitlake.schemas.report_columns import Column
from commitlake.schemas.times import format_iso_time

if TYPE_CHECKING:
    from commitlake.jobs.tps.rates_source import TpsSource
    from commitlake.pipelines.tps.transaction_outcomes import TransactionOutcomes


_OWN_COPIES = "are copies that brokers store themselves (timers, half and op messages, retries, POP) and traces"
_MAX_NAMES = 10
"""Largest number of groups that a sentence names."""
_MAX_RANGES = 20
"""Largest number of missing time ranges that a notice lists."""
DAMAGED = "Parts of the log are damaged"
_RETRIES = Advice(
    "{} counts them by topic: a retry topic is named after its group", ("tps {source} {period} {filters} --kind retry",)
)
_CLOCKS = Advice("{} counts them by producer", ("tps {source} {period} {filters} --by producer-host",))
_PEAK = Advice("{} shows it second by second", ("tps {source} {peak} {filters} --window 1s",))
_ON_LAKE = {
    "Damage": Advice(
        "{} shows the damaged ranges, with their reason and first bytes", ("query {source} --table quarantine",)
    ),
    "Missing": Advice(
        "{} shows the parts of the log that were deleted before they were archived", ("query {source} --table gaps",)
    ),
    "Dead letters": Advice("{} groups those of all topics by cause", ("dlq {source} {period}",)),
    "Retries": _RETRIES,
    "Transactions": Advice("{} shows the half messages", ("query {source} --kind half {period} {filters}",)),
    "Clocks": _CLOCKS, "Peak": _PEAK,
}  # fmt: skip
"""Advice on notices about the messages of a lake, by the subject of the notice."""
_ON_STORE = {
    "Damage": Advice("{} shows the damaged ranges, with causes and repairs", ("verify {place}",)),
    "Dead letters": Advice("{} counts them by topic", ("tps {source} {period} {filters} --kind dlq",)),
    "Retries": _RETRIES, "Clocks": _CLOCKS, "Peak": _PEAK,
}  # fmt: skip


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


def make_notice(
    question: RatesQuestion,
    source: TpsSource,
    word: str,
    title: str,
    *sentences: str,
    kind: Kind = Kind.INFO,
    peak_at: datetime.datetime | None = None,
) -> Notice:
    """Return a notice on the counted messages, with the advice on its subject.

    Args:
        word: Subject of the notice, for its badge.
        title: The notice, without a full stop.
        sentences: Further sentences.
        kind: Severity; a page shows no notice for a good one.
        peak_at: Start of the busiest minute, for the advice on it.
    """
    advice = (_ON_STORE if source.stores else _ON_LAKE).get(word)
    blocks: list[Block] = [Paragraph(Name(sentence)) for sentence in sentences]
    if advice is not None:
        blocks.append(AdviceBlock(advice.fill_placeholders(_advice_values(question, source, peak_at))))
    return Notice(kind, title, *blocks, word=word)


def _advice_values(question: RatesQuestion, source: TpsSource, peak_at: datetime.datetime | None) -> Places:
    """Return the values that replace placeholders in commands of the advice, such as source, period and filters."""
    asked = question.selection
    chosen = (("--topic", asked.topics), ("--queue", asked.queue_ids), ("--tag", asked.tags),
              ("--broker", asked.brokers))  # fmt: skip
    return {
        "source": source.option,
        "place": source.option[1],
        "period": _time_options(question.start, question.end),
        "peak": [] if peak_at is None else _time_options(peak_at, peak_at + MINUTE),
        "filters": [word for option, values in chosen for value in values for word in (option, str(value))],
    }


def _time_options(start: datetime.datetime, end: datetime.datetime) -> list[str]:
    first, last = (format_iso_time(time).removesuffix("Z") for time in (start, end))
    return ["--from", first, "--to", last]


def rate_notices(
    totals: Mapping[str, int], outcomes: TransactionOutcomes | None, question: RatesQuestion, source: TpsSource
) -> Iterator[Notice]:
    """Yield notices on counted messages that are retries, dead letters or parts of transactions, and on clock errors.

    Args:
        totals: sums over all rows, by name.
        outcomes: outcomes of the transactions, if they are known.
    """
    make = partial(make_notice, question, source)
    messages, seconds = totals["messages"], (question.end - question.start).total_seconds()
    if totals["sent"] < messages:
        sent = f"Producers sent {format_count(totals['sent'], 'message')}, {totals['sent'] / seconds:,.4g} per second"
        yield make("Sent", f"{sent}; the other {messages - totals['sent']:,} {_OWN_COPIES}", kind=Kind.GOOD)
    share = "{:.3g} % of the messages".format
    if dead := totals["dead_letters"]:
        why = "Their consumers failed on every permitted attempt."
        title = f"{format_count(dead, 'dead letter')}, {share(100 * dead / messages)}"
        yield make("Dead letters", title, why, kind=Kind.WARNING)
    if retries := totals["retries"]:
        yield make("Retries", f"{format_count(retries, 'retry', 'retries')}, {share(100 * retries / messages)}")
    if totals["prepared"]:
        title, is_good = _transactions_title(totals, outcomes)
        yield make("Transactions", title, kind=Kind.GOOD if is_good else Kind.INFO)
    if skewed := totals["clock_skew"]:
        title = (
            f"{format_count(skewed, 'message has', 'messages have')} a store time before the born time, by the clocks "
            "of both hosts"
        )
        yield make("Clocks", title, "They are not part of any latency.")


def _transactions_title(totals: Mapping[str, int], outcomes: TransactionOutcomes | None) -> tuple[str, bool]:
    """Return a sentence on the outcomes of transactions, and whether all were committed."""
    if outcomes is None:
        open_or_back = max(0, totals["prepared"] - totals["committed"])
        title = (
            f"{format_count(totals['prepared'], 'transaction')}: "
            f"{format_count(totals['committed'], 'message was', 'messages were')} committed, {open_or_back:,} were "
            "rolled back, given up or are open: only the table edges tells them apart"
        )
        return title, not open_or_back
    title = (
        f"{format_count(outcomes.total_count, 'transaction')}: {outcomes.committed:,} committed, "
        f"{outcomes.rolled_back:,} rolled back, {outcomes.given_up:,} given up, {outcomes.open:,} open"
    )
    missing = totals["prepared"] - outcomes.total_count
    if missing > 0:
        title += f"; {missing:,} more are not in the table edges"
    return title, outcomes.total_count == outcomes.committed


def tag_notices(totals: Mapping[str, int], question: RatesQuestion, source: TpsSource) -> Iterator[Notice]:
    """Yield notices on messages with tags that `topic_minutes` counts together, without their names."""
    if totals["other_tags"] and ("tag" in question.by or question.selection.tags):
        rare = format_count(totals["other_tags"], "message has a rare tag", "messages have rare tags")
        title = f"{rare} that topic_minutes does not name: they are counted without a tag"
        yield make_notice(question, source, "Tags", title)
    if question.selection.tags and question.counted_table.name == "topic_minutes":
        only = "only the most frequent tags of each topic are named"
        yield make_notice(question, source, "Tags", f"A tag may have more messages than shown: {only}")


def comparison_notices(
    question: RatesQuestion,
    source: TpsSource,
    comparison_distance: datetime.timedelta,
    silent_groups: Sequence[tuple[Any, ...]],
) -> Iterator[Notice]:
    """Yield notices on groups that have no messages now, and on an earlier time that is not completely archived.

    Args:
        question: the question about the later time.
        comparison_distance: distance to the earlier time.
        silent_groups: groups that have messages only at the earlier time.
    """
    if silent_groups:
        before = next(
            (f"a {name}" for name, by in COMPARED.items() if by == comparison_distance),
            duration_text(comparison_distance),
        )
        have = format_count(len(silent_groups), "group has", "groups have")
        names = "; ".join(group_label(key) for key in silent_groups[:_MAX_NAMES] if key)
        more = f" and {len(silent_groups) - _MAX_NAMES:,} more" if len(silent_groups) > _MAX_NAMES else ""
        title = f"{have} no messages now, but had some {before} before"
        yield make_notice(question, source, "Silent", title, *filter(None, [names + more]), kind=Kind.WARNING)
    earlier = question.shift_earlier(comparison_distance)
    if missing := _missing_time_sentences(earlier, source):
        title = f"The time compared with, {_span_text(earlier)}, is not complete"
        why = "Its messages that are not there are not counted, and changes are not known."
        yield make_notice(question, source, "Compared", title, *missing, why, kind=Kind.WARNING)


def group_label(group_key: Sequence[str | int | None]) -> str:
    """Return the values that identify a group, separated by commas."""
    return ", ".join(map(value_label, group_key))


def value_label(value: str | int | None) -> str:
    """Return one of the values that identify a group as text; `(none)` if it is missing or empty."""
    return "(none)" if value is None or value == "" else str(value)


def coverage_notices(question: RatesQuestion, source: TpsSource) -> Iterator[Notice]:
    """Yield notices on parts of the requested time that are damaged, or that the lake or store does not have."""
    if any(source.damaged.values()):
        sentences = [
            f"{broker}: {format_count(count, 'range of the log is', 'ranges of the log are')} damaged; messages there "
            "are not counted."
            for broker, count in sorted(source.damaged.items())
            if count
        ]
        yield make_notice(question, source, "Damage", DAMAGED, *sentences, kind=Kind.WARNING)
    if missing := _missing_time_sentences(question, source):
        title = "The log has only a part of this time" if source.stores else "Not all of this time is archived"
        whole = source.coverage.whole_span
        assert whole is not None
        is_lost = Coverage({"any": whole}, source.coverage.gaps).lacks_part_of_range(question.start, question.end)
        why = "A time without figures may have had messages."
        yield make_notice(
            question, source, "Missing", title, *missing, why, kind=Kind.WARNING if is_lost else Kind.INFO
        )


def _missing_time_sentences(question: RatesQuestion, source: TpsSource) -> list[str]:
    """Return sentences on parts of the requested time that the lake or store does not have."""
    is_there = "the log has" if source.stores else "archived"
    missing = "is not there" if source.stores else "is not archived"
    found = []
    for broker, span in sorted(source.coverage.spans.items()):
        if question.start < span.start or question.end > span.end:
            found.append(f"{broker}: {is_there} from {_span_text(span)} only.")
        found += [
            f"{broker}: a part of the log from {_span_text(gap)} {missing}."
            for gap in source.coverage.gaps.get(broker, ())
            if gap.start < question.end and question.start < gap.end
        ]
    more = len(found) - _MAX_RANGES
    return [*found[:_MAX_RANGES], f"{more:,} more time ranges are not listed."] if more > 0 else found


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
    counted = f"counted in whole units of {duration_text(unit)}: {_span_text(question)}"
    return [f"{counted}, which is longer than {asked.strip()}"]


def _precision_word(time: datetime.datetime) -> str:
    return "milliseconds" if time.microsecond else "seconds"


def time_range_note(question: RatesQuestion, table_names: str, source: TpsSource, seconds_taken: float) -> str:
    """Return the last line of output: the time range covered, the source, and the seconds taken."""
    origin = "the log" if source.stores else table_names
    return f"{_span_text(question)}, from {origin} ({seconds_taken:.1f} s)"


def _span_text(span: TimeSpan | RatesQuestion) -> str:
    return f"{format_iso_time(span.start)} to {format_iso_time(span.end)}"


def top_limit_note(shown_count: int, total_count: int, noun: str) -> list[str]:
    """Return a sentence if only the largest groups are shown, otherwise none."""
    return (
        [f"{shown_count} of {total_count:,} {noun} are shown; --top 0 shows all"] if shown_count < total_count else []
    )


def sum_columns(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, int]:
    """Return the sum of each named column over all rows."""
    return {name: sum(row[name] or 0 for row in rows) for name in names}
