"""Tests of shapes: one for each kind of step, different not only by colour."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commitlake.jobs.lineage.picture import step_shapes
from commitlake.jobs.lineage.picture.step_shapes import (
    BEGUN,
    FAILED,
    FOLDED,
    glyph_definitions_html,
    glyph_legend_html,
    glyph_meaning,
    glyph_name_of,
)
from commitlake.pipelines.lineage.message_history import StepKind
from tests.support.html_pages import parse_page
from tests.support.stories import consumed, record_step

ALL = (*StepKind, FAILED, BEGUN, FOLDED)


def test_every_kind_has_a_unique_shape_and_a_unique_word() -> None:
    shapes = {shape.attributes["id"]: shape for shape in parse_page(glyph_definitions_html(ALL)).all("g")}
    assert set(shapes) == {f"glyph-{name}" for name in ALL}
    drawn = [str([(one.name, one.attributes) for one in shape.inner]) for shape in shapes.values()]
    assert len(set(drawn)) == len(ALL)
    assert len({glyph_meaning(name) for name in ALL}) == len(ALL)


def test_a_legend_names_its_shapes() -> None:
    entries = parse_page(glyph_legend_html([StepKind.RETRY, FAILED])).all("li")
    assert [entry.text for entry in entries] == ["retry", "tried without success"]


@pytest.mark.parametrize(("succeeded", "name"), [(True, StepKind.CONSUMPTION), (False, FAILED), (None, BEGUN)])
def test_the_shape_of_a_consumption_follows_from_its_result(succeeded: bool | None, name: str) -> None:
    step = consumed("c", 0, "billing", 1)
    assert step.consumption is not None
    assert glyph_name_of(replace(step, consumption=replace(step.consumption, succeeded=succeeded))) == name


def test_the_shape_of_other_steps_follows_from_their_kind() -> None:
    assert glyph_name_of(record_step(1, 0, "orders", "sent", StepKind.TIMER)) is StepKind.TIMER


def test_edges_of_unknown_kinds_have_a_plain_line() -> None:
    assert (step_shapes.edge_css_class("dead"), step_shapes.edge_css_class("</svg>")) == ("dead", "plain")
