"""The graph of topics that feed each other, as a table, JSON or a Mermaid flowchart."""

from __future__ import annotations

import json
from typing import Any

from commitlake.connectors.printable import printable_json
from commitlake.jobs.cli.rows_output import Row
from commitlake.jobs.lineage.picture.mermaid import MAX_CHARACTERS, MAX_EDGES, MAX_STEPS, label
from commitlake.pipelines.lineage.topic_graph import TopicGraph, TopicLink
from commitlake.pipelines.lineage.value_texts import length_text
from commitlake.schemas.counts import count_text
from commitlake.schemas.report import Column
from commitlake.schemas.times import MILLISECOND, iso_text

VERSION = 1
COLUMNS = (
    Column("from"), Column("to"), Column("passes", is_number=True), Column("keys", 1, is_number=True),
    Column("median", 2, is_number=True), Column("p95", 3, is_number=True),
)  # fmt: skip


def link_rows(graph: TopicGraph) -> list[Row]:
    """Return the links as rows for people."""
    return [
        {
            "from": link.source, "to": link.target, "passes": f"{link.passes:,}", "keys": f"{link.keys:,}",
            "median": length_text(link.median), "p95": length_text(link.p95),
        }
        for link in graph.links
    ]  # fmt: skip


def graph_json(graph: TopicGraph) -> str:
    """Return a graph as JSON text that ends with a newline.

    Version 1 has `from`, `to`, `topics` (topic, records, keys), `links` (from, to, passes, keys, median_ms, p95_ms) and
    `not_shown`, the number of omitted links. Counts of keys are estimates with an error of about 2 %.
    """
    document: dict[str, Any] = {
        "version": VERSION,
        "from": iso_text(graph.start, "milliseconds"),
        "to": iso_text(graph.end, "milliseconds"),
        "topics": [{"topic": node.topic, "records": node.records, "keys": node.keys} for node in graph.topics],
        "links": [_link(link) for link in graph.links],
        "not_shown": graph.not_shown,
    }
    return printable_json(json.dumps(document, ensure_ascii=False, indent=2)) + "\n"


def _link(link: TopicLink) -> dict[str, Any]:
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
            lines.append(f'  {names[topic]}["{label(topic)}"]')
        text = label(f"{count_text(link.passes, 'pass', 'passes')}, median {length_text(link.median)}")
        lines.append(f'  {names[link.source]} -- "{text}" --> {names[link.target]}')
        drawn += 1
    left_out = len(graph.links) - drawn + graph.not_shown
    if left_out:
        lines.append(f'  more>"{label(f"{left_out:,} more links are not drawn")}"]')
    if not graph.links:
        lines.append('  none>"no key passes from one topic to another"]')
    return "\n".join(lines) + "\n"
