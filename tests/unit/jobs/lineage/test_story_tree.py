"""Tests of the tree of a story: its width, its lines, and escaped control characters."""

from __future__ import annotations

import io
from itertools import pairwise

import pytest
from rich.cells import cell_len

from commitlake.jobs.lineage.story_tree import tree_lines, write_tree
from commitlake.pipelines.lineage.message_history import Evidence, Outcome, OutcomeState, Story
from tests.support.stories import edge, hostile_story, many_messages, order_story, record_step


def drawn(story: Story, width: int) -> list[str]:
    return [line.plain for line in tree_lines(story, width)]


def test_a_step_is_drawn_below_the_step_that_caused_it() -> None:
    lines = [line for line in drawn(order_story(), 500) if set("─●↓") & set(line)]
    assert [line.split(": ")[0] for line in lines[:8]] == [
        "14:00:00.120           ● half message of a transaction, for orders",
        "14:00:00.430   310 ms  ├─ transaction committed",
        "14:00:00.432   312 ms  └─ committed to orders",
        "14:00:00.470    38 ms     ├─ consumed by audit",
        "14:00:00.480    48 ms     ├─ failed in billing",
        "14:00:00.540   108 ms     └─ waits in level 3 for the first retry of billing",
        "14:00:10.550     10 s        ↓ first retry of billing",
        "14:00:10.620    70 ms        ├─ failed in billing",
    ]


@pytest.mark.parametrize("width", [40, 59, 60, 80, 200])
@pytest.mark.parametrize("story", [order_story(), hostile_story(), many_messages(50)])
def test_no_line_is_wider_than_the_terminal(story: Story, width: int) -> None:
    for line in drawn(story, width):
        assert cell_len(line) <= width


def test_a_chain_of_retries_is_not_indented() -> None:
    steps = [record_step(number, number, "t", f"step {number}") for number in range(40)]
    edges = [edge("retried", before, after) for before, after in pairwise(steps)]
    lines = [line for line in drawn(Story("key k", None, steps, edges, []), 80) if "↓" in line]
    assert len(lines) == 39
    assert {line.index("↓") for line in lines} == {23}


def test_outcomes_and_cautions_are_printed() -> None:
    text = "\n".join(drawn(order_story(), 500))
    assert "Outcomes\n  • committed to orders, 14:00:00.432: consumed by audit at the first try" in text
    assert "Not known\n  • the groups' offsets were last taken 12 min before" in text


def test_many_equal_outcomes_are_one_line_with_their_count() -> None:
    steps = [record_step(number, number, "orders", "sent to orders") for number in range(9)]
    outcomes = [
        Outcome(
            step.id, OutcomeState.DEAD if number == 4 else OutcomeState.PASSED, f"text {number}", Evidence.OFFSETS, "g"
        )
        for number, step in enumerate(steps)
    ]
    lines = drawn(Story("key k", None, steps, [], outcomes), 200)
    told = lines[lines.index("Outcomes") + 1 :]
    assert len(told) == 2
    assert told[0].startswith("  • 8 messages sent to orders, ")
    assert told[0].endswith(": passed (g)")
    assert told[1].endswith(": text 4")


def test_a_terminal_without_unicode_gets_plain_signs() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii", errors="strict")
    write_tree(order_story(), out, width=90)
    out.flush()
    assert b"|- transaction committed" in raw.getvalue()


def test_hostile_texts_are_escaped() -> None:
    out = io.StringIO()
    write_tree(hostile_story(), out, width=100)
    assert not {"\x1b", "\u202e", "\x00"} & set(out.getvalue())
