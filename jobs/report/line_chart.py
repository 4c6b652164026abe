"""Line charts over time: SVG that is readable at any width, with the same numbers as a table.

No library is used: plotly.js would add 4 MB to a page; matplotlib's SVG has a fixed width and its own colours, so its
text is unreadable on a phone and in a dark theme. Here positions are percentages and only the plotted paths are
stretched (`preserveAspectRatio="none"`), so text keeps its size; colours come from the page's style. The page's script
adds a cursor that reads the numbers from the table below the chart.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from commitlake.jobs.report.axes import Scale, short_number, time_ticks
from commitlake.jobs.report.markup import Html, joined, name, tag
from commitlake.jobs.report.parts import folded
from commitlake.jobs.report.tables import cell_text, plain_table
from commitlake.schemas.times import TimeWindows

MAX_SERIES = 8
"""Largest number of series for which page.css has a style."""
_TOP, _HEIGHT, _BELOW = 18, 230, 26
_STRETCHED = 1000


class MarkKind(StrEnum):
    """The kind of a marked time."""

    MISSING = "missing"
    PARTIAL = "partial"
    DAMAGE = "damage"


@dataclass(frozen=True, slots=True)
class Mark:
    """A marked time in a chart.

    Attributes:
        kind: Kind of the mark.
        start: Start time.
        end: End time.
        note: A sentence about it.
    """

    kind: MarkKind
    start: datetime.datetime
    end: datetime.datetime
    note: str


@dataclass(frozen=True, slots=True)
class Series:
    """A series of figures over time.

    Attributes:
        name: Name of the series; any text.
        values: A figure for each window; None if there is none, which is a gap in the line and never 0.
    """

    name: str
    values: Sequence[float | None]


def line_chart(
    title: str,
    windows: TimeWindows,
    series: Sequence[Series],
    number: Callable[[float], str],
    *,
    marks: Sequence[Mark] = (),
    axis: Callable[[float], str] = short_number,
    is_log: bool = False,
    has_bands: bool = False,
    note: str = "",
) -> Html:
    """Return a chart, its legend, and its numbers as a table.

    Args:
        title: Title of the chart, with the unit of the figures.
        windows: Times of the figures.
        series: The series, at most `MAX_SERIES`.
        number: Function that formats a figure in the table.
        marks: Marked times.
        axis: Function that formats a figure on the axis.
        is_log: Whether the scale is logarithmic.
        has_bands: Whether the area between each line and the previous one is filled, as for percentiles.
        note: A sentence on how to read the chart.
    """
    scale = Scale.fitting([value for one in series for value in one.values if value is not None], is_log=is_log)
    bands = range(1, len(series)) if has_bands else ()
    plot = tag(
        "svg",
        *(_band(series[place - 1], series[place], scale, windows, place) for place in bands),
        *(_line(one, scale, windows, place) for place, one in enumerate(series)),
        x=0, y=_TOP, width="100%", height=_HEIGHT, viewBox=f"0 0 {_STRETCHED} {_HEIGHT}", preserveAspectRatio="none",
    )  # fmt: skip
    picture = tag(
        "svg",
        *(_mark(mark, windows) for mark in marks),
        *_grid(scale),
        plot,
        *_labels(scale, windows, axis),
        tag("line", x1=0, x2=0, y1=_TOP, y2=_TOP + _HEIGHT, class_="cursor"),
        width="100%", height=_TOP + _HEIGHT + _BELOW, class_="chart", role="img", data_plot=True, tabindex=0,
        aria_label=f"{title}. The numbers are in the table below the chart.",
    )  # fmt: skip
    rows = [
        [windows.label(at), *(cell_text(one.values[at], number) for one in series), _marked(marks, windows, at)]
        for at in range(windows.count)
    ]
    heads = ["from (UTC)", *(one.name for one in series), "remarks"]
    places = [windows.middle(at) for at in range(windows.count)]
    return tag(
        "figure",
        chart_caption(title, windows, note),
        _legend(series, marks),
        picture,
        tag("p", class_="readout", role="status"),
        folded("The numbers as a table", plain_table(title, heads, rows, places)),
        class_="figure",
    )  # fmt: skip


def chart_caption(title: str, windows: TimeWindows, note: str) -> Html:
    """Return a chart's title, its time range, and a sentence on how to read it."""
    return tag("figcaption", tag("b", title), f" · {windows.label(0)} to {windows.label(windows.count)} UTC",
               f". {note}" if note else "")  # fmt: skip


def _marked(marks: Sequence[Mark], windows: TimeWindows, at: int) -> str:
    start = windows.start + at * windows.length
    end = start + windows.length
    return "; ".join(dict.fromkeys(mark.note for mark in marks if mark.start < end and start < mark.end))


def _legend(series: Sequence[Series], marks: Sequence[Mark]) -> Html:
    entries = [
        tag("li", tag("svg", tag("line", x1=1, x2=25, y1=6, y2=6, class_=f"line s{place}"), width=26, height=12,
                      aria_hidden="true"), name(one.name))
        for place, one in enumerate(series)
    ]  # fmt: skip
    words = {MarkKind.MISSING: "no figures", MarkKind.PARTIAL: "in part", MarkKind.DAMAGE: "damage"}
    kinds = {mark.kind for mark in marks}
    entries += [
        tag("li", tag("svg", tag("rect", width=26, height=12, class_=f"mark {kind}"), width=26, height=12,
                      aria_hidden="true"), words[kind])
        for kind in MarkKind if kind in kinds
    ]  # fmt: skip
    return tag("ul", *entries, class_="legend")


def percent(place: float) -> str:
    """Format a position as a percentage."""
    return f"{100 * place:.5g}%"


def _mark(mark: Mark, windows: TimeWindows) -> Html:
    left, right = windows.place(mark.start), windows.place(mark.end)
    shown = tag("rect", x=percent(left), width=percent(max(right - left, 0.003)), y=_TOP, height=_HEIGHT,
                class_=f"mark {mark.kind}")  # fmt: skip
    sign = tag("text", "▲", x=percent((left + right) / 2), y=_TOP - 4, text_anchor="middle", class_="damage-sign")
    return tag("g", tag("title", mark.note), shown, sign if mark.kind is MarkKind.DAMAGE else Html())


def _grid(scale: Scale) -> Iterator[Html]:
    for value in scale.ticks():
        y = _height_of(scale, value)
        yield tag("line", x1=0, x2="100%", y1=y, y2=y, class_="grid")


def _labels(scale: Scale, windows: TimeWindows, axis: Callable[[float], str]) -> Iterator[Html]:
    """Yield the labels of both axes, which are on the grid lines, so that the lines have the whole width."""
    for value in scale.ticks():
        yield tag("text", axis(value), x=2, y=_height_of(scale, value) - 4, class_="axis halo")
    yield from time_axis(windows, _TOP + _HEIGHT + 17)


def _height_of(scale: Scale, value: float) -> float:
    return _TOP + (1 - scale.place(value)) * _HEIGHT


def time_axis(windows: TimeWindows, y: float) -> Iterator[Html]:
    """Yield the labels of a time axis; every other one is hidden on a phone, except those that name days."""
    ticks = list(time_ticks(windows.start, windows.end))
    kept = next((place for place, tick in enumerate(ticks) if " " in tick.label), 0) % 2
    for place, tick in enumerate(ticks):
        anchor = "start" if tick.place < 0.04 else "end" if tick.place > 0.96 else "middle"
        yield tag("text", tick.label, x=percent(tick.place), y=y, text_anchor=anchor,
                  class_="axis" if place % 2 == kept else "axis wide-only")  # fmt: skip


def _points(values: Sequence[float | None], scale: Scale, windows: TimeWindows) -> Iterator[list[tuple[str, str]]]:
    """Yield the parts of a line between its gaps."""
    stretch: list[tuple[str, str]] = []
    for at, value in enumerate(values):
        if value is None:
            if stretch:
                yield stretch
            stretch = []
        else:
            x, y = windows.middle(at) * _STRETCHED, (1 - scale.place(value)) * _HEIGHT
            stretch.append((f"{x:.1f}", f"{y:.1f}"))
    if stretch:
        yield stretch


def _line(series: Series, scale: Scale, windows: TimeWindows, place: int) -> Html:
    lines, dots = [], []
    for stretch in _points(series.values, scale, windows):
        (x, y), others = stretch[0], stretch[1:]
        if others:
            lines.append(f"M{x},{y}L" + " ".join(",".join(point) for point in others))
        else:  # a figure between two gaps: a line without length, with round ends
            dots.append(f"M{x},{y}h0")
    drawn = ((lines, f"line s{place}"), (dots, f"line dot s{place}"))
    return joined([tag("path", d="".join(paths), class_=kind) for paths, kind in drawn if paths])


def _band(lower: Series, upper: Series, scale: Scale, windows: TimeWindows, place: int) -> Html:
    both = [(low, high) for low, high in zip(lower.values, upper.values, strict=True)]
    lows = [low if high is not None else None for low, high in both]
    highs = [high if low is not None else None for low, high in both]
    paths = []
    for below, above in zip(_points(lows, scale, windows), _points(highs, scale, windows), strict=True):
        paths.append("M" + "L".join(",".join(point) for point in [*above, *reversed(below)]) + "z")
    return tag("path", d="".join(paths), class_=f"band s{place}") if paths else Html()


def sparkline(label: str, values: Sequence[float | None]) -> Html:
    """Return a small line without axes.

    Args:
        label: Description of the line, for screen readers.
        values: Values at equal distances; None is a gap.
    """
    count = max(len(values), 1)
    windows = TimeWindows(datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC), datetime.timedelta(minutes=1), count)
    scale = Scale(max((value for value in values if value is not None), default=0.0) or 1.0)
    line = _line(Series("", values), scale, windows, 0)
    inner = tag("svg", line, width="100%", height="100%", viewBox=f"0 -12 {_STRETCHED} {_HEIGHT + 24}",
                preserveAspectRatio="none")  # fmt: skip
    return tag("svg", inner, class_="spark", width=90, height=20, role="img", aria_label=label)
