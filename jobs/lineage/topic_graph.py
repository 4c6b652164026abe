"""The graph of topics that feed each other, as a report, a table, JSON or a Mermaid flowchart.

In the report's picture, topics are listed from top to bottom, as far as possible in the direction in which keys pass,
so that most arcs go down, on the left of the names. The width of an arc is its share of the passes. Arcs that go up
are dashed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from commitlake.connectors.printable import escape_json, escape_line
from commitlake.jobs.lineage.picture.mermaid import MAX_CHARACTERS, MAX_EDGES, MAX_STEPS, escape_label
from commitlake.jobs.report.html_elements import join_html, tag
from commitlake.jobs.report.value_decoding import time_text
from commitlake.pipelines.lineage.topic_graph import TopicGraph, TopicLink
from commitlake.pipelines.lineage.value_texts import approximate_duration_text
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report import Cell, Html, Kind, Name, Paragraph, Report, Section, Table, Verdict
from commitlake.schemas.report_columns import Column
from commitlake.schemas.times import MILLISECOND, format_iso_time

VERSION = 1
GRAPH_TITLE = "Which topics feed which"
MAX_TOPICS = 40
"""Largest number of topics in the picture; of more, those of the links with the most passes."""
_ROW = 56
_LEFT = 112
_TIP = 6
_WIDEST = 7.0
_MAX_NAME = 34
_COLUMNS = (
    Column("from", text=Name), Column("to", text=Name), Column("passes", is_number=True),
    Column("keys, about", 1, key="keys", is_number=True), Column("median", 2, is_number=True),
    Column("95 % within", 3, key="p95", is_number=True),
)  # fmt: skip


def links_table(graph: TopicGraph) -> Table:
    """Return the table of the links from one topic to another."""
    rows = [
        {
            "from": link.source, "to": link.target, "passes": link.passes, "keys": link.keys,
            "median": Cell(approximate_duration_text(link.median), link.median.total_seconds()),
            "p95": Cell(approximate_duration_text(link.p95), link.p95.total_seconds()),
        }
        for link in graph.links
    ]  # fmt: skip
    rest = f"{graph.not_shown:,} more links are not shown." if graph.not_shown else ""
    return Table.of("Keys that pass from one topic to another", _COLUMNS, rows, rest)


def topics_report(graph: TopicGraph, facts: Sequence[tuple[str, str]]) -> Report:
    """Return the report of a graph of topics.

    Args:
        facts: Origin of the graph, as pairs of a label and a value.
    """
    known = [*facts, ("From", time_text(graph.start)), ("To", time_text(graph.end))]
    sections = []
    if graph.links:
        sections.append(Section("picture", "The picture", [_graph_html(graph)]))
        sections.append(Section("links", "Each link", [links_table(graph)]))
    if graph.topics:
        nodes = [
            {"topic": node.topic, "records with a key": node.records, "keys, about": node.keys} for node in graph.topics
        ]
        sections.append(Section("topics", "Topics", [Table.of_values("Topics with keys", nodes)]))
    sections.append(Section("meaning", "What this means", [Paragraph(_MEANING)]))
    return Report(GRAPH_TITLE, _graph_verdict(graph), known, sections, "lineage")


_MEANING = (
    "A key passes from one topic to another if a record is followed, within 7 days, by one with the same key in "
    "another topic. Copies that a broker makes (delayed, retried, half messages, dead letters) do not count. A passing "
    "key does not prove that a consumer of the first topic sends to the second one."
)


def _graph_verdict(graph: TopicGraph) -> Verdict:
    if not graph.links:
        return Verdict(Kind.INFO, "No key passes from one topic to another in this time.")
    most = graph.links[0]
    text = (
        f"{format_count(len(graph.links) + graph.not_shown, 'link')} between "
        f"{format_count(len(graph.topics), 'topic')}. "
        f"Most keys pass from {most.source[:100]} to {most.target[:100]}: {format_count(most.passes, 'time')}, with a "
        f"median of {approximate_duration_text(most.median)}."
    )
    return Verdict(Kind.INFO, text)


def _graph_html(graph: TopicGraph) -> Html:
    links = _choose_drawn_links(graph.links)
    order = sort_topics_by_flow(links)
    rows = {topic: number for number, topic in enumerate(order)}
    records = {node.topic: node.records for node in graph.topics}
    height = len(order) * _ROW + 8
    most = max(link.passes for link in links)
    arcs = [_topic_link_arc(link, rows, most) for link in links]
    names = [_topic_label(topic, row, records) for topic, row in rows.items()]
    drawn = tag(
        "svg", *arcs, *names, width="100%", height=height, role="img",
        aria_label="Topics, and arcs for keys that pass between them; the table below has the same data",
    )  # fmt: skip
    left_out = len(graph.links) - len(links)
    note = f"{left_out:,} links with fewer passes are not drawn. " if left_out else ""
    caption = f"{note}Arcs on the left go down; dashed ones go up. A wider arc has more passes."
    return tag("figure", tag("figcaption", caption), drawn, class_="figure")


def _choose_drawn_links(links: Sequence[TopicLink]) -> list[TopicLink]:
    topics: set[str] = set()
    found = []
    for link in links:
        if len(topics | {link.source, link.target}) <= MAX_TOPICS:
            topics |= {link.source, link.target}
            found.append(link)
    return found


def sort_topics_by_flow(links: Sequence[TopicLink]) -> list[str]:
    """Sort topics so that most messages pass from an earlier topic to a later one."""
    left = {topic for link in links for topic in (link.source, link.target)}
    order: list[str] = []
    while left:
        surplus = dict.fromkeys(sorted(left), 0)
        fed = dict.fromkeys(left, 0)
        for link in links:
            if link.source in left and link.target in left:
                surplus[link.source] += link.passes
                surplus[link.target] -= link.passes
                fed[link.target] += link.passes
        first = min(surplus, key=lambda topic: (fed[topic] > 0, -surplus[topic], topic))
        order.append(first)
        left.remove(first)
    return order


def _topic_link_arc(link: TopicLink, rows: Mapping[str, int], max_passes: int) -> Html:
    start, end = rows[link.source], rows[link.target]
    is_back = end < start
    y1 = start * _ROW + 26 + (4 if not is_back else -4)
    y2 = end * _ROW + 26 + (-4 if not is_back else 4)
    reach = min(_LEFT - 16, 22 + 20 * abs(end - start))
    x = _LEFT - reach
    width = max(1.2, _WIDEST * link.passes / max_passes)
    passes, median = format_count(link.passes, "pass", "passes"), approximate_duration_text(link.median)
    text = f"{link.source} to {link.target}: {passes}, median {median}"
    path = f"M{_LEFT} {y1}C{x} {y1} {x} {y2} {_LEFT - _TIP} {y2}"
    tip = f"M{_LEFT} {y2}l{-_TIP - 3} -5v10z"
    return tag(
        "g", tag("title", escape_line(text)),
        tag("path", d=path, class_="feed back" if is_back else "feed", stroke_width=f"{width:.1f}"),
        tag("path", d=tip, class_="feed-tip"),
    )  # fmt: skip


def _topic_label(topic: str, row: int, records: Mapping[str, int]) -> Html:
    shown = escape_line(topic[: _MAX_NAME + 1])
    shown = shown if len(shown) <= _MAX_NAME else f"{shown[: _MAX_NAME - 1]}…"
    y = row * _ROW + 26
    text = format_count(records[topic], "record") if topic in records else ""
    return join_html([
        tag("text", shown, x=_LEFT + 8, y=y, class_="feed-name"),
        tag("text", text, x=_LEFT + 8, y=y + 19, class_="axis"),
    ])  # fmt: skip


def graph_json(graph: TopicGraph) -> str:
    """Return a graph as JSON text that ends with a newline.

    Version 1 has `from`, `to`, `topics` (topic, records, keys), `links` (from, to, passes, keys, median_ms, p95_ms) and
    `not_shown`, the number of omitted links. Counts of keys are estimates with an error of about 2 %.
    """
    document: dict[str, Any] = {
        "version": VERSION,
        "from": format_iso_time(graph.start, "milliseconds"),
        "to": format_iso_time(graph.end, "milliseconds"),
        "topics": [{"topic": node.topic, "records": node.records, "keys": node.keys} for node in graph.topics],
        "links": [_link_to_dict(link) for link in graph.links],
        "not_shown": graph.not_shown,
    }
    return escape_json(json.dumps(document, ensure_ascii=False, indent=2)) + "\n"


def _link_to_dict(link: TopicLink) -> dict[str, Any]:
    return {
        "from": link.source, "to": link.target, "passes": link.passes, "keys": link.keys,
        "median_ms": link.median // MILLISECOND, "p95_ms": link.p95 // MILLISECOND,
    }  # fmt: skip


def graph_mermaid(graph: TopicGraph) -> str:
    """Return a graph as a Mermaid flowchart; lines end with a newline."""
    names: dict[str, str] = {}
    lines = ["flowchart LR"]
    drawn = 0
    for link in graph.links[:MAX_EDGES]:
        new = [topic for topic in dict.fromkeys((link.source, link.target)) if topic not in names]
        if len(names) + len(new) > MAX_STEPS or sum(map(len, lines)) > MAX_CHARACTERS - 1_000:
            break
        for topic in new:
            names[topic] = f"t{len(names) + 1}"
            lines.append(f'  {names[topic]}["{escape_label(topic)}"]')
        text = escape_label(
            f"{format_count(link.passes, 'pass', 'passes')}, median {approximate_duration_text(link.median)}"
        )
        lines.append(f'  {names[link.source]} -- "{text}" --> {names[link.target]}')
        drawn += 1
    left_out = len(graph.links) - drawn + graph.not_shown
    if left_out:
        lines.append(f'  more>"{escape_label(f"{left_out:,} more links are not drawn")}"]')
    if not graph.links:
        lines.append('  none>"no key passes from one topic to another"]')
    return "\n".join(lines) + "\n"
