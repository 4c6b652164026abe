"""Mermaid flowcharts as SVG, so that the site shows them without a script from another host.

GitHub draws Mermaid blocks itself. mkdocs-material would load mermaid.js for them, from a CDN. This module draws
the part of the language that the documentation uses, always from top to bottom:

    flowchart TD
        jobs["<b>jobs</b><br/>a package for each command"] --> pipelines["pipelines"] --> schemas
        log -->|"walk: find records"| arrow{sound?}

A text in the diagram is at most `<br/>`, `<b>` and characters. A line of another form is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

BLOCK = re.compile(r"```mermaid\n(?P<text>.*?)```\n?", re.DOTALL)
_NODE = re.compile(r'(?P<id>\w+)(?:\["(?P<box>[^"]*)"\]|\{(?P<choice>[^}]*)\})?')
_ARROW = re.compile(r'\s*-->(?:\|"?(?P<label>[^|"]*)"?\|)?\s*')
_BREAK = "<br/>"
_CHARACTER, _LINE, _PADDING = 7.4, 19, 14  # pixels: of text at 14 px, and around it
_GAP_X, _GAP_Y = 28, 40


class DiagramError(ValueError):
    """A line of a diagram has a form that this module does not know."""


@dataclass(slots=True)
class Node:
    """A node of a flowchart.

    Attributes:
        lines: Its text.
        is_choice: Whether it is a question.
        rank: Its row in the picture, from 0.
        x: Left edge of its box, in pixels.
    """

    lines: Sequence[str]
    is_choice: bool = False
    rank: int = 0
    x: float = 0

    @property
    def width(self) -> float:
        """Width of its box in pixels."""
        return max(_text_width(line) for line in self.lines) + 2 * _PADDING

    @property
    def height(self) -> float:
        """Height of its box in pixels."""
        return len(self.lines) * _LINE + 2 * _PADDING - 4

    @property
    def middle(self) -> float:
        """Horizontal middle of its box."""
        return self.x + self.width / 2


@dataclass(slots=True)
class Flowchart:
    """A parsed flowchart.

    Attributes:
        nodes: The nodes by id, in order of appearance.
        edges: Ids of source and target, and the label of each edge.
    """

    nodes: dict[str, Node] = field(default_factory=dict)
    edges: list[tuple[str, str, str]] = field(default_factory=list)


def parse(text: str) -> Flowchart:
    """Parse a flowchart.

    Raises:
        DiagramError: for a line of an unknown form.
    """
    first, *lines = [line.strip() for line in text.strip().splitlines()]
    if not first.startswith("flowchart "):
        raise DiagramError(f"expected a flowchart, found {first!r}")
    chart = Flowchart()
    for line in lines:
        source, position = _parse_node(chart, line, 0)
        while position < len(line):
            arrow = _ARROW.match(line, position)
            if arrow is None:
                raise DiagramError(f"expected an arrow at character {position}, found {line!r}")
            target, position = _parse_node(chart, line, arrow.end())
            chart.edges.append((source, target, arrow["label"] or ""))
            source = target
    return chart


def _parse_node(chart: Flowchart, line: str, position: int) -> tuple[str, int]:
    found = _NODE.match(line, position)
    if found is None:
        raise DiagramError(f"expected a node at character {position}, found {line!r}")
    text = found["choice"] if found["choice"] is not None else found["box"]
    if text is not None or found["id"] not in chart.nodes:
        lines = (found["id"] if text is None else text).split(_BREAK)
        chart.nodes[found["id"]] = Node(lines, found["choice"] is not None)
    return found["id"], found.end()


def svg(text: str) -> str:
    """Return a flowchart as an SVG element in the page's colours."""
    chart = parse(text)
    _set_ranks(chart)
    rows = _rows(chart)
    width = max(sum(node.width for node in row) + _GAP_X * (len(row) - 1) for row in rows)
    tops, height = _place(rows, width, chart)
    elements = [*_edges(chart, tops), *(_box(node, tops[node.rank]) for node in chart.nodes.values())]
    names = ", ".join(_plain(node.lines[0]) for node in chart.nodes.values())
    return (
        f'<svg class="diagram" role="img" aria-label="{escape(f"Diagram: {names}")}" '
        f'viewBox="-2 -2 {width + 4:.0f} {height + 4:.0f}" style="max-width:{width:.0f}px;width:100%" '
        'font-family="inherit" font-size="14" fill="currentColor" stroke="none">'
        '<defs><marker id="diagram-arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0 10 5 0 10z"/></marker></defs>' + "".join(elements) + "</svg>"
    )


def _set_ranks(chart: Flowchart) -> None:
    for _ in chart.nodes:
        for source, target, _label in chart.edges:
            chart.nodes[target].rank = max(chart.nodes[target].rank, chart.nodes[source].rank + 1)


def _rows(chart: Flowchart) -> list[list[Node]]:
    rows: list[list[Node]] = [[] for _ in range(1 + max(node.rank for node in chart.nodes.values()))]
    for node in chart.nodes.values():
        rows[node.rank].append(node)
    return rows


def _place(rows: Sequence[Sequence[Node]], width: float, chart: Flowchart) -> tuple[list[float], float]:
    """Set the left edges of all boxes, and return the top of each row and the height of the picture."""
    tops, top = [], 0.0
    for number, unordered in enumerate(rows):
        row = sorted(unordered, key=lambda node: _middle_of_sources(node, chart))
        x = (width - sum(node.width for node in row) - _GAP_X * (len(row) - 1)) / 2
        for node in row:
            node.x = x
            x += node.width + _GAP_X
        tops.append(top)
        labels = [label for source, _, label in chart.edges if chart.nodes[source].rank == number]
        lines = max((label.count(_BREAK) + 1 for label in labels if label), default=0)
        top += max(node.height for node in row) + _GAP_Y + lines * _LINE
    return tops, tops[-1] + max(node.height for node in rows[-1])


def _middle_of_sources(node: Node, chart: Flowchart) -> float:
    middles = [chart.nodes[source].middle for source, target, _ in chart.edges if chart.nodes[target] is node]
    return sum(middles) / len(middles) if middles else 0.0


def _edges(chart: Flowchart, tops: Sequence[float]) -> Iterator[str]:
    for source, target, label in chart.edges:
        begin, end = chart.nodes[source], chart.nodes[target]
        y1, y2 = tops[begin.rank] + begin.height, tops[end.rank]
        bend = (y1 + y2) / 2
        yield (
            f'<path d="M{begin.middle:.0f} {y1:.0f}C{begin.middle:.0f} {bend:.0f} {end.middle:.0f} {bend:.0f} '
            f'{end.middle:.0f} {y2:.0f}" fill="none" stroke="currentColor" marker-end="url(#diagram-arrow)"/>'
        )
        if label:
            lines = label.split(_BREAK)
            # Beside the end of the edge, where edges of one node are apart.
            yield _text(lines, (begin.middle + 3 * end.middle) / 4, y2 - 22 - (len(lines) - 1) * _LINE, "diagram-label")


def _box(node: Node, top: float) -> str:
    corner = node.height / 2 if node.is_choice else 4
    return (
        f'<rect x="{node.x:.0f}" y="{top:.0f}" width="{node.width:.0f}" height="{node.height:.0f}" rx="{corner:.0f}" '
        'class="diagram-box" stroke="currentColor"/>' + _text(node.lines, node.middle, top + _PADDING + 11)
    )


def _text(lines: Sequence[str], x: float, y: float, name: str = "diagram-text") -> str:
    spans = []
    for number, line in enumerate(lines):
        weight = ' font-weight="700"' if "<b>" in line else ""
        spans.append(f'<tspan x="{x:.0f}" y="{y + number * _LINE:.0f}"{weight}>{escape(_plain(line))}</tspan>')
    return f'<text class="{name}" text-anchor="middle">{"".join(spans)}</text>'


def _text_width(line: str) -> float:
    return len(_plain(line)) * _CHARACTER


def _plain(line: str) -> str:
    return re.sub(r"</?b>", "", line)
