"""Tests of the graph: a line for each row and each long gap, nodes in their lanes, edges from node to node."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pytest

from commitlake.jobs.lineage.picture import story_graph as module
from commitlake.jobs.lineage.picture.lanes import assign_lanes
from commitlake.jobs.lineage.picture.picture_rows import choose_picture_rows
from commitlake.jobs.lineage.picture.story_graph import CHUNK, day_text, make_graph_lines, story_graph_html
from commitlake.pipelines.lineage.message_history import Story
from tests.support.html_pages import Element, parse_page
from tests.support.stories import edge, many_messages, order_story, record_step


def drawn(story: Story, most: int = 1000) -> tuple[Element, int]:
    rows = choose_picture_rows(story, most)
    found, left_out = story_graph_html(story, rows, assign_lanes(rows.rows))
    return parse_page(found), left_out


def test_steps_are_links_to_their_details_in_the_order_of_the_story() -> None:
    story = order_story()
    links = drawn(story)[0].all("a")
    assert [link.attributes["href"] for link in links] == [f"#step-{number}" for number in range(1, 14)]
    assert [link.all("b")[0].all("bdi")[0].text for link in links] == [step.title for step in story.steps]
    assert [link.of_class("where")[0].all("bdi")[0].text for link in links] == [step.lane for step in story.steps]
    assert links[2].all("time")[0].text == "14:00:00.432"
    assert [link.of_class("since")[0].text for link in links[:3]] == ["", "+310 ms", "+2 ms"]
    assert "time unknown" in links[-1].text


def test_long_gaps_and_new_days_have_separate_lines() -> None:
    lines = make_graph_lines(choose_picture_rows(order_story()).rows)
    assert [line.gap for line in lines if line.row is None] == ["Fri 20 Nov 2026", "1.1 d later · Sat 21 Nov 2026"]


def test_days_are_in_utc_from_the_year_1_on() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=2))
    assert day_text(datetime.datetime(2026, 11, 21, 1, 30, tzinfo=zone)) == "Fri 20 Nov 2026"
    assert day_text(datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)) == "Mon 1 Jan 1"


def test_nodes_are_in_their_lanes_at_the_height_of_their_line() -> None:
    root, _ = drawn(order_story())
    nodes = [rail.of_class("glyph") for rail in root.of_class("rail")]
    assert [node.attributes["href"] for node in nodes[0][:4]] == [
        "#glyph-half", "#glyph-op", "#glyph-normal", "#glyph-consumption",
    ]  # fmt: skip
    # 15 lines, of which two are gaps: a chunk of 8 and one of 7. Nine lanes; the two messages share a track.
    places = [(rail[at].attributes["x"], rail[at].attributes["y"]) for rail, at in zip(nodes, (0, -1), strict=True)]
    assert places == [("5.5556%", "18.75%"), ("72.222%", "92.857%")]


def test_edges_begin_and_end_at_their_nodes() -> None:
    story = order_story()
    root, left_out = drawn(story)
    paths = {path.attributes["d"]: path.attributes["class"] for path in root.of_class("edge")}
    assert (len(paths), left_out) == (len(story.edges), 0)
    assert "M56,150C56,200 167,200 167,250" in paths  # half message to its op record, in the next line
    assert "M56,150V250C56,300 278,300 278,350" in paths  # down its own lane, then across
    looks = list(paths.values())
    assert looks.count("edge client") == 4
    assert {"edge bad", "edge dead", "edge wait", "edge again", "edge plain"} < set(looks)


def test_an_edge_to_an_earlier_step_is_marked() -> None:
    story = order_story()
    back = edge("delayed", story.steps[-1], story.steps[0])
    paths = drawn(replace(story, edges=[*story.edges, back]))[0].of_class("back")
    assert {path.attributes["d"] for path in paths} == {"M722,1450C722,800 56,800 56,150"}


def test_an_edge_is_drawn_in_each_chunk_that_it_goes_through() -> None:
    steps = [record_step(number, number, "orders", "sent") for number in range(4 * CHUNK)]
    story = Story("key k", None, steps, [edge("delayed", steps[0], steps[-1])], [])
    chunks = drawn(story)[0].of_class("chunk")
    assert [len(chunk.of_class("edge")) for chunk in chunks] == [1] * len(chunks)
    assert sum(len(chunk.all("li")) for chunk in chunks) == 4 * CHUNK + 1


def test_the_longest_edges_are_left_out_if_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PARTS", 3)
    steps = [record_step(number, number, "orders", "sent") for number in range(3 * CHUNK)]
    edges = [edge("delayed", steps[0], steps[-1]), *(edge("delayed", steps[at], steps[at + 1]) for at in range(3))]
    root, left_out = drawn(Story("key k", None, steps, edges, []))
    assert (len(root.of_class("edge")), left_out) == (3, 1)


def test_folded_steps_are_a_line_with_their_number() -> None:
    root, _ = drawn(many_messages(200), 20)
    folded = root.of_class("is-folded")
    numbers = [int(line.of_class("what")[0].text.split()[0]) for line in folded]
    assert sum(numbers) == 380
    assert len(root.all("a")) == 20


def test_lanes_are_named_and_long_names_are_cut() -> None:
    names = ["short", "x" * 500, "\u202e" * 500, ""]
    steps = [record_step(number, number, name, "sent") for number, name in enumerate(names)]
    root, _ = drawn(Story("key k", None, steps, [], []))
    shown = [text.text for text in root.of_class("lane-name")]
    assert shown == ["short", "x" * 25 + "…", ("\\u202e" * 5)[:25] + "…", "unknown"]
    assert root.of_class("longest-26")
    assert drawn(Story("key k", None, steps[:1], [], []))[0].of_class("longest-10")
