"""Tests of Mermaid diagrams: every step and edge is drawn, texts are escaped, and limits are kept and stated."""

from __future__ import annotations

import re
from dataclasses import replace

from commitlake.jobs.lineage.picture.mermaid import MAX_CHARACTERS, MAX_EDGES, MAX_STEPS, story_flowchart
from commitlake.pipelines.lineage.message_history import Edge, Story
from tests.support.stories import hostile_story, many_messages, order_story, record_step

NODE = re.compile(
    r'  \w+(?:\[|\(\[|\[/|\[\[|\[\\|\{\{|>|\[\(|\(|\(\(|\(\(\()"[^"`<>\[\]{}|\\]*"'
    r"(?:\]|\]\)|/\]|\]\]|\\\]|\}\}|\)\]|\)|\)\)|\)\)\))(?::::\w+)?"
)
EDGE = re.compile(r'  s\d+ -- "[^"`<>\[\]{}|\\]*" --> s\d+')


def parts(text: str) -> tuple[list[str], list[str]]:
    """Return the lines with nodes and those with edges, after checking that all other lines are known."""
    head, *lines = text.splitlines()
    assert head == "flowchart TD"
    nodes = [line for line in lines if NODE.fullmatch(line)]
    edges = [line for line in lines if EDGE.fullmatch(line)]
    others = [line for line in lines if line not in {*nodes, *edges}]
    assert all(line.startswith("  classDef ") for line in others), others
    return nodes, edges


def test_every_step_and_edge_is_drawn() -> None:
    story = order_story()
    nodes, edges = parts(story_flowchart(story))
    assert len(nodes) == len(story.steps) + 1
    assert len(edges) == len(story.edges)
    assert nodes[0] == '  asked>"key order-4711"]'
    assert nodes[9] == '  s9[["2026-11-20 14:00:10 dead letter of billing"]]:::bad'
    assert edges[-1] == '  s12 -- "due" --> s13'
    assert '  s1 -- "310 ms: transaction committed" --> s2' in edges


def test_hostile_texts_cannot_end_their_labels() -> None:
    text = story_flowchart(hostile_story())
    nodes, edges = parts(text)
    assert len(nodes) == 15  # asked, 13 steps, and that 12 records are not there
    assert len(edges) == 13
    assert "%%" not in text
    assert text.count("\n") == len(text.splitlines())


def test_a_label_is_cut_and_its_special_characters_are_entities() -> None:
    step = record_step(1, 0, "orders", 'a"b#c`<d>' + "x" * 500)
    nodes, _ = parts(story_flowchart(Story("k", None, [step], [], [])))
    assert nodes[1].startswith('  s1["2026-11-20 14:00:00 a#34;b#35;c#96;#60;d#62;xxx')
    assert nodes[1].count("x") == 70 - len('a"b#c`<d>')
    assert nodes[1].endswith('#8230;"]')


def test_a_large_story_is_folded_to_the_limits_of_mermaid() -> None:
    story = many_messages(4_000)
    text = story_flowchart(replace(story, not_shown=10))
    nodes, edges = parts(text)
    assert len(text) < MAX_CHARACTERS
    assert len(edges) <= MAX_EDGES
    assert sum('"]' in node and "steps folded" not in node for node in nodes) <= MAX_STEPS + 2
    folded = sum(int(match.replace(",", "")) for match in re.findall(r"([\d,]+) steps folded", text))
    assert folded == len(story.steps) - MAX_STEPS
    assert '  more>"10 more steps are not drawn"]' in nodes


def test_more_edges_than_fit_are_counted() -> None:
    steps = [record_step(number, number, "orders", "sent") for number in range(40)]
    edges = [Edge("delayed", one.id, other.id, None, "x") for one in steps for other in steps if one is not other]
    nodes, drawn = parts(story_flowchart(Story("k", None, steps, edges, [])))
    assert len(drawn) == MAX_EDGES
    assert f'  edges>"{len(edges) - MAX_EDGES:,} more edges are not drawn"]' in nodes


def test_long_labels_of_many_steps_stay_within_the_limit() -> None:
    steps = [record_step(number, number, "orders", "\u202e" * 500) for number in range(MAX_STEPS)]
    edges = [Edge("delayed", steps[0].id, step.id, None, "\U0001f4a9" * 500) for step in steps]
    text = story_flowchart(Story("\x00" * 500, None, steps, edges, []))
    parts(text)
    assert len(text) < 50_000
