"""Tests of the overview: positions are to scale, large gaps are named."""

from __future__ import annotations

import datetime

import pytest

from commitlake.jobs.lineage.picture.lanes import assign_lanes
from commitlake.jobs.lineage.picture.picture_rows import choose_picture_rows
from commitlake.jobs.lineage.picture.timeline_overview import overview_html
from commitlake.pipelines.lineage.message_history import Story
from tests.support.html_pages import Element, parse_page
from tests.support.stories import edge, many_messages, order_story, record_step


def drawn(story: Story) -> Element:
    rows = choose_picture_rows(story)
    return parse_page(overview_html(story, rows, assign_lanes(rows.rows)))


def test_distances_are_proportional_to_times() -> None:
    steps = [record_step(at, at, "orders", "sent") for at in (0, 25, 100)]
    edges = [edge("delayed", steps[0], steps[1])]
    root = drawn(Story("key k", None, steps, edges, []))
    places = [float(node.attributes["x"].rstrip("%")) for node in root.of_class("glyph")]
    assert (places[1] - places[0]) / (places[2] - places[0]) == pytest.approx(0.25, abs=1e-4)
    (line,) = root.of_class("edge")
    assert float(line.attributes["x1"].rstrip("%")) == places[0]
    assert float(line.attributes["x2"].rstrip("%")) == places[1]


def test_large_gaps_are_named() -> None:
    assert [text.text for text in drawn(order_story()).of_class("halo")] == ["1.1 d"]


def test_nodes_refer_to_their_steps_and_lanes_are_named() -> None:
    story = order_story()
    root = drawn(story)
    numbers = [int(node.attributes["data-row"]) for node in root.of_class("glyph")]
    assert numbers == [number for number, step in enumerate(story.steps, 1) if step.at is not None]
    assert [item.text for item in root.all("li")][:3] == [
        "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "orders",
    ]  # fmt: skip


def test_a_story_with_fewer_than_two_times_has_no_axis() -> None:
    one = record_step(1, 0, "orders", "sent")
    for steps in ([], [one], [one, record_step(2, None, "orders", "sent")]):
        assert drawn(Story("key k", None, steps, [], [])).inner == []


def test_times_at_both_ends_of_the_calendar_have_an_axis() -> None:
    ends = [record_step(1, 0, "a", "sent"), record_step(2, 7_900 * 365 * 86_400, "a", "sent")]
    assert ends[1].at is not None
    assert ends[1].at > datetime.datetime(9000, 1, 1, tzinfo=datetime.UTC)
    assert 0 < len(drawn(Story("key k", None, ends, [], [])).of_class("axis")) < 20


def test_in_a_dense_overview_only_problem_steps_keep_their_shapes() -> None:
    root = drawn(many_messages(300))
    marks = root.of_class("glyph")
    assert len(marks) == 600
    assert {one.name for one in marks if "dlq" not in one.attributes["class"]} == {"circle"}
    assert [one.name for one in marks if "dlq" in one.attributes["class"]] == ["use"] * 3
    assert root.of_class("is-dense")
    assert not drawn(order_story()).of_class("is-dense")
