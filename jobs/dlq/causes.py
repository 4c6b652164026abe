"""Dead letters as a report: their groups, their causes, and when they came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from commitlake.pipelines.dead_letters.causes import Cause, DeadLetters
from commitlake.pipelines.tps.report import RatesReport
from commitlake.schemas.counts import count_text
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX
from commitlake.schemas.report import (
    MAX_SERIES,
    Bar,
    BarChart,
    Block,
    Kind,
    LineChart,
    Paragraph,
    Report,
    Section,
    Series,
    Table,
    Verdict,
)
from commitlake.schemas.times import plain_text


def dead_letters_report(found: DeadLetters, rates: RatesReport) -> Report:
    """Return the report on dead letters.

    Args:
        found: The dead letters by cause.
        rates: Messages of dead-letter topics over time.
    """
    rows = [
        {
            "group": one.group,
            "topic": one.topic,
            "tag": one.tag,
            "attempts": one.attempts,
            "reason": one.reason,
            "messages": one.messages,
            "first": one.first,
            "last": one.last,
            "newest": one.example,
        }
        for one in found.causes
    ]
    bars = [Bar(f"{one.topic or 'unknown topic'} {one.tag or ''}".rstrip(), one.messages, one.group)
            for one in found.causes]  # fmt: skip
    causes: list[Block] = [Table.of_values("Causes", rows)]
    if bars:
        causes.append(BarChart("Dead letters by topic and tag", bars))
    sentences = list(answer(found))
    return Report(
        "Dead letters",
        Verdict(Kind.WARNING if found.messages else Kind.GOOD, sentences[0]),
        [],
        [
            Section("worst", "The worst cause", [Paragraph(sentence) for sentence in sentences[1:]]),
            Section("causes", "Causes", causes),
            Section("time", "Over time", list(_over_time(rates))),
        ],
        "dlq",
    )


def _over_time(rates: RatesReport) -> Iterator[Block]:
    """Yield a chart of the dead letters of each group."""
    windows = rates.windows
    series = []
    for (topic,), rows in list(rates.lines.items())[:MAX_SERIES]:
        counts = {row["window_start"]: row["messages"] for row in rows}
        values = [counts.get(start) for start in windows.starts()]
        series.append(Series(str(topic).removeprefix(DLQ_PREFIX), values))
    if series:
        yield LineChart("Dead letters by group", windows, series)


def answer(found: DeadLetters) -> Iterator[str]:
    """Yield sentences about the dead letters and their causes."""
    if not found.messages:
        yield "No dead letter is archived."
        return
    groups = _by_group(found)
    group, most = groups[0]
    share = 100 * most / found.messages
    yield (
        f"{count_text(found.messages, 'dead letter')} of {count_text(len(groups), 'group')}; the worst is {group}, "
        f"with {most:,} ({share:.0f} %)."
    )
    worst = found.causes[0]
    yield (
        f"The most frequent cause: {cause_text(worst)}; {count_text(worst.messages, 'message')}, from "
        f"{plain_text(worst.first)} to {plain_text(worst.last)} UTC."
    )
    yield f"The newest of them: commitlake query --id {worst.example}"
    left_out = found.messages - sum(one.messages for one in found.causes)
    if left_out:
        yield f"{count_text(left_out, 'dead letter has', 'dead letters have')} rarer causes that are not shown."


def cause_text(cause: Cause) -> str:
    """Return a cause in words."""
    topic = "messages of an unknown topic" if cause.topic is None else f"messages of {cause.topic}"
    tag = "without a tag" if cause.tag is None else f"with the tag {cause.tag}"
    attempts = count_text(cause.attempts, "attempt")
    reason = "" if cause.reason is None else f": {cause.reason}"
    return f"{cause.group} gave up {topic} {tag} after {attempts}{reason}"


def _by_group(found: DeadLetters) -> list[tuple[str, int]]:
    """Return the number of dead letters of each group, the largest first."""
    counts: Counter[str] = Counter()
    for cause in found.causes:
        counts[cause.group] += cause.messages
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


def topics_of(groups: Iterable[str]) -> list[str]:
    """Return the topics that hold the dead letters of the given groups."""
    return [DLQ_PREFIX + group for group in groups]
