"""The page of `commitlake lag --html`: which group is furthest behind, since when, and what to do."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from commitlake.jobs.cli.sizes import size_text
from commitlake.jobs.lag.formatting import bounded_text, seconds_text
from commitlake.jobs.report.findings import advised
from commitlake.jobs.report.heat_map import HeatRow, heat_map
from commitlake.jobs.report.line_chart import Mark, MarkKind, Series, line_chart
from commitlake.jobs.report.markup import Html, joined, name, tag
from commitlake.jobs.report.page import Kind, Page, PageVerdict, Section, badge, made_now
from commitlake.jobs.report.parts import folded, moment, notice, paragraph, tiles
from commitlake.jobs.report.tables import NO_FIGURE, Cell, Column, table
from commitlake.pipelines.lag.answer import LagAnswer
from commitlake.pipelines.lag.groups import GROUP_KINDS, GroupSummary, by_group, sum_bounds, times_of, worst_first
from commitlake.pipelines.lag.history import LagHistory
from commitlake.pipelines.lag.measure import Lag
from commitlake.pipelines.lag.verdicts import FigureBounds, LagVerdict
from commitlake.schemas.advice import Advice
from commitlake.schemas.counts import count_text
from commitlake.schemas.times import iso_text, plain_text

TITLE = "Consumer lag"
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
class LagSource:
    """The lake or store from which the figures of a page come.

    Attributes:
        option: `--lake` or `--store`, and its value, for command lines.
        at: The requested time; None for the last snapshot.
    """

    option: tuple[str, str]
    at: datetime.datetime | None = None

    @property
    def is_lake(self) -> bool:
        """Return True for a lake, whose messages can be looked up."""
        return self.option[0] == "--lake"

    @property
    def places(self) -> dict[str, str | Sequence[str]]:
        """The places of an advice that the source fills in."""
        return {"source": self.option, self.option[0].removeprefix("--"): self.option[1]}

    def at_words(self, option: str) -> list[str]:
        """Return an option with the requested time, if one was requested."""
        return [] if self.at is None else [option, iso_text(self.at).removesuffix("Z")]


def lag_page(answer: LagAnswer, history: LagHistory | None, source: LagSource) -> Page:
    """Return the page of a lag measurement.

    Args:
        answer: All rows, including those of groups that are not behind.
        history: History of the worst groups; None if there is none.
    """
    groups = by_group(answer.rows)
    times = times_of(answer.rows)
    label, place = ("Lake", source.option[1]) if source.is_lake else ("Store", source.option[1])
    as_of = plain_text(times[0]) if times else "not known"
    if len(times) > 1:
        as_of += f" to {plain_text(times[-1])}"
    facts = [(label, place), ("Brokers", _brokers(answer.rows)), ("As of", f"{as_of} UTC" if times else as_of)]
    held = [row for row in answer.rows if row.kind not in GROUP_KINDS]
    sections = [
        Section("summary", "In short", _summary(groups)),
        Section("do", "What to do", joined(_advice(groups, answer.missing, source))),
        Section("history", "Lag over time", _history(groups, history, source)),
        Section("groups", "Groups", _group_table(groups)),
        Section("queues", "Queues", _queue_table([row for row in answer.rows if row.kind in GROUP_KINDS], "group")),
    ]
    if held:
        sections.append(Section("held", "Held back by brokers", _queue_table(held, "kind")))
    return Page(TITLE, _verdict(groups, answer.missing), facts, sections, made_now("lag"))


def _verdict(groups: Sequence[GroupSummary], missing: Sequence[str]) -> PageVerdict:
    unknown = " Some stores have no known offsets." if missing else ""
    if not groups:
        return PageVerdict(Kind.WARNING if missing else Kind.INFO, f"No group's offsets are known.{unknown}")
    ill = [group for group in groups if group.verdict is not LagVerdict.OK]
    if ill:
        worst = ill[0]
        sentence = f"{worst.group} {_HAPPENED[worst.verdict]} on {worst.worst.topic}: {_behind(worst)}."
        if len(ill) > 1:
            others = len(ill) - 1
            sentence += f" {count_text(others, 'other group needs', 'other groups need')} attention."
        return PageVerdict(_KINDS[worst.verdict], sentence + unknown, str(worst.verdict))
    most = max(groups, key=lambda group: group.messages.largest)
    sentence = f"{'The group keeps' if len(groups) == 1 else f'All {len(groups):,} groups keep'} up"
    sentence += f"; {most.group} is furthest behind: {_behind(most)}." if most.messages.largest else "; none is behind."
    return PageVerdict(Kind.WARNING if missing else Kind.GOOD, sentence + unknown, "unknown" if missing else "ok")


def _behind(group: GroupSummary) -> str:
    sentence = f"{_messages_behind(group.messages)} behind"
    return f"{sentence}, the next one has waited for {_waited(group.seconds)}" if group.seconds.largest else sentence


def _summary(groups: Sequence[GroupSummary]) -> Html:
    verdicts = Counter(group.verdict for group in groups)
    worst = max((group.seconds.largest for group in groups), default=0.0)
    figures = {
        "groups": f"{len(groups):,}",
        "messages behind": _messages(sum_bounds(group.messages for group in groups)),
        "longest wait": seconds_text(worst),
    }
    if lost := sum_bounds(group.lost for group in groups).largest:
        figures["messages lost"] = _whole(lost)
    figures |= {str(verdict): f"{verdicts[verdict]:,}" for verdict in reversed(LagVerdict) if verdicts[verdict]}
    return tiles(figures)


def _advice(groups: Sequence[GroupSummary], missing: Sequence[str], source: LagSource) -> Iterator[Html]:
    for sentence in missing[:_MAX_NOTICES]:
        yield notice(Kind.WARNING, sentence, word="Missing")
    ill = [group for group in groups if group.verdict is not LagVerdict.OK]
    for group in ill[:_MAX_NOTICES]:
        row = group.worst
        title = tag("span", name(group.group), f" {_HAPPENED[group.verdict]} on ", name(row.topic))
        reasons = dict.fromkeys(note for row in group.rows for note in row.notes)
        yield notice(
            _KINDS[group.verdict],
            title,
            paragraph(f"{_behind(group)}."),
            *_lost(group, source),
            *_what_to_do(group, source),
            folded("Notes", *(paragraph(reason, is_quiet=True) for reason in list(reasons)[:_MAX_NOTICES]))
            if reasons
            else Html(),
            word=str(group.verdict),
        )
    if len(ill) > _MAX_NOTICES:
        left = len(ill) - _MAX_NOTICES
        yield paragraph(
            f"{count_text(left, 'more group needs', 'more groups need')} attention: see the table of groups."
        )
    if not ill and not missing:
        yield paragraph("No group is stalled, stopped, slow or misplaced.")


def _lost(group: GroupSummary, source: LagSource) -> Iterator[Html]:
    """Yield how many messages a group has lost, and how to send those again that the lake has."""
    if not group.lost.largest:
        return
    text = f"{_messages(group.lost)} {'message was' if group.lost == (1, 1) else 'messages were'} lost."
    if not source.is_lake:
        yield paragraph(text)
        return
    yield paragraph(text)
    starts = {row.broker: row.log_start for row in group.rows if row.lost.largest}
    places = {**source.places, "group": group.group, "at": source.at_words("--offsets-at")}
    brokers = [{**places, "broker": broker, "log_start": str(start)} for broker, start in sorted(starts.items())]
    yield from advised(_SEND_AGAIN.filled_for_each(brokers))


def _what_to_do(group: GroupSummary, source: LagSource) -> Iterator[Html]:
    row = group.worst
    places = source.places | {
        "group": group.group,
        "broker": row.broker,
        "topic": row.topic,
        "queue": str(row.queue_id),
        "offset": str(row.offset.low),
        "at": source.at_words("--at"),
    }
    yield from advised(_ADVICE[group.verdict].filled(places))
    if source.is_lake and group.verdict in _IN_LAKE:
        yield from advised(_IN_LAKE[group.verdict].filled(places))
    yield from advised(_QUEUES.filled(places))


def _history(groups: Sequence[GroupSummary], history: LagHistory | None, source: LagSource) -> Html:
    if history is None:
        why = "The lake has no snapshot of these groups" if source.is_lake else "A store has no history of its groups"
        return paragraph(f"{why}: 'commitlake snapshot', or each run of 'archive', saves their offsets.")
    drawn = [group for group in groups if group.group in history.messages]
    windows = history.windows
    rows = [
        HeatRow(
            group.group,
            history.messages[group.group],
            joined([badge(_KINDS[group.verdict], str(group.verdict)), " ", _messages(group.messages)]),
        )
        for group in drawn
    ]
    lines = [Series(group.group, history.messages[group.group]) for group in drawn[:MAX_LINE_GROUPS]]
    values = [value for line in lines for value in line.values if value]
    is_log = bool(values) and max(values) > _LARGE_RATIO * min(values)
    note = (
        "Figures are those of snapshots, with messages that the broker deleted since; times without a snapshot have no "
        "figures"
    )
    if any(row.filter is None for group in drawn for row in group.rows if row.kind == "group"):
        note += "; for groups whose filter is not known, they are upper bounds"
    left = len(groups) - len(drawn)
    rest = (
        paragraph(f"The {len(drawn):,} worst of {len(groups):,} groups are drawn.", is_quiet=True) if left else Html()
    )
    return joined([
        heat_map("Messages behind, the worst group first", windows, rows, _whole, note=note),
        rest,
        line_chart(f"Messages behind, of the {len(lines)} worst groups" if len(drawn) > len(lines) else
                   "Messages behind", windows, lines, _whole, marks=list(_times_without_snapshot(history)),
                   is_log=is_log, note="The scale is logarithmic" if is_log else ""),
    ])  # fmt: skip


def _times_without_snapshot(history: LagHistory) -> Iterator[Mark]:
    """Yield the times for which no group has a figure."""
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


def _group_table(groups: Sequence[GroupSummary]) -> Html:
    columns = [
        Column("group"), Column("verdict", is_ranked=True), Column("messages behind", is_number=True),
        Column("next one has waited", is_number=True), Column("bytes behind", is_number=True),
        Column("messages lost", is_number=True), Column("queues behind", is_number=True), Column("topics"),
    ]  # fmt: skip
    rows = [_group_row(group) for group in groups[:MAX_GROUPS]]
    others = groups[MAX_GROUPS:]
    rest = ""
    if others:
        behind = sum_bounds(group.messages for group in others)
        rest = (
            f"The {len(rows):,} worst of {len(groups):,} groups are shown; {_the_others(len(others))} "
            f"{_messages_behind(behind)} behind."
        )
    return table("Groups, the worst first", columns, rows, rest=rest)


def _group_row(group: GroupSummary) -> list[Cell]:
    queues = sum(1 for row in group.rows if row.messages.low or row.messages.high is None or row.messages.high)
    topics = group.topics
    more = f" and {len(topics) - 3:,} more" if len(topics) > 3 else ""
    return [
        Cell(name(group.group)),
        Cell(badge(_KINDS[group.verdict], str(group.verdict)), group.verdict.gravity),
        *_figures(group.messages, group.seconds, group.bytes),
        _lost_cell(group.lost),
        Cell(f"{queues:,} of {len(group.rows):,}", queues),
        Cell(joined([joined(map(name, topics[:3]), ", "), more])),
    ]


def _queue_table(rows: Sequence[Lag], first: str) -> Html:
    columns = [
        Column(first), Column("topic"), Column("queue", is_number=True), Column("broker"),
        Column("verdict", is_ranked=True), Column("messages behind", is_number=True),
        Column("next one has waited", is_number=True), Column("bytes behind", is_number=True),
        Column("messages lost", is_number=True), Column("consumed per s", is_number=True),
        Column("last consumed (UTC)", is_ranked=True), Column("filter"), Column("notes", can_sort=False),
    ]  # fmt: skip
    has_brokers = len({row.broker for row in rows}) > 1  # a single one is at the top of the page
    ordered = worst_first(rows)
    shown, others = ordered[:MAX_QUEUES], ordered[MAX_QUEUES:]
    lines = [_queue_row(row, row.group if first == "group" else row.kind, has_broker=has_brokers) for row in shown]
    rest = ""
    if others:
        behind = sum_bounds(row.messages for row in others)
        rest = (
            f"The {len(shown):,} worst of {len(ordered):,} queues are shown; {_the_others(len(others))} "
            f"{_messages_behind(behind)} behind."
        )
    return table("Queues, the worst first", columns, lines, rest=rest)


def _queue_row(row: Lag, first: str, *, has_broker: bool) -> list[Cell]:
    verdict, consumed, last = row.judged.verdict, row.judged.consume_tps, row.last_consumed_time
    return [
        Cell(name(first)),
        Cell(name(row.topic)),
        Cell(str(row.queue_id), row.queue_id),
        Cell(name(row.broker) if has_broker else ""),
        Cell(badge(_KINDS[verdict], str(verdict)), verdict.gravity),
        *_figures(row.messages, row.seconds, row.bytes),
        _lost_cell(row.lost),
        Cell("" if consumed is None else f"{consumed:,.1f}", consumed),
        Cell("" if last is None else moment(plain_text(last)), None if last is None else last.timestamp()),
        Cell("" if row.filter in {None, "*"} else name(row.filter)),
        Cell("; ".join(row.notes)),
    ]


def _figures(messages: FigureBounds, seconds: FigureBounds, size: FigureBounds) -> list[Cell]:
    return [
        Cell(_messages(messages), messages.largest),
        Cell(_waited(seconds), seconds.largest),
        Cell(bounded_text(size, size_text), size.largest),
    ]


def _lost_cell(lost: FigureBounds) -> Cell:
    return Cell(_messages(lost) if lost.largest else "", lost.largest)


def _messages_behind(figure: FigureBounds) -> str:
    return f"{_messages(figure)} {'message' if figure.is_exact and figure.low == 1 else 'messages'}"


def _the_others(count: int) -> str:
    return "the other one is" if count == 1 else f"the {count:,} others are"


def _messages(figure: FigureBounds) -> str:
    return bounded_text(figure, _whole)


def _waited(figure: FigureBounds) -> str:
    return bounded_text(figure, seconds_text) if figure.low or figure.high is None or figure.high else NO_FIGURE


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _brokers(rows: Sequence[Lag]) -> str:
    brokers = sorted({row.broker for row in rows})
    return ", ".join(brokers[:5]) + (f" and {len(brokers) - 5:,} more" if len(brokers) > 5 else "")
