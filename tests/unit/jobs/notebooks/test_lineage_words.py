"""Tests of the text about stories and graphs: sentences and rows match the objects."""

from __future__ import annotations

import datetime
from pathlib import Path

from commitlake.jobs.notebooks import lineage_words as words
from commitlake.pipelines.lineage.story import Story
from commitlake.pipelines.lineage.topic_graph import TopicGraph, TopicLink, TopicNode
from tests.support.lineage_lakes import at, make_lake, record
from tests.support.stories import order_story

SECOND = datetime.timedelta(seconds=1)
GRAPH = TopicGraph(
    at(0), at(60), [TopicNode("orders", 9, 3), TopicNode("payments", 2, 2)],
    [
        TopicLink("orders", "payments", 5, 3, SECOND, 2 * SECOND),
        TopicLink("payments", "orders", 1, 1, 90 * SECOND, SECOND),
    ],
    1,
)  # fmt: skip


def test_a_story_is_summed_up() -> None:
    sentences = list(words.answer(order_story()))
    assert sentences[0] == "key order-4711: 13 steps; 2 consumed, 1 redriven, 1 waiting."
    assert sentences[1] == "Consumed by audit at the first try, 38 ms after it was sent."
    assert list(words.answer(Story("key k", None, [], [], []))) == ["No message in the lake has key k."]


def test_rows_have_steps_as_a_tree_and_each_outcome() -> None:
    rows = list(words.step_rows(order_story()))
    assert [row["step"] for row in rows[:4]] == [
        "half message of a transaction, for orders", "  transaction committed", "  committed to orders",
        "    consumed by audit",
    ]  # fmt: skip
    assert [row["now"] for row in words.outcome_rows(order_story())] == ["consumed", "redriven", "consumed", "waiting"]
    assert list(words.limits(order_story())) == list(order_story().cautions)


def test_a_graph_is_summed_up() -> None:
    assert list(words.flow(GRAPH)) == [
        "3 links between 2 topics with keys.",
        "Most keys pass from orders to payments: 5 times, with a median of 1 s.",
        "The slowest pass is from payments to orders, with a median of 1.5 min.",
    ]
    assert [row["passes"] for row in words.link_rows(GRAPH)] == [5, 1]
    assert [row["topic"] for row in words.topic_rows(GRAPH)] == ["orders", "payments"]


def test_pictures_are_drawn() -> None:
    assert words.picture_of_story(order_story()).startswith(b"\x89PNG")
    assert words.picture_of_flow(GRAPH).startswith(b"\x89PNG")


def test_the_default_day_ends_with_the_newest_message(tmp_path: Path) -> None:
    lake = make_lake(tmp_path, [record(1, 0, "orders"), record(2, 60, "orders")])
    start, end = words.last_day(lake, None, None)
    assert end == at(60) + datetime.timedelta(milliseconds=1)
    assert end - start == datetime.timedelta(days=1)
    assert words.last_day(lake, at(1), at(2)) == (at(1), at(2))
