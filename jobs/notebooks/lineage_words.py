"""Sentences, table rows and diagrams that a notebook shows for stories, and for graphs of topics."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator
from typing import Any

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import is_usual_time
from commitlake.pipelines.lineage.story import Story
from commitlake.pipelines.lineage.topic_graph import TopicGraph
from commitlake.pipelines.lineage.value_texts import length_text
from commitlake.pipelines.tps.answers import rows_of
from commitlake.schemas.counts import count_text
from commitlake.schemas.times import EPOCH, MILLISECOND, iso_text

_DAY = datetime.timedelta(days=1)


def answer(story: Story) -> Iterator[str]:
    """Yield sentences about the outcomes of a story."""
    if not story.steps:
        yield f"No message in the lake has {story.asked}."
        return
    counts = Counter(outcome.state for outcome in story.outcomes)
    states = ", ".join(f"{count:,} {state.replace('_', ' ')}" for state, count in counts.most_common())
    yield f"{story.asked}: {count_text(len(story.steps), 'step')}; {states or 'no outcome is known'}."
    for outcome in story.outcomes[:3]:
        yield f"{outcome.text[:1].upper()}{outcome.text[1:]}."


def limits(story: Story) -> Iterator[str]:
    """Yield sentences about what is not known or not shown."""
    yield from story.cautions
    if story.not_shown:
        yield f"not shown: {count_text(story.not_shown, 'more record that matches', 'more records that match')}"


def step_rows(story: Story) -> Iterator[dict[str, Any]]:
    """Yield a row for each step, in the order of the tree."""
    for branch in story.branches():
        step = branch.step
        yield {
            "time": None if step.at is None else iso_text(step.at, "milliseconds"),
            "after": "" if branch.gap is None else length_text(branch.gap),
            "step": "  " * branch.depth + step.title,
            "place": step.lane,
            "more": step.text,
        }


def outcome_rows(story: Story) -> Iterator[dict[str, Any]]:
    """Yield a row for each outcome."""
    titles = {step.id: step.title for step in story.steps}
    for outcome in story.outcomes:
        yield {
            "step": titles[outcome.step],
            "group": outcome.group or "all",
            "now": outcome.state.replace("_", " "),
            "in words": outcome.text,
            "known by": str(outcome.proof),
        }


def picture_of_story(story: Story) -> bytes:
    """Draw the steps on a time axis, with a lane for each topic and group."""
    from commitlake.jobs.notebooks import plots

    points = [(step.lane or "unknown", step.at, str(step.kind)) for step in story.steps if step.at is not None]
    steps = {step.id: step for step in story.steps}
    links = [
        ((source.lane or "unknown", source.at), (target.lane or "unknown", target.at))
        for edge in story.edges
        if (source := steps[edge.source]).at is not None and (target := steps[edge.target]).at is not None
    ]
    return plots.timeline(story.asked, points, links)


def last_day(
    lake: Lake, start: datetime.datetime | None, end: datetime.datetime | None
) -> tuple[datetime.datetime, datetime.datetime]:
    """Return the requested time range; a missing start or end is chosen so that it covers the last day with messages.

    Args:
        start: Start of the range, if it is given.
        end: End of the range, if it is given.
    """
    if end is None:
        sql = f"SELECT max(store_timestamp) AS newest FROM messages WHERE {is_usual_time('store_timestamp')}"
        rows = rows_of(run_sql(lake.table("messages"), "messages", sql))
        newest = next(rows)["newest"]
        end = EPOCH + _DAY if newest is None else newest + MILLISECOND
    return start if start is not None else end - _DAY, end


def flow(graph: TopicGraph) -> Iterator[str]:
    """Yield sentences about the keys that pass between topics."""
    if not graph.links:
        yield "No key passes from one topic to another in this time."
        return
    links, topics = len(graph.links) + graph.not_shown, len(graph.topics)
    yield f"{count_text(links, 'link')} between {count_text(topics, 'topic')} with keys."
    most = graph.links[0]
    yield (
        f"Most keys pass from {most.source} to {most.target}: {count_text(most.passes, 'time')}, with a median of "
        f"{length_text(most.median)}."
    )
    slowest = max(graph.links, key=lambda link: link.median)
    median = length_text(slowest.median)
    yield f"The slowest pass is from {slowest.source} to {slowest.target}, with a median of {median}."


def topic_rows(graph: TopicGraph) -> Iterator[dict[str, Any]]:
    """Yield a row for each topic."""
    for node in graph.topics:
        yield {"topic": node.topic, "records with a key": node.records, "keys, about": node.keys}


def link_rows(graph: TopicGraph) -> Iterator[dict[str, Any]]:
    """Yield a row for each link."""
    for link in graph.links:
        yield {
            "from": link.source, "to": link.target, "passes": link.passes, "keys, about": link.keys,
            "median": length_text(link.median), "95 % within": length_text(link.p95),
        }  # fmt: skip


def picture_of_flow(graph: TopicGraph) -> bytes:
    """Draw a bar for each link."""
    from commitlake.jobs.notebooks import plots

    values = [(f"{link.source} → {link.target}", float(link.passes), "passes") for link in graph.links]
    return plots.bars("Keys that pass from one topic to another", values, "passes", {"passes": plots.COLORS[0]})
