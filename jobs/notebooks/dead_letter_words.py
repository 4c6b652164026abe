"""Dead letters in words, and the rows of their tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from commitlake.jobs.cli.durations import duration_text
from commitlake.jobs.notebooks.tps_words import series
from commitlake.pipelines.dead_letters.causes import Cause, DeadLetters
from commitlake.schemas.counts import count_text
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX
from commitlake.schemas.times import plain_text


def answer(found: DeadLetters) -> Iterator[str]:
    """Yield sentences about the dead letters and their causes."""
    if not found.messages:
        yield "No dead letter is archived."
        return
    groups = by_group(found)
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


def by_group(found: DeadLetters) -> list[tuple[str, int]]:
    """Return the number of dead letters of each group, the largest first."""
    counts: Counter[str] = Counter()
    for cause in found.causes:
        counts[cause.group] += cause.messages
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


def cause_rows(found: DeadLetters) -> Iterator[dict[str, Any]]:
    """Yield a row for each cause."""
    for one in found.causes:
        yield {
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


def topics_of(groups: Iterable[str]) -> list[str]:
    """Return the topics that hold the dead letters of the given groups."""
    return [DLQ_PREFIX + group for group in groups]


def window_rows(windows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a row for each window and group with dead letters.

    Args:
        windows: Rows of dead-letter topics by window, from `Rates.rows`.
    """
    for row in windows:
        if row["messages"]:
            group = row["topic"].removeprefix(DLQ_PREFIX)
            yield {"from": row["window_start"], "group": group, "dead letters": row["messages"]}


def picture_of_causes(found: DeadLetters) -> bytes:
    """Draw the dead letters of each cause, in the color of its group."""
    from commitlake.jobs.notebooks import plots

    colors = {group: plots.COLORS[place % len(plots.COLORS)] for place, (group, _) in enumerate(by_group(found))}
    values = [
        (f"{one.topic or 'unknown topic'} {one.tag or ''}".rstrip(), one.messages, one.group) for one in found.causes
    ]
    return plots.bars("Dead letters by topic and tag", values, "dead letters", colors)


def picture_over_time(windows: Sequence[Mapping[str, Any]]) -> bytes:
    """Draw the dead letters of each group by window."""
    from commitlake.jobs.notebooks import plots

    named = [{**row, "topic": row["topic"].removeprefix(DLQ_PREFIX)} for row in windows]
    times = sorted({row["window_start"] for row in named})
    length = duration_text(times[1] - times[0]) if len(times) > 1 else "one window"
    found = series(named, "messages", times)
    return plots.columns(f"Dead letters by group ({length})", times, found, "dead letters")
