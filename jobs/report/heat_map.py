"""A heat map: a strip of colours over time for each row.

Colours represent powers of ten; darker means more. A time without a figure is hatched. The numbers are in the
table below the map.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from commitlake.jobs.report.line_chart import chart_caption, time_axis
from commitlake.jobs.report.markup import Html, name, tag
from commitlake.jobs.report.parts import folded
from commitlake.jobs.report.tables import cell_text, plain_table
from commitlake.schemas.counts import count_text
from commitlake.schemas.times import TimeWindows

LEVELS = 7
"""Colours: 0, then one for each power of ten; the last one is open-ended."""
_LEGEND = ("0", "1+", "10+", "100+", "1,000+", "10,000+", "100,000+")


@dataclass(frozen=True, slots=True)
class HeatRow:
    """A row of a heat map.

    Attributes:
        name: Name of the row; any text.
        values: A figure for each window; None if there is none.
        last: Text beside the row, such as the current figure and verdict.
    """

    name: str
    values: Sequence[float | None]
    last: Html


def heat_map(
    title: str, windows: TimeWindows, rows: Sequence[HeatRow], number: Callable[[float], str], *, note: str = ""
) -> Html:
    """Return a heat map, its legend, and its numbers as a table."""
    lines = [
        tag("div", tag("span", name(row.name), class_="heat-name"), tag("span", row.last, class_="heat-last"),
            _strip(row, place, windows, number), class_="heat-row")
        for place, row in enumerate(rows)
    ]  # fmt: skip
    axis = tag("svg", *time_axis(windows, 13), width="100%", height=18, class_="chart", aria_hidden="true")
    legend = [*((f"heat h{level}", label) for level, label in enumerate(_LEGEND)), ("mark missing", "no figures")]
    entries = [
        tag("li", tag("svg", tag("rect", width=26, height=12, class_=look), width=26, height=12, aria_hidden="true"),
            label)
        for look, label in legend
    ]  # fmt: skip
    cells = [[windows.label(at), *(cell_text(row.values[at], number) for row in rows)] for at in range(windows.count)]
    places = [windows.middle(at) for at in range(windows.count)]
    heads = ["from (UTC)", *(row.name for row in rows)]
    return tag(
        "figure",
        chart_caption(title, windows, note),
        tag("ul", *entries, class_="legend"),
        *lines,
        tag("div", axis, class_="heat-row heat-axis"),
        tag("p", class_="readout", role="status"),
        folded("The numbers as a table", plain_table(title, heads, cells, places)),
        class_="figure heat-map",
    )  # fmt: skip


def level(value: float) -> int:
    """Return the colour of a figure.

    >>> [level(value) for value in (0, 1, 9, 10, 99_999, 100_000, 10**9)]
    [0, 1, 1, 2, 5, 6, 6]
    """
    return 0 if value < 1 else min(LEVELS - 1, 1 + math.floor(math.log10(value) + 1e-9))


def _strip(row: HeatRow, place: int, windows: TimeWindows, number: Callable[[float], str]) -> Html:
    known = [(value, at) for at, value in enumerate(row.values) if value is not None]
    said = f"{row.name}: no figures"
    if known:
        most, at = max(known, key=lambda found: (found[0], -found[1]))
        said = f"{row.name}: at most {number(most)}, at {windows.label(at)} UTC; {number(known[-1][0])} at the end"
    missing = len(row.values) - len(known)
    if known and missing:
        said += f"; no figures in {missing} of {count_text(len(row.values), 'window')}"
    inner = tag("svg", *_runs(row.values), width="100%", height="100%", viewBox=f"0 0 {windows.count} 1",
                preserveAspectRatio="none")  # fmt: skip
    missing_back = tag("rect", width="100%", height="100%", class_="mark missing")
    return tag("svg", missing_back, inner, width="100%", height=22, class_="strip", role="img", aria_label=said,
               data_plot=True, data_series=place, tabindex=0)  # fmt: skip


def _runs(values: Sequence[float | None]) -> Iterator[Html]:
    """Yield a rectangle for each run of windows with the same colour, and none for windows without figures."""
    at = 0
    for colour, run in groupby(None if value is None else level(value) for value in values):
        count = len(list(run))
        if colour is not None:
            yield tag("rect", x=at, width=count, height=1, class_=f"heat h{colour}")
        at += count
