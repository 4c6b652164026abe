"""Tests of charts: numbers are as given, gaps stay gaps, ticks are round."""

from __future__ import annotations

import datetime
import re

import pytest

from commitlake.jobs.report.chart_axes import MAX_TIME_TICKS, AxisScale, time_ticks
from commitlake.jobs.report.charts import heat_map_html, line_chart_html, sparkline_html
from commitlake.schemas.report import (
    NO_FIGURE,
    HeatMap,
    LineChart,
    Mark,
    MarkKind,
    Series,
    Sparkline,
)
from commitlake.schemas.times import TimeWindows
from tests.support.html_pages import parse_page, table_of

NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)
WINDOWS = TimeWindows(NOON, MINUTE, 5)


def test_a_gap_breaks_the_line_and_is_not_zero() -> None:
    marks = [Mark(MarkKind.MISSING, NOON + 2 * MINUTE, NOON + 3 * MINUTE, "not archived")]
    root = parse_page(
        line_chart_html(LineChart("Rates", WINDOWS, [Series("a", [1, 2, None, 0, 4])], "{:g}".format, marks))
    )
    path = root.of_class("s0")[-1].attributes["d"]
    assert [len(re.findall(r"[\d.]+,[\d.]+", stretch)) for stretch in path.split("M")[1:]] == [2, 2]
    assert table_of(root)[1:] == [
        ["2026-11-20 12:00", "1", ""],
        ["2026-11-20 12:01", "2", ""],
        ["2026-11-20 12:02", NO_FIGURE, "not archived"],
        ["2026-11-20 12:03", "0", ""],
        ["2026-11-20 12:04", "4", ""],
    ]
    mark = root.of_class("missing")[1]  # the first one is in the legend
    assert (mark.attributes["x"], mark.attributes["width"]) == ("40%", "20%")


def test_a_single_value_between_gaps_is_a_dot() -> None:
    root = parse_page(line_chart_html(LineChart("Rates", WINDOWS, [Series("a", [None, 5, None, None, None])], str)))
    dot = root.of_class("s0")[-1]
    assert (dot.attributes["class"], dot.attributes["d"][-2:]) == ("line dot s0", "h0")  # wide enough to be seen


def test_points_are_at_the_positions_of_their_values() -> None:
    root = parse_page(line_chart_html(LineChart("Rates", WINDOWS, [Series("a", [0, 100, 50, 0, 0])], str)))
    assert root.of_class("s0")[-1].attributes["d"].startswith("M100.0,230.0L300.0,0.0 500.0,115.0")


def test_bands_have_a_gap_where_either_line_has_one() -> None:
    series = [Series("p50", [1, None, 1, 1, 1]), Series("p99", [9, 9, 9, None, 9])]
    root = parse_page(line_chart_html(LineChart("Latency", WINDOWS, series, str, is_log=True, has_bands=True)))
    assert root.of_class("band")[0].attributes["d"].count("z") == 3


def test_a_heat_map_has_no_colour_for_missing_values() -> None:
    row = Series("<b>", [0, 12, 15, None, 100_000], "now")
    root = parse_page(heat_map_html(HeatMap("Behind", WINDOWS, [row])))
    (strip,) = root.of_class("strip")
    drawn = [[rect.attributes[name] for name in ("x", "width", "class")] for rect in strip.of_class("heat")]
    assert drawn == [["0", "1", "heat h0"], ["1", "2", "heat h2"], ["4", "1", "heat h6"]]
    assert "no figures in 1 of 5 windows" in strip.attributes["aria-label"]
    assert [line[1] for line in table_of(root)] == ["<b>", "0", "12", "15", NO_FIGURE, "100,000"]


def test_a_chart_without_values_is_drawn() -> None:
    nothing: list[float | None] = [None] * 5
    root = parse_page(
        line_chart_html(LineChart("Rates", WINDOWS, [Series("a", nothing)], has_bands=True))
        + sparkline_html(Sparkline("", nothing))
    )
    assert not root.all("path")


@pytest.mark.parametrize(
    ("values", "ticks"),
    [([], [0, 0.5, 1]), ([0.3], [0, 0.1, 0.2, 0.3]), ([95], [0, 50, 100]), ([8_000], [0, 2000, 4000, 6000, 8000])],
)
def test_ticks_are_round_and_cover_all_values(values: list[float], ticks: list[float]) -> None:
    assert AxisScale.for_values(values).tick_values() == pytest.approx(ticks)


def test_a_logarithmic_scale_has_a_place_for_zero() -> None:
    scale = AxisScale.for_values([0, 950], is_log=True)
    assert scale.tick_values() == [0, 10, 100, 1000]
    assert AxisScale.for_values([70], is_log=True).tick_values() == [0, 1, 10, 100]
    assert (scale.position_of(0), scale.position_of(1000)) == (0, 1)


@pytest.mark.parametrize("minutes", [1, 7, 60, 600, 1440, 10_000, 50_000, 600_000, 5_000_000])
def test_time_ticks_are_few(minutes: int) -> None:
    ticks = list(time_ticks(NOON, NOON + minutes * MINUTE))
    assert 1 <= len(ticks) <= MAX_TIME_TICKS + 1
    assert all(0 <= tick.place <= 1 for tick in ticks)


def test_a_phone_shows_only_the_time_labels_that_name_days() -> None:
    windows = TimeWindows(NOON.replace(hour=3), datetime.timedelta(hours=1), 72)
    root = parse_page(line_chart_html(LineChart("Rates", windows, [Series("a", [1] * 72)])))
    labels = [one for one in root.of_class("axis") if one.attributes.get("y") and one.text[-1:].isalnum()]
    shown = [one.text for one in labels if "wide-only" not in one.attributes["class"]]
    assert [text for text in shown if " " in text or ":" in text] == ["21 Nov", "22 Nov", "23 Nov"]
