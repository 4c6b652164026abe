"""Lag in words, and the rows of its tables."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from commitlake.jobs.cli.sizes import size_text
from commitlake.jobs.lag import formatting
from commitlake.jobs.lag.arguments import LagQuestion
from commitlake.jobs.lag.formatting import bounded_text, seconds_text
from commitlake.jobs.lag.source import unknown_names
from commitlake.pipelines.lag.answer import LagAnswer
from commitlake.pipelines.lag.groups import GroupSummary, worst_first
from commitlake.pipelines.lag.history import LagHistory
from commitlake.pipelines.lag.measure import Choice, Lag
from commitlake.pipelines.lag.verdicts import FigureBounds, LagVerdict
from commitlake.schemas.counts import count_text
from commitlake.schemas.times import plain_text

Row = dict[str, Any]
COLORS = {
    LagVerdict.OK: "#009e73",
    LagVerdict.UNKNOWN: "#7f7f7f",
    LagVerdict.SLOW: "#e69f00",
    LagVerdict.AHEAD: "#56b4e9",
    LagVerdict.REWOUND: "#cc79a7",
    LagVerdict.STALLED: "#d55e00",
    LagVerdict.STOPPED: "#b3261e",
    LagVerdict.LOST: "#4a0d0a",
}
"""Colors of verdicts in pictures."""
_SHOWN_GROUPS = 8
_NOT_MOVING = {LagVerdict.STALLED, LagVerdict.STOPPED}


def answer(
    groups: Sequence[GroupSummary], since: datetime.datetime | None, missing: Iterable[str] = ()
) -> Iterator[str]:
    """Yield sentences about the lag of groups.

    Args:
        groups: Groups from `by_group`.
        since: Time since which the worst queue of the first group has not moved, from `standing_since`.
        missing: Sentences about stores without data.
    """
    if not groups:
        yield "No consumer offsets are known."
        yield from (f"Not known: {sentence}." for sentence in missing)
        return
    worst = groups[0]
    if worst.verdict is LagVerdict.OK:
        yield f"{count_text(len(groups), 'group keeps', 'groups keep')} up; {_most_behind(groups)}."
    else:
        yield f"The worst group is {worst.group}: {messages_text(worst.messages)} behind, {_state(worst, since)}."
        if worst.worst.judged.reason:
            yield f"Why: {worst.worst.judged.reason} (queue {worst.worst.queue_id} of {worst.worst.topic})."
        yield _drain(worst)
    counts = Counter(one.verdict for one in groups)
    states = ", ".join(f"{counts[verdict]} {verdict}" for verdict in sorted(counts, key=lambda one: -one.gravity))
    as_of = max(one.worst.as_of for one in groups)
    yield f"{count_text(len(groups), 'group')}: {states}; as of {plain_text(as_of)} UTC."
    yield from (f"Not known: {sentence}." for sentence in missing)


def unknown(choice: Choice, lag: LagAnswer) -> list[str]:
    """Return a sentence for each requested group and topic without a known offset."""
    asked = LagQuestion(group=tuple(choice.groups), topic=tuple(choice.topics))
    return [sentence.removeprefix("--").rstrip(".?") for sentence in unknown_names(asked, lag)]


def _state(worst: GroupSummary, since: datetime.datetime | None) -> str:
    if worst.verdict is LagVerdict.UNKNOWN:
        return "and whether it is moving is not known"
    if worst.verdict not in _NOT_MOVING or since is None:
        return str(worst.verdict)
    at = worst.worst.as_of.astimezone(datetime.UTC)
    moment = since.astimezone(datetime.UTC)
    text = f"{moment:%H:%M}" if moment.date() == at.date() else f"{moment:%Y-%m-%d %H:%M}"
    return f"{worst.verdict} since {text} UTC"


def _most_behind(groups: Sequence[GroupSummary]) -> str:
    most = max(groups, key=lambda one: (one.messages.largest, one.group))
    if not most.messages.largest:
        return "no message is waiting"
    return f"{most.group} is {messages_text(most.messages)} behind, the most"


def _drain(worst: GroupSummary) -> str:
    behind = worst.messages.high
    rates = [(row.judged.consume_tps, row.judged.produce_tps) for row in worst.rows]
    if behind is None or any(rate is None for pair in rates for rate in pair):
        return "How long it needs to catch up is not known."
    drains = [row.judged.drain_seconds(int(row.messages.high or 0)) for row in worst.rows]
    known = [seconds for seconds in drains if seconds is not None]
    if len(known) < len(drains):
        return "At its present rate it does not catch up."
    return f"At its present rate it has caught up in {seconds_text(max(known))}."


def messages_text(messages: FigureBounds) -> str:
    """Format a number of messages: `1,203 messages`."""
    if messages.is_exact:
        return count_text(messages.low, "message")
    noun = "message" if messages.high == 1 else "messages"
    return f"{bounded_text(messages, lambda number: f'{number:,.0f}')} {noun}"


def group_rows(groups: Iterable[GroupSummary]) -> Iterator[Row]:
    """Yield a row for each group."""
    for one in groups:
        yield {
            "group": one.group,
            "verdict": str(one.verdict),
            "messages": bounded_text(one.messages, lambda number: f"{number:,.0f}"),
            "time behind": bounded_text(one.seconds, seconds_text),
            "bytes": bounded_text(one.bytes, size_text),
            "queues": len(one.rows),
            "topics": ", ".join(one.topics),
        }


def queue_rows(rows: Iterable[Lag]) -> Iterator[Row]:
    """Yield a row for each queue that is behind or not ok, and for messages that brokers hold back, the worst first."""
    shown = worst_first(row for row in rows if row.messages.largest or row.judged.verdict != LagVerdict.OK)
    return (row | {"notes": "; ".join(row["notes"])} for row in formatting.queue_rows(shown))


def history_table(history: LagHistory | None) -> Iterator[Row]:
    """Yield a row for each window with figures, with the lag of the groups that were furthest behind."""
    if history is None:
        return
    shown = list(_series(history).items())[:_SHOWN_GROUPS]
    for place, start in enumerate(history.windows.starts()):
        figures = {group: counts[place] for group, counts in shown}
        if any(count is not None for count in figures.values()):
            yield {
                "from": start,
                **{group: None if count is None else f"{count:,.0f}" for group, count in figures.items()},
            }


def picture_of_groups(groups: Iterable[GroupSummary]) -> bytes:
    """Draw the messages behind of each group, in the color of its verdict."""
    from commitlake.jobs.notebooks import plots

    values = [(one.group, one.messages.largest, str(one.verdict)) for one in groups]
    colors = {str(verdict): color for verdict, color in COLORS.items()}
    return plots.bars("Messages behind, by group; the worst first", values, "messages", colors)


def picture_over_time(history: LagHistory | None) -> bytes:
    """Draw the messages behind of each group over time, as lines."""
    from commitlake.jobs.notebooks import plots

    return plots.lines("Messages behind", _times(history), _series(history), "messages", is_count=True)


def picture_of_all_groups(history: LagHistory | None) -> bytes:
    """Draw the messages behind of many groups over time, as a heat map."""
    from commitlake.jobs.notebooks import plots

    return plots.heat_map("Messages behind", _times(history), _series(history), "messages")


def _times(history: LagHistory | None) -> list[datetime.datetime]:
    return [] if history is None else history.windows.starts()


def _series(history: LagHistory | None) -> dict[str, Sequence[float | None]]:
    """Return the messages behind of each group over time, the group that was furthest behind first."""
    if history is None:
        return {}
    most = {group: max((count or 0 for count in counts), default=0) for group, counts in history.messages.items()}
    return {group: history.messages[group] for group in sorted(most, key=lambda group: (-most[group], group))}
