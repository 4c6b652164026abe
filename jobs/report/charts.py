"""Charts as SVG that is readable at any width, with the same numbers as a table.

    line_chart_html  lines and bands over time, with gaps and marked times
    heat_map_html    a strip of colours over time for each row
    sparkline_html   a small line without axes

No library is used: plotly.js would add 4 MB to a page; matplotlib's SVG has a fixed width and its own colours, so its
text is unreadable on a phone and in a dark theme. Here positions are percentages and only the plotted paths are
stretched (`preserveAspectRatio="none"`), so text keeps its size; colours come from the page's style. The page's script
adds a cursor that reads the numbers from the table below the chart.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from commitlake.jobs.report.chart_axes import AxisScale, time_ticks
from commitlake.jobs.report.html_elements import inline_html, join_html, name_html, tag
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report import (
    NO_FIGURE,
    HeatMap,
    Html,
    LineChart,
    Mark,
    MarkKind,
    Series,
    Sparkline,
)
from commitlake.schemas.times import TimeWindows

LEVELS = 7
"""Colours of a heat map: 0, then one for each power of ten; the last one is open-ended."""
_LEVEL_NAMES = ("0", "1+", "10+", "100+", "1,000+", "10,000+", "100,000+")
_TOP, _HEIGHT, _BELOW = 18, 230, 26
_STRETCHED = 1000


def line_chart_html(chart: LineChart) -> Html:
    """Return a chart, its legend, and its numbers as a table."""
    windows, series = chart.windows, chart.series
    scale = AxisScale.for_values(
        [value for one in series for value in one.values if value is not None], is_log=chart.is_log
    )
    bands = range(1, len(series)) if chart.has_bands else ()
    plot = tag(
        "svg",
        *(_range_band_html(series[place - 1], series[place], scale, windows, place) for place in bands),
        *(_line_html(one, scale, windows, place) for place, one in enumerate(series)),
        x=0, y=_TOP, width="100%", height=_HEIGHT, viewBox=f"0 0 {_STRETCHED} {_HEIGHT}", preserveAspectRatio="none",
    )  # fmt: skip
    picture = tag(
        "svg",
        *(_mark_html(mark, windows) for mark in chart.marks),
        *_grid_lines(scale),
        plot,
        *_axis_labels(scale, windows, chart.axis),
        tag("line", x1=0, x2=0, y1=_TOP, y2=_TOP + _HEIGHT, class_="cursor"),
        width="100%", height=_TOP + _HEIGHT + _BELOW, class_="chart", role="img", data_plot=True, tabindex=0,
        aria_label=f"{chart.title}. The numbers are in the table below the chart.",
    )  # fmt: skip
    heads = ["from (UTC)", *(one.name for one in series), "remarks"]
    rows = [
        [
            windows.label(at),
            *(_series_value_text(one, at, chart.number) for one in series),
            _mark_notes_text(chart.marks, windows, at),
        ]
        for at in range(windows.count)
    ]
    return tag(
        "figure",
        _caption_html(chart),
        _legend_html(series, chart.marks),
        picture,
        _READOUT,
        _numbers_table_html(chart, heads, rows),
        class_="figure",
    )


_READOUT = tag("p", class_="readout", role="status")
"""The place where the script shows the numbers at the cursor."""


def _caption_html(chart: LineChart | HeatMap) -> Html:
    """Return a chart's title, its time range, and a sentence on how to read it."""
    windows = chart.windows
    return tag("figcaption", tag("b", chart.title), f" · {windows.label(0)} to {windows.label(windows.count)} UTC",
               f". {chart.note}" if chart.note else "")  # fmt: skip


def _series_value_text(series: Series, window_number: int, format_number: Callable[[float], str]) -> str:
    value = series.values[window_number]
    return NO_FIGURE if value is None else format_number(value)


def _numbers_table_html(
    chart: LineChart | HeatMap, column_titles: Sequence[str], rows: Sequence[Sequence[str]]
) -> Html:
    """Return the numbers of a chart as a folded table; each row has its position on the time axis as an attribute."""
    lines = [
        tag("tr", tag("th", row[0], scope="row"), *(tag("td", value) for value in row[1:]),
            data_x=chart.windows.middle(at))
        for at, row in enumerate(rows)
    ]  # fmt: skip
    head = tag("tr", *(tag("th", title, scope="col") for title in column_titles))
    found = tag("table", tag("caption", chart.title, class_="unseen"), tag("thead", head), tag("tbody", *lines),
                class_="plain")  # fmt: skip
    shown = tag("div", found, class_="wide", tabindex=0, role="region", aria_label=chart.title)
    return tag("details", tag("summary", "The numbers as a table"), shown)


def _mark_notes_text(marks: Sequence[Mark], windows: TimeWindows, window_number: int) -> str:
    start = windows.start + window_number * windows.length
    end = start + windows.length
    return "; ".join(dict.fromkeys(mark.note for mark in marks if mark.start < end and start < mark.end))


def _legend_html(series: Sequence[Series], marks: Sequence[Mark]) -> Html:
    entries = [
        tag("li", tag("svg", tag("line", x1=1, x2=25, y1=6, y2=6, class_=f"line s{place}"), width=26, height=12,
                      aria_hidden="true"), name_html(one.name))
        for place, one in enumerate(series)
    ]  # fmt: skip
    words = {MarkKind.MISSING: "no figures", MarkKind.PARTIAL: "in part", MarkKind.DAMAGE: "damage"}
    kinds = {mark.kind for mark in marks}
    entries += [_legend_entry_html(f"mark {kind}", words[kind]) for kind in MarkKind if kind in kinds]
    return tag("ul", *entries, class_="legend")


def percent_text(fraction: float) -> str:
    """Format a fraction, from 0 to 1, as a percentage."""
    return f"{100 * fraction:.5g}%"


def _mark_html(mark: Mark, windows: TimeWindows) -> Html:
    left, right = windows.relative_position(mark.start), windows.relative_position(mark.end)
    shown = tag("rect", x=percent_text(left), width=percent_text(max(right - left, 0.003)), y=_TOP, height=_HEIGHT,
                class_=f"mark {mark.kind}")  # fmt: skip
    sign = tag("text", "▲", x=percent_text((left + right) / 2), y=_TOP - 4, text_anchor="middle", class_="damage-sign")
    return tag("g", tag("title", mark.note), shown, sign if mark.kind is MarkKind.DAMAGE else Html())


def _grid_lines(scale: AxisScale) -> Iterator[Html]:
    for value in scale.tick_values():
        y = _y_position(scale, value)
        yield tag("line", x1=0, x2="100%", y1=y, y2=y, class_="grid")


def _axis_labels(scale: AxisScale, windows: TimeWindows, format_value: Callable[[float], str]) -> Iterator[Html]:
    """Yield the labels of both axes; those of the vertical axis are written on the grid lines."""
    for value in scale.tick_values():
        yield tag("text", format_value(value), x=2, y=_y_position(scale, value) - 4, class_="axis halo")
    yield from time_axis_labels(windows, _TOP + _HEIGHT + 17)


def _y_position(scale: AxisScale, value: float) -> float:
    return _TOP + (1 - scale.position_of(value)) * _HEIGHT


def time_axis_labels(windows: TimeWindows, y: float) -> Iterator[Html]:
    """Yield the labels of a time axis; every other one is hidden on a phone, except those that name days."""
    ticks = list(time_ticks(windows.start, windows.end))
    kept = next((place for place, tick in enumerate(ticks) if " " in tick.label), 0) % 2
    for place, tick in enumerate(ticks):
        anchor = "start" if tick.place < 0.04 else "end" if tick.place > 0.96 else "middle"
        yield tag("text", tick.label, x=percent_text(tick.place), y=y, text_anchor=anchor,
                  class_="axis" if place % 2 == kept else "axis wide-only")  # fmt: skip


def _split_line_at_gaps(
    values: Sequence[float | None], scale: AxisScale, windows: TimeWindows
) -> Iterator[list[tuple[str, str]]]:
    """Yield the points of each part of a line; gaps in the values separate the parts."""
    stretch: list[tuple[str, str]] = []
    for at, value in enumerate(values):
        if value is None:
            if stretch:
                yield stretch
            stretch = []
        else:
            x, y = windows.middle(at) * _STRETCHED, (1 - scale.position_of(value)) * _HEIGHT
            stretch.append((f"{x:.1f}", f"{y:.1f}"))
    if stretch:
        yield stretch


def _line_html(series: Series, scale: AxisScale, windows: TimeWindows, series_number: int) -> Html:
    lines, dots = [], []
    for stretch in _split_line_at_gaps(series.values, scale, windows):
        (x, y), others = stretch[0], stretch[1:]
        if others:
            lines.append(f"M{x},{y}L" + " ".join(",".join(point) for point in others))
        else:  # a figure between two gaps: a line without length, with round ends
            dots.append(f"M{x},{y}h0")
    drawn = ((lines, f"line s{series_number}"), (dots, f"line dot s{series_number}"))
    return join_html([tag("path", d="".join(paths), class_=kind) for paths, kind in drawn if paths])


def _range_band_html(
    lower_series: Series, upper_series: Series, scale: AxisScale, windows: TimeWindows, series_number: int
) -> Html:
    both = [(low, high) for low, high in zip(lower_series.values, upper_series.values, strict=True)]
    lows = [low if high is not None else None for low, high in both]
    highs = [high if low is not None else None for low, high in both]
    paths = []
    for below, above in zip(
        _split_line_at_gaps(lows, scale, windows), _split_line_at_gaps(highs, scale, windows), strict=True
    ):
        paths.append("M" + "L".join(",".join(point) for point in [*above, *reversed(below)]) + "z")
    return tag("path", d="".join(paths), class_=f"band s{series_number}") if paths else Html()


def heat_map_html(chart: HeatMap) -> Html:
    """Return a heat map, its legend, and its numbers as a table."""
    windows = chart.windows
    lines = [
        tag("div", tag("span", name_html(row.name), class_="heat-name"),
            tag("span", inline_html(row.last), class_="heat-last"),
            _heat_strip_html(chart, place), class_="heat-row")
        for place, row in enumerate(chart.rows)
    ]  # fmt: skip
    axis = tag("svg", *time_axis_labels(windows, 13), width="100%", height=18, class_="chart", aria_hidden="true")
    legend = [*((f"heat h{level}", label) for level, label in enumerate(_LEVEL_NAMES)), ("mark missing", "no figures")]
    heads = ["from (UTC)", *(row.name for row in chart.rows)]
    rows = [
        [windows.label(at), *(_series_value_text(row, at, chart.number) for row in chart.rows)]
        for at in range(windows.count)
    ]
    return tag(
        "figure",
        _caption_html(chart),
        tag("ul", *(_legend_entry_html(look, label) for look, label in legend), class_="legend"),
        *lines,
        tag("div", axis, class_="heat-row heat-axis"),
        _READOUT,
        _numbers_table_html(chart, heads, rows),
        class_="figure heat-map",
    )


def _legend_entry_html(css_class: str, label: str) -> Html:
    """Return the entry of a legend for a coloured area."""
    area = tag("svg", tag("rect", width=26, height=12, class_=css_class), width=26, height=12, aria_hidden="true")
    return tag("li", area, name_html(label))


def colour_level(value: float) -> int:
    """Return the colour level of a figure: 0 below 1, then one level more for each power of ten.

    >>> [colour_level(value) for value in (0, 1, 9, 10, 99_999, 100_000, 10**9)]
    [0, 1, 1, 2, 5, 6, 6]
    """
    return 0 if value < 1 else min(LEVELS - 1, 1 + math.floor(math.log10(value) + 1e-9))


def _heat_strip_html(chart: HeatMap, row_number: int) -> Html:
    row, windows, number = chart.rows[row_number], chart.windows, chart.number
    known = [(value, at) for at, value in enumerate(row.values) if value is not None]
    said = f"{row.name}: no figures"
    if known:
        most, at = max(known, key=lambda found: (found[0], -found[1]))
        said = f"{row.name}: at most {number(most)}, at {windows.label(at)} UTC; {number(known[-1][0])} at the end"
    missing = len(row.values) - len(known)
    if known and missing:
        said += f"; no figures in {missing} of {format_count(len(row.values), 'window')}"
    inner = tag("svg", *_coloured_rectangles(row.values), width="100%", height="100%", viewBox=f"0 0 {windows.count} 1",
                preserveAspectRatio="none")  # fmt: skip
    missing_back = tag("rect", width="100%", height="100%", class_="mark missing")
    return tag("svg", missing_back, inner, width="100%", height=22, class_="strip", role="img", aria_label=said,
               data_plot=True, data_series=row_number, tabindex=0)  # fmt: skip


def _coloured_rectangles(values: Sequence[float | None]) -> Iterator[Html]:
    """Yield a rectangle for each sequence of windows with the same colour; windows without a figure get none."""
    at = 0
    for colour, run in groupby(None if value is None else colour_level(value) for value in values):
        count = len(list(run))
        if colour is not None:
            yield tag("rect", x=at, width=count, height=1, class_=f"heat h{colour}")
        at += count


def sparkline_html(trend: Sparkline) -> Html:
    """Return a sparkline, a small line without axes, as HTML."""
    values = trend.values
    count = max(len(values), 1)
    windows = TimeWindows(datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC), datetime.timedelta(minutes=1), count)
    scale = AxisScale(max((value for value in values if value is not None), default=0.0) or 1.0)
    line = _line_html(Series("", values), scale, windows, 0)
    inner = tag("svg", line, width="100%", height="100%", viewBox=f"0 -12 {_STRETCHED} {_HEIGHT + 24}",
                preserveAspectRatio="none")  # fmt: skip
    return tag("svg", inner, class_="spark", width=90, height=20, role="img", aria_label=trend.label)
