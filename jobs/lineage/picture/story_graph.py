"""Graph of a story: one row of text per step, beside lanes in which edges connect the steps.

A step is a link to its details, so screen readers and keyboards can use the graph as a list; the SVG beside it is only
visual. All rows have the same height, and positions in the SVG are percentages: only paths are stretched. Rows are
divided into chunks with an SVG each, so that printed pages break between chunks, and a browser lays out only visible
ones.

A line runs down the lane of a record while the record is there, and crosses to the lane of the next step just above
that step.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from commitlake.connectors.printable import escape_line
from commitlake.jobs.lineage.picture.lanes import Lanes
from commitlake.jobs.lineage.picture.picture_rows import PictureRow, PictureRows
from commitlake.jobs.lineage.picture.step_shapes import FOLDED, edge_css_class, glyph_html, glyph_name_of
from commitlake.jobs.report.charts import percent_text
from commitlake.jobs.report.html_elements import join_html, name_html, tag
from commitlake.pipelines.lineage.message_history import Edge, StepKind, Story
from commitlake.pipelines.lineage.value_texts import approximate_duration_text, clock_text
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report import Html

CHUNK = 8
"""Lines of a chunk, which is never broken on paper: with larger chunks, sheets would end half empty."""
MAX_PARTS = 20_000
"""Largest number of drawn edge parts: an edge has one part in each chunk that it crosses."""
_LONG_PART = 20
"""Part of the whole time above which a gap is a line of its own."""
_LONG_LEAST = datetime.timedelta(seconds=1)
_STRETCHED = 1000
_LINE = 100
_LONGEST_NAMES = (10, 14, 18, 22, 26)
"""Name lengths for which page.css has a height of the lanes' header; longer names are cut."""


@dataclass(frozen=True, slots=True)
class GraphLine:
    """Line of the graph of a story: a row with a step, or a text for the time gap between two rows.

    Attributes:
        row: The row; None for a gap.
        gap: text for the gap, such as `2 d later`; empty for a row.
        since: Time since the previous row; None if unknown.
    """

    row: PictureRow | None
    gap: str = ""
    since: datetime.timedelta | None = None


@dataclass(frozen=True, slots=True)
class _EdgePath:
    """Connection between two lines of the graph, drawn for an edge of the story."""

    edge: Edge
    source: int
    target: int
    left: float
    right: float
    message: int

    @property
    def line_range(self) -> tuple[int, int]:
        return min(self.source, self.target), max(self.source, self.target)


def story_graph_html(story: Story, rows: PictureRows, lanes: Lanes) -> tuple[Html, int]:
    """Return the graph of a story as HTML, and the number of edges that are left out to limit the graph's size.

    Args:
        rows: The rows of the story.
        lanes: The columns of the picture.
    """
    lines = make_graph_lines(rows.rows)
    paths = sorted(_edge_paths(story, rows, lanes, lines), key=lambda path: path.line_range[1] - path.line_range[0])
    by_chunk: dict[int, list[_EdgePath]] = {}
    left_out, parts = 0, 0
    for path in paths:  # shortest first, because a long one has a part in each chunk
        first, last = (end // CHUNK for end in path.line_range)
        if parts + last - first + 1 > MAX_PARTS:
            left_out += 1
            continue
        parts += last - first + 1
        for chunk in range(first, last + 1):
            by_chunk.setdefault(chunk, []).append(path)
    led_to = {path.target for path in paths}
    labels = _edge_labels(story)
    chunks = [
        _line_chunk_html(lines[start : start + CHUNK], start, by_chunk.get(start // CHUNK, []), led_to, lanes, labels)
        for start in range(0, len(lines), CHUNK)
    ]
    return tag("div", _lane_names_html(lanes), *chunks, class_=f"graph lanes-{len(lanes.lanes)}"), left_out


def make_graph_lines(rows: Sequence[PictureRow]) -> list[GraphLine]:
    """Return the rows as lines of the graph, with gap lines inserted for new days and long pauses."""
    times = [row.step.at for row in rows if row.step.at is not None]
    longest = max((max(times) - min(times)) / _LONG_PART, _LONG_LEAST) if times else _LONG_LEAST
    lines: list[GraphLine] = []
    before: datetime.datetime | None = None
    for row in rows:
        at = row.step.at
        since = at - before if at is not None and before is not None else None
        words = []
        if since is not None and since >= longest:
            words.append(f"{approximate_duration_text(since)} later")
        if at is not None and (before is None or day_text(before) != day_text(at)):
            words.append(day_text(at))
        if words:
            lines.append(GraphLine(None, " · ".join(words)))
        lines.append(GraphLine(row, since=since))
        before = _end_time(row) or before
    return lines


def day_text(moment: datetime.datetime) -> str:
    """Format the day of a time in UTC: `Fri 20 Nov 2026`."""
    utc = moment.astimezone(datetime.UTC)
    return f"{utc:%a} {utc.day} {utc:%b} {utc.year}"


def _end_time(row: PictureRow) -> datetime.datetime | None:
    return next((step.at for step in reversed(row.steps) if step.at is not None), None)


def _edge_paths(story: Story, rows: PictureRows, lanes: Lanes, lines: Sequence[GraphLine]) -> Iterator[_EdgePath]:
    line_of = {line.row.place: number for number, line in enumerate(lines) if line.row is not None}
    for edge in story.edges:
        source, target = rows.row_of.get(edge.source), rows.row_of.get(edge.target)
        if source is None or target is None or source is target:
            continue
        yield _EdgePath(edge, line_of[source.place], line_of[target.place],
                    lanes.horizontal_position(source), lanes.horizontal_position(target), source.message)  # fmt: skip


def _lane_names_html(lanes: Lanes) -> Html:
    shown = [_shorten_lane_name(lane.name or "unknown") for lane in lanes.lanes]
    names = [
        tag("svg", tag("text", label, class_=f"lane-name {lane.kind}"), x=percent_text((place + 0.5) / len(shown)),
            y="100%", overflow="visible")
        for place, (lane, label) in enumerate(zip(lanes.lanes, shown, strict=True))
    ]  # fmt: skip
    longest = max(map(len, shown))
    room = next(most for most in _LONGEST_NAMES if longest <= most)
    drawn = tag("svg", *names, width="100%", height="100%", overflow="visible")
    return tag("div", drawn, class_=f"lane-names longest-{room}", aria_hidden="true")


def _shorten_lane_name(lane_name: str) -> str:
    """Escape a name, and shorten it to the width of a lane."""
    shown = escape_line(lane_name[: _LONGEST_NAMES[-1] + 1])
    return shown if len(shown) <= _LONGEST_NAMES[-1] else f"{shown[: _LONGEST_NAMES[-1] - 1]}…"


def _edge_labels(story: Story) -> dict[str, str]:
    """Return a mapping from step id to the text of the first edge that leads to the step."""
    return {edge.target: edge.text for edge in reversed(story.edges)}


def _line_chunk_html(
    lines: Sequence[GraphLine],
    first_line_number: int,
    paths: Sequence[_EdgePath],
    target_line_numbers: set[int],
    lanes: Lanes,
    labels: Mapping[str, str],
) -> Html:
    count = len(lines)
    bands = [
        tag("rect", x=percent_text(place / len(lanes.lanes)), y=0, width=percent_text(1 / len(lanes.lanes)),
            height="100%", class_=f"lane-band {lane.kind}")
        for place, lane in enumerate(lanes.lanes)
    ]  # fmt: skip
    edges = tag(
        "svg", *(_edge_html(path) for path in paths),
        x=0, y=0, width="100%", height="100%", viewBox=f"0 {first_line_number * _LINE} {_STRETCHED} {count * _LINE}",
        preserveAspectRatio="none",
    )  # fmt: skip
    marks = [
        mark
        for number, line in enumerate(lines)
        for mark in _line_shapes(line, number, count, target_line_numbers, first_line_number, lanes)
    ]
    rail = tag("svg", *bands, edges, *marks, class_="rail", aria_hidden="true", focusable="false")
    return tag("div", rail, tag("ol", *(_line_html(line, labels) for line in lines)), class_="chunk")


def _edge_html(path: _EdgePath) -> Html:
    x1, x2 = (f"{across * _STRETCHED:.0f}" for across in (path.left, path.right))
    y1, y2 = path.source * _LINE + _LINE // 2, path.target * _LINE + _LINE // 2
    turn = max(y1, y2 - _LINE) if y2 > y1 else y1
    middle = (turn + y2) // 2
    trunk = f"V{turn}" if turn != y1 else ""
    look = edge_css_class(path.edge.kind)
    shape = f"M{x1},{y1}{trunk}C{x1},{middle} {x2},{middle} {x2},{y2}"
    return tag("path", d=shape, class_=f"edge {look}{'' if y2 > y1 else ' back'}", data_message=path.message)


def _line_shapes(
    line: GraphLine,
    line_index: int,
    line_count: int,
    target_line_numbers: set[int],
    first_line_number: int,
    lanes: Lanes,
) -> Iterator[Html]:
    y = percent_text((line_index + 0.5) / line_count)
    if line.row is None:
        yield tag("line", x1=0, x2="100%", y1=y, y2=y, class_="gap-line")
    elif line.row.is_folded:
        yield glyph_html(FOLDED, "50%", y)
    else:
        x = percent_text(lanes.horizontal_position(line.row))
        if first_line_number + line_index in target_line_numbers:
            yield tag("use", href="#glyph-tip", x=x, y=y, class_="tip", data_message=line.row.message)
        yield glyph_html(glyph_name_of(line.row.step), x, y, data_message=line.row.message, data_row=line.row.number)


def _line_html(line: GraphLine, labels: Mapping[str, str]) -> Html:
    row = line.row
    if row is None:
        return tag("li", tag("span", line.gap), class_="gap")
    step = row.step
    at = "time unknown" if step.at is None else tag("time", clock_text(step.at.astimezone(datetime.UTC)))
    when = tag("span", at, class_="when")
    if row.is_folded:
        words = tag("b", f"{format_count(len(row.steps), 'step')} folded")
        return tag("li", when, " ", tag("span", words, class_="what"), class_="step is-folded")
    since = tag("span", f"+{approximate_duration_text(line.since)}" if line.since is not None else "", class_="since")
    label = (
        "" if step.kind is StepKind.CONSUMPTION else labels.get(step.id, "")
    )  # the title of a consumption already says this
    led = tag("span", " · ", name_html(label), class_="wide-only") if label else Html()
    what = tag(
        "span",
        tag("b", tag("span", f"{row.number}. ", class_="number-of"), name_html(step.title)),
        " ",
        tag("span", name_html(step.lane), led, class_="where"),
        class_="what",
    )
    link = tag("a", join_html([when, since, what], " "), href=f"#step-{row.number}", data_row=row.number,
               data_message=row.message)  # fmt: skip
    return tag("li", link, class_="step")
