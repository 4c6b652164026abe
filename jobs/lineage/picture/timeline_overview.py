"""The overview of a story: all steps on a time axis, to scale, with a line for each topic and group."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from commitlake.jobs.lineage.picture.lanes import Lane, Lanes
from commitlake.jobs.lineage.picture.picture_rows import PictureRow, PictureRows
from commitlake.jobs.lineage.picture.step_shapes import edge_css_class, glyph_html, glyph_name_of
from commitlake.jobs.report.chart_axes import time_ticks
from commitlake.jobs.report.charts import percent_text
from commitlake.jobs.report.html_elements import name_html, tag
from commitlake.pipelines.lineage.message_history import StepKind, Story
from commitlake.pipelines.lineage.value_texts import approximate_duration_text
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report import Html

_LANE = 22
_TOP = 26
_GAP_PART = 0.2
"""Part of the time above which a gap is labelled."""
_AXIS = 22
_MARGIN = 0.015
_MAX_HINT = 120
_DENSE = 150
"""Number of steps above which shapes would hide each other."""
_SHORT_LABEL = 8
_PLAIN = frozenset({StepKind.NORMAL, StepKind.CONSUMPTION, StepKind.TRACE, StepKind.OP, StepKind.HALF, StepKind.DELAY})
MAX_EDGES = 2000
"""Largest number of drawn edges; of more, the first are drawn."""


def overview_html(story: Story, rows: PictureRows, lanes: Lanes) -> Html:
    """Return a small timeline of a message's story as HTML; empty if all its steps have the same time."""
    drawn = [row for row in rows.rows if not row.is_folded and row.step.at is not None]
    span = _time_span([row.step.at for row in drawn if row.step.at is not None])
    if span is None:
        return Html()
    start, end = span
    bottom = _TOP + _LANE * len(lanes.lanes)

    def x_position_of_time(moment: datetime.datetime) -> float:
        return _MARGIN + (1 - 2 * _MARGIN) * ((moment - start) / (end - start))

    bands = [
        tag("rect", x=0, y=_TOP + place * _LANE, width="100%", height=_LANE, class_=f"lane-band {lane.kind}")
        for place, lane in enumerate(lanes.lanes)
    ]
    places = {
        row.step.id: (percent_text(x_position_of_time(row.step.at)), f"{_vertical_position(lanes, row)}")
        for row in drawn
        if row.step.at is not None
    }
    edges: list[Html] = []
    for edge in story.edges:
        if len(edges) < MAX_EDGES and edge.source in places and edge.target in places:
            (x1, y1), (x2, y2) = places[edge.source], places[edge.target]
            edges.append(tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=f"edge {edge_css_class(edge.kind)}",
                             data_message=rows.row_of[edge.source].message))  # fmt: skip
    is_dense = len(drawn) > _DENSE
    marks = [_step_shape(row, *places[row.step.id], is_dense=is_dense) for row in drawn]
    picture = tag(
        "svg", *bands, *_time_axis_html(start, end, bottom), *edges, *_gap_labels(drawn, x_position_of_time, start,
        end),
        *marks, width="100%", height=bottom + _AXIS, class_="chart", role="img",
        aria_label=f"{format_count(len(drawn), 'step')} on an axis of time. They are listed below.",
    )  # fmt: skip
    names = tag("ul", *map(_lane_label, lanes.lanes), class_="lane-list")
    return tag("div", names, picture, class_="overview is-dense" if is_dense else "overview")


def _time_span(times: Sequence[datetime.datetime]) -> tuple[datetime.datetime, datetime.datetime] | None:
    """Return the time range of the picture; None if all steps have the same time."""
    if not times or min(times) == max(times):
        return None
    return min(times), max(times)


def _vertical_position(lanes: Lanes, row: PictureRow) -> int:
    within = (lanes.track_of.get(row.message, 0) + 1) / (lanes.tracks + 1)
    return _TOP + round((lanes.lane_index(row.step) + within) * _LANE)


def _step_shape(row: PictureRow, x: str, y: str, *, is_dense: bool) -> Html:
    """Return the shape for a step; in very dense pictures, a step without problems is only a dot."""
    name = glyph_name_of(row.step)
    if is_dense and name in _PLAIN:
        return tag("circle", _tooltip(row), cx=x, cy=y, r=2.2, class_=f"glyph {name} shape", data_row=row.number,
                   data_message=row.message)  # fmt: skip
    return glyph_html(name, x, y, _tooltip(row), data_row=row.number, data_message=row.message)


def _tooltip(row: PictureRow) -> Html:
    """Return the tooltip for a step."""
    return tag("title", f"{row.number}. {row.step.title[:_MAX_HINT]}")


def _lane_label(lane: Lane) -> Html:
    return tag("li", name_html(lane.name or "unknown"), class_=lane.kind)


def _gap_labels(
    drawn_rows: Sequence[PictureRow],
    horizontal_position: Callable[[datetime.datetime], float],
    start: datetime.datetime,
    end: datetime.datetime,
) -> Iterator[Html]:
    """Yield labels above the lanes with the length of each long pause between two steps."""
    times = sorted(row.step.at for row in drawn_rows if row.step.at is not None)
    for before, after in pairwise(times):
        if after - before >= (end - start) * _GAP_PART:
            left, right = horizontal_position(before), horizontal_position(after)
            y = _TOP - 5
            yield tag("line", x1=percent_text(left), x2=percent_text(right), y1=y, y2=y, class_="span-line")
            for x in (left, right):
                yield tag("line", x1=percent_text(x), x2=percent_text(x), y1=y - 4, y2=y + 4, class_="span-line")
            yield tag("text", approximate_duration_text(after - before), x=percent_text((left + right) / 2), y=y - 6,
                      text_anchor="middle", class_="axis halo")  # fmt: skip


def _time_axis_html(start: datetime.datetime, end: datetime.datetime, bottom: int) -> Iterator[Html]:
    for number, tick in enumerate(time_ticks(start, end)):
        place = _MARGIN + (1 - 2 * _MARGIN) * tick.place
        x = percent_text(place)
        look = " wide-only" if number % (2 if len(tick.label) <= _SHORT_LABEL else 4) else ""
        anchor = "start" if place < 0.05 else "end" if place > 0.95 else "middle"
        yield tag("line", x1=x, x2=x, y1=_TOP, y2=bottom, class_=f"grid{look}")
        yield tag("text", tick.label, x=x, y=bottom + 16, text_anchor=anchor, class_=f"axis{look}")
