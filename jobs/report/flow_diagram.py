"""A diagram of paths with widths, as SVG: each path is a band from stop to stop, as wide as its number.

Bands that are at the same stop after the same number of steps are on top of each other there. Each band is a link, so
that a reader gets from a band to what belongs to its path, without a script. The picture has a fixed size, and scrolls
on a small screen: stretched bands and texts would be hard to follow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from commitlake.jobs.report.html_elements import escape_text, tag
from commitlake.schemas.report import MAX_SERIES, Html, format_whole_number

MAX_STOPS = 12
"""Stops of a path that are shown; of a longer path, the first."""
_COLUMN, _BAR, _GAP, _TOP = 168, 9, 34, 26
_HEIGHT = 260
_MIN_WIDTH = 1.5
_MAX_LABEL = 20
_Stop: TypeAlias = tuple[int, str]


class FlowBand(NamedTuple):
    """Path of a diagram from stop to stop (such as topics), and the number of keys that take the path.

    Attributes:
        stops: its stops, in order; any texts.
        value: number of keys that take it.
        anchor: id of the element that the band leads to.
    """

    stops: Sequence[str]
    value: int
    anchor: str


def flow_diagram_html(title: str, note: str, flows: Sequence[FlowBand]) -> Html:
    """Return a diagram of paths as SVG in an HTML figure, the first path on top.

    Args:
        title: title of the diagram, with the unit of the figures.
        note: a sentence on how to read it.
        flows: the paths, the widest first.
    """
    layout = _DiagramLayout(flows)
    bands = [_band_html(layout, place) for place in reversed(range(len(flows)))]  # narrow ones stay visible
    stops = [html for stop in layout.values for html in _stop_html(layout, stop)]
    width, height = _COLUMN * max(layout.steps, 1), layout.height
    picture = tag("svg", *bands, *stops, width=width, height=height, viewBox=f"0 0 {width} {height}", role="group",
                  aria_label=title)  # fmt: skip
    caption = tag("figcaption", tag("b", title), f". {note}")
    shown = tag("div", picture, class_="wide", tabindex=0, role="region", aria_label=title)
    return tag("figure", caption, shown, class_="figure")


class _DiagramLayout:
    """Positions and sizes of stops and bands in a flow diagram.

    Args:
        flows: the paths.

    Attributes:
        flows: the paths.
        values: the sum of what passes a stop, by number of steps before it, and its name.
        tops: top of each stop.
        places: top of each path's band at each of its stops.
        steps: largest number of stops of a path.
        height: height of the picture.
    """

    def __init__(self, flows: Sequence[FlowBand]) -> None:
        self.flows = flows
        self._largest = sum(flow.value for flow in flows) or 1
        self.values: dict[_Stop, int] = defaultdict(int)
        widths: dict[_Stop, float] = defaultdict(float)
        for flow in flows:
            for stop in _enumerate_stops(flow):
                self.values[stop] += flow.value
                widths[stop] += self.band_width(flow.value)
        self.steps = max((step + 1 for step, _ in self.values), default=0)
        ends = [float(_TOP)] * self.steps
        self.tops: dict[_Stop, float] = {}
        for stop in self.values:  # those of the widest path first
            self.tops[stop] = ends[stop[0]]
            ends[stop[0]] += widths[stop] + _GAP
        self.height = round(max(ends, default=_TOP))
        self.bottoms: Mapping[_Stop, float] = {stop: top + widths[stop] for stop, top in self.tops.items()}
        used = dict(self.tops)
        self.places: list[list[float]] = []
        for flow in flows:
            self.places.append([used[stop] for stop in _enumerate_stops(flow)])
            for stop in _enumerate_stops(flow):
                used[stop] += self.band_width(flow.value)

    def band_width(self, value: int) -> float:
        """Return the width of the band of a path."""
        return max(_MIN_WIDTH, _HEIGHT * value / self._largest)


def _enumerate_stops(flow: FlowBand) -> list[_Stop]:
    return list(enumerate(flow.stops[:MAX_STOPS]))


def _band_html(layout: _DiagramLayout, flow_number: int) -> Html:
    flow, tops = layout.flows[flow_number], layout.places[flow_number]
    width = layout.band_width(flow.value)
    parts = [f"M{step * _COLUMN},{top:.5g}h{_BAR}v{width:.5g}h-{_BAR}z" for step, top in enumerate(tops)]
    for step, (top, then) in enumerate(pairwise(tops)):
        left, right = step * _COLUMN + _BAR, (step + 1) * _COLUMN
        middle = (left + right) / 2
        parts.append(
            f"M{left},{top:.5g}C{middle:g},{top:.5g} {middle:g},{then:.5g} {right},{then:.5g}v{width:.5g}"
            f"C{middle:g},{then + width:.5g} {middle:g},{top + width:.5g} {left},{top + width:.5g}z"
        )
    said = f"{' > '.join(flow.stops)}: {format_whole_number(flow.value)}"
    band = tag("path", d="".join(parts), class_=f"b{flow_number % MAX_SERIES}", fill_opacity=0.6)
    return tag("a", tag("title", said), band, href=f"#{flow.anchor}", aria_label=said)


def _stop_html(layout: _DiagramLayout, stop: _Stop) -> Iterator[Html]:
    step, name = stop
    left, top = step * _COLUMN, layout.tops[stop]
    said = f"{name}: {format_whole_number(layout.values[stop])}"
    yield tag("rect", x=left, y=top, width=_BAR, height=layout.bottoms[stop] - top, class_="feed-tip",
              pointer_events="none")  # fmt: skip
    label = name if len(name) <= _MAX_LABEL else f"{name[: _MAX_LABEL - 1]}…"
    yield tag("text", tag("title", said), escape_text(label), x=left, y=top - 10, class_="feed-name")
