"""Tests that pictures can be drawn with any names and figures."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from commitlake.jobs.notebooks import plots

HOSTILE = (
    r"$\nosuchcommand{$",
    "$x^2",
    "\x1b[31mred",
    "\u202eabc",
    "北京",
    "\N{ARABIC LETTER ALEF}",
    "x" * 5000,
    "",
    "_hidden",
    "a\nb",
)
START = datetime.datetime(2026, 1, 5, tzinfo=datetime.UTC)
TIMES = [START + datetime.timedelta(hours=hour) for hour in range(4)]


def is_png(data: bytes) -> bool:
    return data.startswith(b"\x89PNG\r\n\x1a\n") and len(data) > 1000


def test_any_name_can_be_drawn() -> None:
    """The names are labels, titles and units of every kind of picture."""
    series: dict[str, list[float | None]] = {name: [0.0, None, 2.0, 3.5] for name in HOSTILE}
    for title in (HOSTILE[0], HOSTILE[6]):
        assert is_png(plots.lines(title, TIMES, series, title))
    assert is_png(plots.heat_map(HOSTILE[0], TIMES, series, HOSTILE[0]))
    assert is_png(plots.columns(HOSTILE[0], TIMES, series, HOSTILE[0]))
    colors = dict(zip(HOSTILE, plots.COLORS * 2, strict=False))
    assert is_png(plots.bars(HOSTILE[0], [(name, 3, name) for name in HOSTILE], HOSTILE[0], colors))


def test_any_figure_can_be_drawn() -> None:
    figures: tuple[float | None, ...] = (None, 0.0, 1e15, 1e-9)
    series = {str(figure): [figure] * 4 for figure in figures}
    assert is_png(plots.lines("x", TIMES, series, "y"))
    assert is_png(plots.columns("x", TIMES, series, "y"))
    assert is_png(plots.heat_map("x", TIMES, series, "y"))


def test_one_time_and_no_series_can_be_drawn() -> None:
    assert is_png(plots.lines("x", TIMES[:1], {"a": [1.0]}, "y"))
    assert is_png(plots.heat_map("x", TIMES[:1], {"a": [1.0]}, "y"))
    assert is_png(plots.columns("x", [], {}, "y"))
    assert is_png(plots.heat_map("x", [], {}, "y"))
    assert is_png(plots.bars("x", [], "y", {}))


def test_a_long_name_is_shortened_in_its_middle() -> None:
    shown = plots.label("begin" + "x" * 500 + "end")
    assert len(shown) <= plots.MAX_LABEL + 1
    assert shown.startswith("begin")
    assert shown.endswith("end")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.05, "0.05"), (250, "250"), (1200, "1.2 k"), (3e6, "3 M"), (2e9, "2 G"), (1e12, "1 T")],
)
def test_numbers_at_an_axis_are_short(value: float, text: str) -> None:
    assert plots.number_text(value) == text


def test_a_timeline_with_any_names_can_be_drawn() -> None:
    start = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)
    points = [(f"$\\frac{{{n}}}$\x1b", start + datetime.timedelta(seconds=n), f"kind {n % 9}") for n in range(60)]
    links = [((points[0][0], points[0][1]), (points[1][0], points[1][1])), ((points[59][0], start), ("none", start))]
    assert is_png(plots.timeline("key \u202e", points, links))
    assert is_png(plots.timeline("nothing", [], []))


@pytest.mark.parametrize("values", [[0.0], [7.0]])
def test_axes_of_a_single_count_are_narrow_and_have_whole_numbers(
    values: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a lake with one run, an axis has neither years around it nor fractions."""
    seen = []
    finish = plots._finish

    def look(figure: Figure, axes: Axes, *arguments: Any, **named: Any) -> None:
        finish(figure, axes, *arguments, **named)
        seen.append((axes.get_xlim(), axes.get_ylim(), axes.get_yticks()))

    monkeypatch.setattr(plots, "_finish", look)
    plots.lines("x", TIMES[:1], {"a": values}, "y", is_count=True)
    ((first, last), (bottom, top), ticks) = seen[0]
    assert last - first < 2  # days
    assert bottom == 0
    assert top >= 1
    assert all(tick == int(tick) for tick in ticks)
