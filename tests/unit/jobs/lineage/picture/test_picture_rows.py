"""Tests of rows: all steps of a small story; whole messages of a larger one, those with problems first."""

from __future__ import annotations

import itertools
from dataclasses import replace

from commitlake.jobs.lineage.picture.picture_rows import choose_picture_rows
from commitlake.pipelines.lineage.message_history import Story
from tests.support.stories import edge, many_messages, order_story, record_step


def test_a_small_story_has_a_row_for_each_step() -> None:
    story = order_story()
    found = choose_picture_rows(story)
    assert [row.step.id for row in found.rows] == [step.id for step in story.steps]
    assert [row.number for row in found.rows] == list(range(1, len(story.steps) + 1))
    assert (found.folded, found.messages) == (0, 2)
    assert {row.message for row in found.rows[:11]} == {0}
    assert {row.message for row in found.rows[11:]} == {1}


def test_messages_with_problems_are_drawn_first_and_the_rest_is_counted() -> None:
    story = many_messages(400)
    found = choose_picture_rows(story, 20)
    drawn = [row for row in found.rows if not row.is_folded]
    dead = {outcome.step for outcome in story.outcomes if outcome.state == "dead"}
    assert len(drawn) == 20
    assert dead <= set(found.row_of)
    assert story.steps[-1].id in found.row_of
    assert [row.number for row in drawn] == list(range(1, 21))
    assert sum(len(row.steps) for row in found.rows if row.is_folded) == found.folded == len(story.steps) - 20
    assert [step.id for row in found.rows for step in row.steps] == [step.id for step in story.steps]
    whole = {row.message for row in drawn}
    assert all(sum(row.message == message for row in drawn) == 2 for message in whole)


def test_beginning_and_end_of_a_message_with_too_many_steps_are_drawn() -> None:
    steps = [record_step(number, number, "orders", f"try {number}") for number in range(5_000)]
    edges = [edge("retried", before, after) for before, after in itertools.pairwise(steps)]
    found = choose_picture_rows(Story("key k", None, steps, edges, []), 10)
    assert [len(row.steps) for row in found.rows] == [1] * 5 + [4_990] + [1] * 5
    assert found.messages == 1


def test_cycles_and_edges_to_missing_steps_are_accepted() -> None:
    story = order_story()
    first, last = story.steps[0], story.steps[-1]
    edges = [*story.edges, edge("delayed", last, first), edge("dead", first, first)]
    lost = replace(edges[0], source="nowhere")
    assert choose_picture_rows(replace(story, edges=[*edges, lost])).messages == 1
