"""Pictures as PNG, drawn by matplotlib without a window and without a global figure.

Names in a log are untrusted: they are never shown as matplotlib's formulas (`$…$`), long ones are shortened, and
control characters are escaped.
"""

from __future__ import annotations

import datetime
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import matplotlib as mpl
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from commitlake.connectors.arrays import Array
from commitlake.connectors.printable import printable_line

MAX_SERIES = 8
"""Largest number of lines in one picture that remain distinguishable."""
MAX_BARS = 20
MAX_LABEL = 44
"""Largest number of characters shown of a name."""
_MAX_TITLE = 80
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#332288")
"""Colours after Okabe and Ito, which colour-blind people can distinguish."""
_DASHES = ("-", "--", "-.", ":")
_HEAT = LinearSegmentedColormap.from_list("lag", ["#fff3d6", "#f6a04d", "#b3261e", "#4a0d0a"])
_ASIAN_FONTS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "Microsoft YaHei", "PingFang SC")
_STYLE = {
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "font.size": 10.5,
    "legend.frameon": False,
    "timezone": "UTC",
}
_AROUND = datetime.timedelta(hours=6)
"""Time that is shown before and after a single one."""
Series = Mapping[str, Sequence[float | None]]


def label(text: str, most: int = MAX_LABEL) -> str:
    """Return a text as a picture shows it: with escapes, and shortened in the middle to at most `most` characters."""
    safe = printable_line(text)
    return safe if len(safe) <= most else f"{safe[: most * 2 // 3]}…{safe[-most // 4 :]}"


def lines(
    title: str, times: Sequence[datetime.datetime], series: Series, unit: str, *, is_count: bool = False
) -> bytes:
    """Draw lines over time; a value that is None is a gap.

    Args:
        title: Title of the picture.
        times: Times of the values.
        series: Values by name, in the order of the legend; the first `MAX_SERIES` are drawn.
        unit: Unit of the values, shown at the axis.
        is_count: Whether the values are counts at single moments, each of which is marked by a dot.
    """
    with _figure(5.0) as (figure, axes, png):
        for number, (name, values) in enumerate(list(series.items())[:MAX_SERIES]):
            points = np.array([np.nan if value is None else value for value in values], float)
            is_alone = bool(np.isfinite(points).sum() <= 1)
            axes.plot(
                date2num(list(times)),
                points,
                color=COLORS[number % len(COLORS)],
                linestyle=_DASHES[number // 2 % len(_DASHES)],
                linewidth=2,
                marker="o" if is_count or is_alone else None,
                markersize=4,
                label=label(name),
            )
        _finish(figure, axes, title, times, series, unit, is_count=is_count)
    return png.getvalue()


def columns(title: str, times: Sequence[datetime.datetime], series: Series, unit: str) -> bytes:
    """Draw counts in windows of time as stacked columns.

    Args:
        title: Title of the picture.
        times: Starts of the windows, which all have the same length.
        series: Counts by name; the first `MAX_SERIES` are drawn.
        unit: Unit of the counts.
    """
    with _figure(4.4) as (figure, axes, png):
        places = np.asarray(date2num(list(times)), np.float64)
        width = places[1] - places[0] if len(places) > 1 else 1 / 24
        below = np.zeros(len(places))
        for number, (name, values) in enumerate(list(series.items())[:MAX_SERIES]):
            counts = np.array([value or 0 for value in values], float)
            axes.bar(places, counts, width * 0.9, below, align="edge", color=COLORS[number], label=label(name))
            below += counts
        _finish(figure, axes, title, times, series, unit, is_count=True)
    return png.getvalue()


def _finish(
    figure: Figure,
    axes: Axes,
    title: str,
    times: Sequence[datetime.datetime],
    series: Series,
    unit: str,
    *,
    is_count: bool = False,
) -> None:
    """Add axes, title and legend to a picture over time."""
    _time_axis(axes, times)
    _number_axis(axes.yaxis, is_count=is_count)
    largest = max((value for values in series.values() for value in values if value is not None), default=0)
    # If all values are zero, Matplotlib would show fractions.
    axes.set_ylim(bottom=0, top=None if largest else 1)
    axes.set_ylabel(label(unit))
    axes.grid(visible=False, axis="x")
    more = f" (the largest {MAX_SERIES} of {len(series)})" if len(series) > MAX_SERIES else ""
    axes.set_title(label(title, _MAX_TITLE) + more)
    _legend(figure, axes)


def bars(title: str, values: Sequence[tuple[str, float, str]], unit: str, colors: Mapping[str, str]) -> bytes:
    """Draw horizontal bars, the first one on top.

    Args:
        title: Title of the picture.
        values: Names, values and kinds; the first `MAX_BARS` are drawn.
        unit: Unit of the values.
        colors: Colors of the kinds, which the legend names.
    """
    shown = values[:MAX_BARS]
    with _figure(1.5 + 0.34 * max(2, len(shown))) as (figure, axes, png):
        places = np.arange(len(shown))
        for kind, color in colors.items():
            of_kind = {place: value for place, (_, value, one) in enumerate(shown) if one == kind}
            if of_kind:
                drawn = axes.barh(list(of_kind), list(of_kind.values()), height=0.7, color=color, label=label(kind))
                axes.bar_label(drawn, labels=[f"{value:,.0f}" for value in of_kind.values()], padding=4)
        axes.set_yticks(places, [label(name) for name, _, _ in shown])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(max(2, len(shown)) - 0.5, -0.5)
        axes.margins(x=0.12)
        _number_axis(axes.xaxis, is_count=True)
        axes.set_xlabel(label(unit))
        axes.grid(visible=False, axis="y")
        more = f" (the first {MAX_BARS} of {len(values)})" if len(values) > MAX_BARS else ""
        axes.set_title(label(title, _MAX_TITLE) + more)
        _legend(figure, axes)
    return png.getvalue()


def heat_map(title: str, times: Sequence[datetime.datetime], series: Series, unit: str) -> bytes:
    """Draw a field for each name and time, darker for larger values; white is zero, grey is unknown.

    Args:
        title: Title of the picture.
        times: Times of the columns.
        series: Values by name, from the top; the first `MAX_BARS` are drawn.
        unit: Unit of the values.
    """
    names = list(series)[:MAX_BARS]
    values = np.array([[np.nan if value is None else value for value in series[name]] for name in names], float)
    with _figure(1.9 + 0.36 * max(1, len(names))) as (figure, axes, png):
        axes.set_facecolor("#ededed")
        axes.grid(visible=False)
        edges = _edges(times)
        values = values.reshape(len(names), len(times))
        largest = np.nanmax(values, initial=1.0)
        zeros = np.ma.masked_where(~(values == 0), np.zeros_like(values))
        rows = np.arange(len(names) + 1)
        axes.pcolormesh(edges, rows, zeros, cmap=mpl.colors.ListedColormap(["white"]), edgecolors="#ededed")
        shown = np.ma.masked_where(~(values > 0), values)
        mesh = axes.pcolormesh(
            edges, rows, shown, cmap=_HEAT, norm=LogNorm(1, max(largest, 10)), edgecolors="#ededed", linewidth=0.5
        )
        bar = figure.colorbar(mesh, ax=axes, pad=0.015, format=FuncFormatter(lambda value, _: number_text(value)))
        bar.set_label(label(unit))
        bar.minorticks_off()
        axes.set_yticks(np.arange(len(names)) + 0.5, [label(name) for name in names])
        axes.tick_params(axis="y", length=0)
        axes.invert_yaxis()
        _time_axis(axes, times)
        axes.set_title(f"{label(title, _MAX_TITLE)}: white is 0, grey is not known")
    return png.getvalue()


def _edges(times: Sequence[datetime.datetime]) -> Array:
    """Return the borders of the columns, which are half way between the times."""
    places = np.asarray(date2num(list(times)), np.float64)
    if len(places) < 2:
        middle = places[0] if len(places) else 0.0
        return np.array([middle - 1 / 48, middle + 1 / 48])[: len(places) + 1]
    middles = (places[1:] + places[:-1]) / 2
    return np.concatenate([[2 * places[0] - middles[0]], middles, [2 * places[-1] - middles[-1]]])


Place = tuple[str, datetime.datetime]
"""A lane and a time."""


def timeline(
    title: str, points: Sequence[tuple[str, datetime.datetime, str]], links: Sequence[tuple[Place, Place]]
) -> bytes:
    """Draw points in lanes on a time axis, and lines between them.

    Args:
        title: Title of the picture.
        points: Lanes, times and kinds; the first `MAX_BARS` lanes are drawn.
        links: Pairs of points that are joined by a line.
    """
    lanes = {lane: number for number, lane in enumerate(list(dict.fromkeys(lane for lane, _, _ in points))[:MAX_BARS])}
    times = sorted(moment for _, moment, _ in points)
    with _figure(1.8 + 0.36 * max(2, len(lanes))) as (figure, axes, png):
        for (lane, at), (other, after) in links:
            if lane in lanes and other in lanes:
                axes.plot(date2num([at, after]), [lanes[lane], lanes[other]], color="#9a9a9a", linewidth=1, zorder=1)
        for number, kind in enumerate(dict.fromkeys(kind for _, _, kind in points)):
            mine = [(moment, lanes[lane]) for lane, moment, one in points if one == kind and lane in lanes]
            color = COLORS[number % len(COLORS)]
            axes.scatter(
                date2num([at for at, _ in mine]),
                [lane for _, lane in mine],
                s=42,
                color=color,
                label=label(kind),
                zorder=2,
            )
        axes.set_yticks(range(len(lanes)), [label(lane) for lane in lanes])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(max(1, len(lanes)) - 0.4, -0.6)
        axes.margins(x=0.04)
        _time_axis(axes, times)
        more = f" (the first {MAX_BARS} lanes)" if len({lane for lane, _, _ in points}) > MAX_BARS else ""
        axes.set_title(label(title, _MAX_TITLE) + more)
        _legend(figure, axes)
    return png.getvalue()


def _time_axis(axes: Axes, times: Sequence[datetime.datetime]) -> None:
    if not times:
        axes.set_xticks([])
        axes.set_xlabel("nothing to show")
        return
    if min(times) == max(times):  # Matplotlib would show years around a single time
        axes.set_xlim(*(date2num(times[0] + hours) for hours in (-_AROUND, _AROUND)))
    locator = AutoDateLocator(minticks=4, maxticks=9, tz=datetime.UTC)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(
        ConciseDateFormatter(
            locator,
            tz=datetime.UTC,
            formats=["%Y", "%Y-%m", "%m-%d", "%H:%M", "%H:%M", "%S.%f"],
            zero_formats=["", "%Y", "%Y-%m", "%m-%d", "%H:%M", "%H:%M"],
            show_offset=False,
        )
    )
    first, last = (f"{moment.astimezone(datetime.UTC):%Y-%m-%d}" for moment in (times[0], times[-1]))
    axes.set_xlabel(f"{first}, UTC" if first == last else f"{first} to {last}, UTC", loc="right")


def _number_axis(axis: Axis, *, is_count: bool) -> None:
    axis.set_major_locator(MaxNLocator(6, integer=is_count))
    axis.set_major_formatter(FuncFormatter(lambda value, _: number_text(value)))


def number_text(value: float) -> str:
    """Format a number for an axis: `0.05`, `250`, `1.2 k`, `3 M`."""
    for factor, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:g} {unit}"
    return f"{value:g}"


def _legend(figure: Figure, axes: Axes) -> None:
    handles, names = axes.get_legend_handles_labels()
    if names:
        figure.legend(handles, names, loc="outside lower left", ncols=min(4, len(names)))


@contextmanager
def _figure(height: float) -> Iterator[tuple[Figure, Axes, io.BytesIO]]:
    """Open a figure with one pair of axes, and write it as PNG at the end."""
    png = io.BytesIO()
    fonts = set(font_manager.get_font_names())
    families = ["DejaVu Sans", *(name for name in _ASIAN_FONTS if name in fonts)]
    with mpl.rc_context({**_STYLE, "font.family": families}), warnings.catch_warnings():
        # Characters that no installed font has are shown as boxes; the table beside the picture has the name.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support", category=UserWarning)
        figure = Figure(figsize=(11, height), dpi=110, layout="constrained")
        axes = figure.add_subplot()
        yield figure, axes, png
        figure.savefig(png, format="png")
