"""Report of `commitlake lag`: the group that is furthest behind, since when, and what to do.

Text, page and notebook show the same tables of groups and queues; `machine_readable_rows` are the rows for programs.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from commitlake.jobs.arguments.durations import duration_text
from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.lag.arguments import TITLE
from commitlake.pipelines.lag.group_lag import LagRow
from commitlake.pipelines.lag.group_summaries import (
    GROUP_KINDS,
    GroupSummary,
    group_row_times,
    sort_worst_first,
    sum_of_bounds,
)
from commitlake.pipelines.lag.verdicts import NOT_MOVING, FigureBounds, LagVerdict
from commitlake.schemas.finding_advice import Advice
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.rocketmq.topics import RETRY_PREFIX
from commitlake.schemas.report import (
    AdviceBlock,
    Badge,
    Block,
    Cell,
    CollapsedContent,
    HeatMap,
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
    Table,
    TimeText,
    Verdict,
    format_whole_number,
)
from commitlake.schemas.report_columns import Column
from commitlake.schemas.times import format_iso_time, format_time

if TYPE_CHECKING:
    from commitlake.pipelines.lag.history import LagHistory
    from commitlake.pipelines.lag.store_lag import LagAnswer

MAX_HEAT_GROUPS = 20
"""Largest number of groups in the heat map; the worst are shown."""
MAX_LINE_GROUPS = 6
"""Largest number of groups with a line; the worst are shown."""
MAX_GROUPS = 200
"""Largest number of groups with a row; the worst are shown."""
MAX_QUEUES = 300
"""Largest number of queues with a row; the worst are shown."""
_MAX_NOTICES = 5
_LARGE_RATIO = 50
_KINDS = {
    LagVerdict.OK: Kind.GOOD,
    LagVerdict.UNKNOWN: Kind.INFO,
    LagVerdict.SLOW: Kind.WARNING,
    LagVerdict.AHEAD: Kind.WARNING,
    LagVerdict.REWOUND: Kind.WARNING,
    LagVerdict.STALLED: Kind.CRITICAL,
    LagVerdict.STOPPED: Kind.CRITICAL,
    LagVerdict.LOST: Kind.CRITICAL,
}
_HAPPENED = {
    LagVerdict.UNKNOWN: "is behind",
    LagVerdict.SLOW: "is too slow",
    LagVerdict.AHEAD: "is ahead of the queue's end",
    LagVerdict.REWOUND: "was set back",
    LagVerdict.STALLED: "has stalled",
    LagVerdict.STOPPED: "has stopped",
    LagVerdict.LOST: "has lost messages",
}
Row = dict[str, Any]
_FIGURE_COLUMNS = (
    Column("verdict", is_ranked=True), Column("messages behind", key="messages", is_number=True),
    Column("next one has waited", 1, key="time_lag", is_number=True),
    Column("bytes behind", 6, key="bytes", is_number=True), Column("messages lost", 2, key="lost", is_number=True),
)  # fmt: skip
_RATE_COLUMNS = (
    Column("consumed per s", 4, key="consume_tps", is_number=True), Column("caught up in", 5, key="drain"),
)  # fmt: skip
_REMARK_COLUMNS = (Column("filter", 7), Column("notes", is_notes=True, can_sort=False))
GROUP_COLUMNS = (
    Column("group"), *_FIGURE_COLUMNS, Column("queues behind", 8, key="queues", is_number=True), Column("topics", 3),
    *_RATE_COLUMNS, *_REMARK_COLUMNS,
)  # fmt: skip
QUEUE_COLUMNS = (
    Column("topic"), Column("queue", key="queue_id", is_number=True), Column("broker"), *_FIGURE_COLUMNS,
    *_RATE_COLUMNS, Column("last consumed (UTC)", 9, key="last_consumed", is_ranked=True), *_REMARK_COLUMNS,
)  # fmt: skip
PLAIN_COLUMNS = (
    "broker", "kind", "group", "topic", "queue_id", "as_of", "offset_min", "offset_max", "end", "difference",
    "messages_min", "messages_max", "lost_min", "lost_max", "bytes_min", "bytes_max", "time_lag_s_min",
    "time_lag_s_max", "next_message_time", "last_consumed_time", "consume_tps", "produce_tps", "drain_s", "compared_at",
    "verdict", "filter", "filter_as_of", "members", "notes",
)  # fmt: skip
_AT_OFFSET = (
    "query {source} --broker {broker} --topic {topic} --queue {queue} --where 'queue_offset >= {offset}' --limit 20"
)
_ADVICE = {
    LagVerdict.UNKNOWN: Advice(
        "One snapshot does not show whether the group is moving. {} takes another one",
        ("snapshot --lake {lake} --store {store}",),
    ),
    LagVerdict.SLOW: Advice(
        "Messages arrive faster than the group processes them. More clients help, up to one for each queue; beyond "
        "that, each message has to take less time. {} shows how fast they arrive",
        ("tps {source} --topic {topic} --by queue --window 10m",),
    ),
    LagVerdict.AHEAD: Advice(
        "The topic was recreated, or its log was truncated: the group receives nothing until the queue has grown that "
        "far. Reset its offset once you know that no earlier message is needed"
    ),
    LagVerdict.REWOUND: Advice(
        "Its offset was set back, so it consumes messages again. If nobody intended that, look for a client with old "
        "offsets of its own"
    ),
    LagVerdict.STALLED: Advice(
        "Messages are waiting, and its offset does not move. Often one message fails again and again: read the "
        "clients' logs, and look at the message at this offset"
    ),
    LagVerdict.STOPPED: Advice(
        "Messages are waiting, and it has no client. Start its clients; they continue from this offset"
    ),
    LagVerdict.LOST: Advice("The broker deleted messages before the group consumed them"),
}
_IN_LAKE = {
    LagVerdict.REWOUND: Advice("{} shows the messages that it consumes again", (_AT_OFFSET,)),
    LagVerdict.STALLED: Advice("{} shows the messages from this offset on", (_AT_OFFSET,)),
    LagVerdict.LOST: Advice("{} shows the messages from its offset on that are in the lake", (_AT_OFFSET,)),
}
"""Further advice if the figures are those of a lake, which has the messages."""
_BEFORE_LOG = (
    "replay {source} --not-consumed-by {group} {at} --broker {broker} --where 'physical_offset < {log_start}' --dry-run"
)
_SEND_AGAIN = Advice(
    "Those that are in the lake can be sent again. {} shows which, and sends nothing",
    (_BEFORE_LOG,),
)
_QUEUES = Advice("{} shows each of its queues", ("lag {source} --group {group} --by queue --all {at}",))


@dataclass(frozen=True, slots=True)
class MeasuredSource:
    """Lake or store whose lag a page shows.

    Attributes:
        option: `--lake` or `--store`, and its value, for command lines.
        at: The requested time; None for the last snapshot.
    """

    option: tuple[str, str]
    at: datetime.datetime | None = None

    @property
    def is_lake(self) -> bool:
        """Return True for a lake, whose messages can be looked up, and False for a store."""
        return self.option[0] == "--lake"

    @property
    def advice_values(self) -> dict[str, str | Sequence[str]]:
        """Values of the lake or store that replace placeholders in commands of the advice."""
        return {"source": self.option, self.option[0].removeprefix("--"): self.option[1]}

    def time_option_words(self, option: str) -> list[str]:
        """Return an option with the requested time, as words of a command line; empty if no time was requested."""
        return [] if self.at is None else [option, format_iso_time(self.at).removesuffix("Z")]


def lag_report(
    answer: LagAnswer,
    history: LagHistory | None,
    source: MeasuredSource,
    unknown_name_warnings: Sequence[str] = (),
    stalled_since: datetime.datetime | None = None,
) -> Report:
    """Return the report of a lag measurement.

    Args:
        answer: All rows, including those of groups that are not behind.
        history: History of the worst groups; None if there is none.
        unknown_name_warnings: Sentences on requested groups and topics without a known offset.
        stalled_since: Time since which the worst queue of the worst group has not moved, if it is known.
    """
    groups, missing = answer.groups, [*answer.missing, *unknown_name_warnings]
    label, place = ("Lake", source.option[1]) if source.is_lake else ("Store", source.option[1])
    as_of = " to ".join(map(format_time, _first_and_last_time(answer.rows)))
    facts = [
        (label, place), ("Brokers", _brokers_text(answer.rows)), ("As of", f"{as_of} UTC" if as_of else "not known")
    ]  # fmt: skip
    ordered = sort_worst_first(answer.rows)
    of_groups, held = ([row for row in ordered if (row.kind in GROUP_KINDS) is has] for has in (True, False))
    columns = [column for column in GROUP_COLUMNS if column not in _REMARK_COLUMNS]  # a group may have many of them
    sections = [
        Section("summary", "In short", [_summary_figures(groups)]),
        Section("do", "What to do", list(_advice_blocks(groups, missing, source, stalled_since))),
        Section("history", "Lag over time", list(_history_charts(groups, history, source))),
        Section("groups", "Groups", [_group_table(groups, columns, MAX_GROUPS)]),
        Section("queues", "Queues", [_queue_table(of_groups, "group", QUEUE_COLUMNS, MAX_QUEUES)]),
    ]
    if held:
        held_table = _queue_table(held, "kind", QUEUE_COLUMNS, MAX_QUEUES)
        sections.append(Section("held", "Held back by brokers", [held_table]))
    return Report(TITLE, _lag_verdict(groups, held, missing), facts, sections, "lag")


def summary_sentence(answer: LagAnswer) -> str:
    """Return a sentence with the verdict on all rows and the time to which the figures refer."""
    as_of = " to ".join(map(format_iso_time, _first_and_last_time(answer.rows)))
    held = [row for row in answer.rows if row.kind not in GROUP_KINDS]
    return _lag_verdict(answer.groups, held, answer.missing).sentence + (f" As of {as_of}." if as_of else "")


def _first_and_last_time(rows: Sequence[LagRow]) -> list[datetime.datetime]:
    """Return the earliest and latest time of the groups' rows; one time if they are equal, none without rows."""
    times = group_row_times(rows)
    return [*times[:1], *times[1:][-1:]]


def _lag_verdict(
    groups: Sequence[GroupSummary], held_back_rows: Sequence[LagRow], missing_data_sentences: Sequence[str]
) -> Verdict:
    """Return the verdict on consumer groups and on messages that brokers hold back, such as delayed ones."""
    overdue = sorted(
        {f"{row.kind} messages of {row.topic}" for row in held_back_rows if row.judged.verdict is not LagVerdict.OK}
    )
    more = _omitted_count_text(len(overdue) - _MAX_NOTICES)
    remarks = f" Overdue: {', '.join(overdue[:_MAX_NOTICES])}{more}." if overdue else ""
    remarks += " Some stores have no known offsets." if missing_data_sentences else ""
    if not groups:
        kind = Kind.WARNING if missing_data_sentences or overdue else Kind.INFO
        return Verdict(kind, f"No group's offsets are known.{remarks}")
    ill = [group for group in groups if group.verdict is not LagVerdict.OK]
    if ill:
        worst = ill[0]
        sentence = (
            f"{worst.group} {_HAPPENED[worst.verdict]} on {worst.worst_row.topic}: {_messages_behind_text(worst)}."
        )
        if len(ill) > 1:
            others = len(ill) - 1
            sentence += f" {format_count(others, 'other group needs', 'other groups need')} attention."
        return Verdict(_KINDS[worst.verdict], sentence + remarks, str(worst.verdict))
    most = max(groups, key=lambda group: group.messages_behind.largest)
    sentence = f"{'The group keeps' if len(groups) == 1 else f'All {len(groups):,} groups keep'} up"
    sentence += (
        f"; {most.group} is furthest behind: {_messages_behind_text(most)}."
        if most.messages_behind.largest
        else "; none is behind."
    )
    badge = "unknown" if missing_data_sentences else str(LagVerdict.SLOW) if overdue else "ok"
    return Verdict(Kind.WARNING if missing_data_sentences or overdue else Kind.GOOD, sentence + remarks, badge)


def _messages_behind_text(group: GroupSummary) -> str:
    sentence = f"{_message_count_text(group.messages_behind)} behind"
    return (
        f"{sentence}, the next one has waited for {bounds_text(group.longest_wait_seconds, seconds_text)}"
        if group.longest_wait_seconds.largest
        else sentence
    )


def _summary_figures(groups: Sequence[GroupSummary]) -> KeyFigures:
    verdicts = Counter(group.verdict for group in groups)
    worst = max((group.longest_wait_seconds.largest for group in groups), default=0.0)
    figures = {
        "groups": f"{len(groups):,}",
        "messages behind": _number_bounds_text(sum_of_bounds(group.messages_behind for group in groups)),
        "longest wait": seconds_text(worst),
    }
    if lost := sum_of_bounds(group.lost_messages for group in groups).largest:
        figures["messages lost"] = format_whole_number(lost)
    figures |= {str(verdict): f"{verdicts[verdict]:,}" for verdict in reversed(LagVerdict) if verdicts[verdict]}
    return KeyFigures(figures)


def _advice_blocks(
    groups: Sequence[GroupSummary],
    missing_data_sentences: Sequence[str],
    source: MeasuredSource,
    stalled_since: datetime.datetime | None,
) -> Iterator[Block]:
    for sentence in missing_data_sentences[:_MAX_NOTICES]:
        yield Notice(Kind.WARNING, sentence, word="Missing")
    ill = [group for group in groups if group.verdict is not LagVerdict.OK]
    for group in ill[:_MAX_NOTICES]:
        is_first = group is groups[0]
        yield Notice(
            _KINDS[group.verdict],
            (Name(group.group), f" {_HAPPENED[group.verdict]} on ", Name(group.worst_row.topic)),
            Paragraph(
                f"{_messages_behind_text(group)}{_stalled_since_text(group, stalled_since) if is_first else ''}."
            ),
            *_reason_blocks(group),
            *_lost_messages_blocks(group, source),
            *_group_advice_blocks(group, source),
            *_group_note_blocks(group),
            word=str(group.verdict),
        )
    if len(ill) > _MAX_NOTICES:
        left = len(ill) - _MAX_NOTICES
        yield Paragraph(
            f"{format_count(left, 'more group needs', 'more groups need')} attention: see the table of groups."
        )
    if not ill and not missing_data_sentences:
        yield Paragraph("No group is stalled, stopped, slow or misplaced.")


def _stalled_since_text(group: GroupSummary, stalled_since: datetime.datetime | None) -> str:
    if stalled_since is None or group.verdict not in NOT_MOVING:
        return ""
    moment, at = stalled_since.astimezone(datetime.UTC), group.worst_row.as_of.astimezone(datetime.UTC)
    text = f"{moment:%H:%M}" if moment.date() == at.date() else f"{moment:%Y-%m-%d %H:%M}"
    return f", not moving since {text} UTC"


def _reason_blocks(group: GroupSummary) -> Iterator[Block]:
    """Yield paragraphs on the reason for a group's verdict, and on how long the group needs to catch up."""
    row = group.worst_row
    if row.judged.reason:
        yield Paragraph(f"Why: {row.judged.reason} (queue {row.queue_id} of ", Name(row.topic), ").")
    drains = [_catch_up_seconds(row) for row in group.rows]
    rates = [rate for row in group.rows for rate in (row.judged.consume_tps, row.judged.produce_tps)]
    if group.messages_behind.high is None or None in rates:
        yield Paragraph("How long it needs to catch up is not known.")
    elif None in drains:
        yield Paragraph("At its present rate it does not catch up.")
    else:
        yield Paragraph(
            f"At its present rate it has caught up in {seconds_text(max(filter(None, drains), default=0.0))}."
        )


def _group_note_blocks(group: GroupSummary) -> Iterator[Block]:
    notes = list(dict.fromkeys(note for row in group.rows for note in row.notes))
    if notes:
        yield CollapsedContent("Notes", *(Paragraph(note, is_quiet=True) for note in notes[:_MAX_NOTICES]))


def _lost_messages_blocks(group: GroupSummary, source: MeasuredSource) -> Iterator[Block]:
    """Yield blocks on how many messages a group has lost, and how to send again those that the lake has."""
    if not group.lost_messages.largest:
        return
    noun = "message was" if group.lost_messages == (1, 1) else "messages were"
    text = f"{_number_bounds_text(group.lost_messages)} {noun} lost."
    if not source.is_lake:
        yield Paragraph(text)
        return
    yield Paragraph(text)
    starts = {row.broker: row.log_start for row in group.rows if row.lost.largest}
    places = {**source.advice_values, "group": group.group, "at": source.time_option_words("--offsets-at")}
    brokers = [{**places, "broker": broker, "log_start": str(start)} for broker, start in sorted(starts.items())]
    yield AdviceBlock(_SEND_AGAIN.fill_for_each_place(brokers))


def _group_advice_blocks(group: GroupSummary, source: MeasuredSource) -> Iterator[Block]:
    row = group.worst_row
    places = source.advice_values | {
        "group": group.group,
        "broker": row.broker,
        "topic": row.topic,
        "queue": str(row.queue_id),
        "offset": str(row.offset.low),
        "at": source.time_option_words("--at"),
    }
    yield AdviceBlock(_ADVICE[group.verdict].fill_placeholders(places))
    if source.is_lake and group.verdict in _IN_LAKE:
        yield AdviceBlock(_IN_LAKE[group.verdict].fill_placeholders(places))
    yield AdviceBlock(_QUEUES.fill_placeholders(places))


def _history_charts(
    groups: Sequence[GroupSummary], history: LagHistory | None, source: MeasuredSource
) -> Iterator[Block]:
    if history is None:
        why = "The lake has no snapshot of these groups" if source.is_lake else "A store has no history of its groups"
        yield Paragraph(f"{why}: 'commitlake snapshot', or each run of 'archive', saves their offsets.")
        return
    drawn = [group for group in groups if group.group in history.messages]
    windows = history.windows
    rows = [
        Series(
            group.group,
            history.messages[group.group],
            (Badge(_KINDS[group.verdict], str(group.verdict)), " ", _number_bounds_text(group.messages_behind)),
        )
        for group in drawn
    ]
    note = (
        "Figures are those of snapshots, with messages that the broker deleted since; times without a snapshot have no "
        "figures"
    )
    if any(row.filter is None for group in drawn for row in group.rows if row.kind == "group"):
        note += "; for groups whose filter is not known, they are upper bounds"
    yield HeatMap("Messages behind, the worst group first", windows, rows, note=note)
    if len(drawn) < len(groups):
        yield Paragraph(f"The {len(drawn):,} worst of {len(groups):,} groups are drawn.", is_quiet=True)
    lines = [Series(group.group, history.messages[group.group]) for group in drawn[:MAX_LINE_GROUPS]]
    values = [value for line in lines for value in line.values if value]
    is_log = bool(values) and max(values) > _LARGE_RATIO * min(values)
    yield LineChart(
        f"Messages behind, of the {len(lines)} worst groups" if len(drawn) > len(lines) else "Messages behind",
        windows,
        lines,
        marks=list(_times_without_snapshot(history)),
        is_log=is_log,
        note="The scale is logarithmic" if is_log else "",
    )


def _times_without_snapshot(history: LagHistory) -> Iterator[Mark]:
    """Yield a chart mark for each time range in which no group has a measured value."""
    windows = history.windows
    start: int | None = None
    for number in range(windows.count + 1):
        has_figure = number == windows.count or any(line[number] is not None for line in history.messages.values())
        if not has_figure and start is None:
            start = number
        if has_figure and start is not None:
            first = windows.start + start * windows.length
            yield Mark(MarkKind.MISSING, first, windows.start + number * windows.length, "no snapshot")
            start = None


def text_table(rows: Sequence[LagRow], *, shows_queues: bool) -> Table:
    """Return the table of `lag` as text: a row for each queue, or for each group and kind of held back messages."""
    if shows_queues:
        return _queue_table(rows, "group", [column for column in QUEUE_COLUMNS if column.key != "last_consumed"])
    found: dict[str, list[LagRow]] = {}
    for row in rows:
        found.setdefault(_group_or_kind_label(row), []).append(row)
    return _group_table([GroupSummary(name, of_group) for name, of_group in found.items()], GROUP_COLUMNS)


def _group_table(groups: Sequence[GroupSummary], columns: Sequence[Column], max_rows: int | None = None) -> Table:
    rest = _hidden_rows_text("groups", [group.messages_behind for group in groups], max_rows)
    return Table.of("Groups, the worst first", columns, map(_group_row, groups[:max_rows]), rest)


def _queue_table(
    rows: Sequence[LagRow], first_column: str, columns: Sequence[Column], max_rows: int | None = None
) -> Table:
    has_brokers = len({row.broker for row in rows}) > 1
    shown = [column for column in (Column(first_column), *columns) if has_brokers or column != "broker"]
    rest = _hidden_rows_text("queues", [row.messages for row in rows], max_rows)
    return Table.of("Queues, the worst first", shown, map(_queue_row, rows[:max_rows]), rest)


def _hidden_rows_text(row_noun: str, messages_behind: Sequence[FigureBounds], shown_count: int | None) -> str:
    """Return a sentence about the rows that a table does not show; empty if it shows all of them.

    Args:
        row_noun: what the rows are.
        messages_behind: messages behind, by row, the worst first.
        shown_count: number of rows that are shown; None for all.
    """
    if shown_count is None or len(messages_behind) <= shown_count:
        return ""
    others = messages_behind[shown_count:]
    the_others = "the other one is" if len(others) == 1 else f"the {len(others):,} others are"
    behind = _message_count_text(sum_of_bounds(others))
    return f"The {shown_count:,} worst of {len(messages_behind):,} {row_noun} are shown; {the_others} {behind} behind."


def _group_row(group: GroupSummary) -> Row:
    topics = sorted(group.troubled_topics, key=lambda topic: (topic.startswith(RETRY_PREFIX), topic))
    names = [part for topic in topics[:3] for part in (", ", Name(topic))][1:]
    queues = sum(1 for row in group.rows if row.messages.low or row.messages.high is None or row.messages.high)
    return {
        "topics": Cell((*names, _omitted_count_text(len(topics) - 3))),
        "queues": Cell(f"{queues:,} of {len(group.rows):,}", queues),
        **_group_cells(group),
    }


def _queue_row(row: LagRow) -> Row:
    last = row.last_consumed_time
    return {
        "kind": Cell(row.kind),
        "topic": Cell(Name(row.topic)),
        "queue_id": Cell(str(row.queue_id), row.queue_id),
        "broker": Cell(Name(row.broker)),
        "last_consumed": Cell(
            "" if last is None else TimeText(format_time(last)), None if last is None else last.timestamp()
        ),
        **_group_cells(GroupSummary(_group_or_kind_label(row), [row])),
    }


def _group_cells(group: GroupSummary) -> Row:
    rates = [row.judged.consume_tps for row in group.rows if row.judged.consume_tps is not None]
    filters = dict.fromkeys(row.filter for row in group.rows if row.filter not in {None, "*"})
    return {
        "group": Cell(Name(group.group)),
        "messages": Cell(_number_bounds_text(group.messages_behind), group.messages_behind.largest),
        "lost": Cell(
            _number_bounds_text(group.lost_messages) if group.lost_messages.largest else "", group.lost_messages.largest
        ),
        "time_lag": Cell(bounds_text(group.longest_wait_seconds, seconds_text), group.longest_wait_seconds.largest),
        "bytes": Cell(bounds_text(group.bytes_behind, size_text), group.bytes_behind.largest),
        "consume_tps": Cell(f"{sum(rates):,.1f}" if rates else "", sum(rates) if rates else None),
        "drain": Cell(_catch_up_time_text(group.rows)),
        "verdict": Cell(Badge(_KINDS[group.verdict], str(group.verdict)), group.verdict.severity_rank),
        "filter": Cell(Name(" / ".join(filters)) if filters else ""),
        "notes": [note for row in group.rows for note in row.notes],
    }


def _group_or_kind_label(row: LagRow) -> str:
    return row.group or f"({row.kind})"


def _omitted_count_text(count: int) -> str:
    return f" and {count:,} more" if count > 0 else ""


def _catch_up_time_text(rows: Sequence[LagRow]) -> str:
    """Return the time that the slowest queue needs to catch up; empty if one of the queues never does."""
    drains = [_catch_up_seconds(row) for row in rows]
    known = [drain for drain in drains if drain is not None]
    longest = max(known, default=0.0)
    return seconds_text(longest) if longest and len(known) == len(drains) else ""


def _catch_up_seconds(row: LagRow) -> float | None:
    return None if row.messages.high is None else row.judged.drain_seconds(int(row.messages.high))


def seconds_text(seconds: float) -> str:
    """Format a number of seconds for people."""
    return duration_text(datetime.timedelta(seconds=seconds))


def bounds_text(bounds: FigureBounds, format_value: Callable[[float], str]) -> str:
    """Format a figure, or the range in which it lies, for people, with a function that formats a single value."""
    if bounds.high is None:
        return f"{format_value(bounds.low)} or more"
    if bounds.is_exact:
        return format_value(bounds.low)
    return (
        f"{format_value(bounds.low)} to {format_value(bounds.high)}"
        if bounds.low
        else f"up to {format_value(bounds.high)}"
    )


def machine_readable_rows(rows: Iterable[LagRow]) -> Iterator[Row]:
    """Yield rows of lag as plain values for JSON and CSV, with lower and upper bounds in separate fields."""
    times: dict[datetime.datetime, str] = {}  # there are few times, and many rows have the same one
    for row in rows:
        judged = row.judged
        if row.as_of not in times:
            times[row.as_of] = format_iso_time(row.as_of, "milliseconds")
        yield {
            "broker": row.broker,
            "kind": row.kind,
            "group": row.group or None,
            "topic": row.topic,
            "queue_id": row.queue_id,
            "as_of": times[row.as_of],
            "offset_min": row.offset.low,
            "offset_max": row.offset.high,
            "end": row.end,
            "difference": None if row.end is None else row.end - row.offset.low,
            "messages_min": int(row.messages.low),
            "messages_max": None if row.messages.high is None else int(row.messages.high),
            "lost_min": int(row.lost.low),
            "lost_max": int(row.lost.largest),
            "bytes_min": int(row.bytes.low),
            "bytes_max": None if row.bytes.high is None else int(row.bytes.high),
            "time_lag_s_min": row.seconds.low,
            "time_lag_s_max": row.seconds.high,
            "next_message_time": _time_text(row.next_time),
            "last_consumed_time": _time_text(row.last_consumed_time),
            "consume_tps": judged.consume_tps,
            "produce_tps": judged.produce_tps,
            "drain_s": _catch_up_seconds(row),
            "compared_at": _time_text(row.compared_at),
            "verdict": str(judged.verdict),
            "filter": row.filter,
            "filter_as_of": _time_text(row.filter_as_of),
            "members": row.members,
            "notes": list(row.notes),
        }


def _time_text(time: datetime.datetime | None) -> str | None:
    return None if time is None else format_iso_time(time, "milliseconds")


def _message_count_text(bounds: FigureBounds) -> str:
    return f"{_number_bounds_text(bounds)} {'message' if bounds.is_exact and bounds.low == 1 else 'messages'}"


def _number_bounds_text(bounds: FigureBounds) -> str:
    return bounds_text(bounds, format_whole_number)


def _brokers_text(rows: Sequence[LagRow]) -> str:
    brokers = sorted({row.broker for row in rows})
    return ", ".join(brokers[:5]) + _omitted_count_text(len(brokers) - 5)
