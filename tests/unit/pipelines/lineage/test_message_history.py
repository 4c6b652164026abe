"""The tree of a story: each step once, in time order, for any edges."""

from __future__ import annotations

import datetime

from commitlake.pipelines.lineage.message_history import Edge, Step, StepKind, Story

START = datetime.datetime(2026, 11, 20, 14, 0, tzinfo=datetime.UTC)
SECOND = datetime.timedelta(seconds=1)


def a_step(name: str, second: int | None) -> Step:
    at = None if second is None else START + second * SECOND
    return Step(name, StepKind.NORMAL, at, "orders", name, name)


def a_story(steps: str, *edges: str) -> Story:
    """Return a story of steps, one letter each and a second apart, and of edges, two letters each."""
    made = [a_step(name, second) for second, name in enumerate(steps)]
    return Story(
        asked="key k",
        as_of=START,
        steps=made,
        edges=[Edge("retry", edge[0], edge[1], SECOND, "retried") for edge in edges],
        outcomes=(),
    )


def drawn(story: Story, depth: int | None = None) -> list[str]:
    """Return a line for each branch: dots for depth, the step, * if shown before, + and a number for hidden steps."""
    return [
        "." * branch.depth + branch.step.id + "*" * branch.again + (f"+{branch.cut}" if branch.cut else "")
        for branch in story.iterate_tree_lines(depth)
    ]


def test_tree_shows_each_step_below_its_cause() -> None:
    assert drawn(a_story("abcd", "ab", "bd", "ac")) == ["a", ".b", "..d", ".c"]


def test_step_with_two_sources_is_shown_again_without_its_successors() -> None:
    assert drawn(a_story("abcd", "ac", "bc", "cd")) == ["a", ".c", "..d", "b", ".c*"]


def test_circle_begins_with_its_earliest_step() -> None:
    assert drawn(a_story("abcx", "ab", "bc", "ca")) == ["x", "a", ".b", "..c", "...a*"]


def test_edge_to_itself_hides_no_step() -> None:
    assert drawn(a_story("a", "aa")) == ["a", ".a*"]


def test_depth_cuts_branches_and_counts_the_hidden_steps() -> None:
    story = a_story("abcde", "ab", "bc", "bd", "de")
    assert drawn(story, 1) == ["a", ".b+2"]
    assert drawn(story, 0) == ["a+1"]
    assert drawn(story, 3) == ["a", ".b", "..c", "..d", "...e"]


def test_step_below_a_cut_is_shown_if_another_path_reaches_it() -> None:
    assert drawn(a_story("abxc", "ab", "bc", "xc"), 1) == ["a", ".b+1", "x", ".c"]


def test_circle_below_a_cut_is_not_a_separate_tree() -> None:
    assert drawn(a_story("abcd", "ab", "bc", "cd", "dc"), 1) == ["a", ".b+1"]


def test_chain_may_be_longer_than_the_stack() -> None:
    count = 20_000
    steps = [a_step(str(number), number) for number in range(count)]
    edges = [Edge("retry", str(number), str(number + 1), SECOND, "") for number in range(count - 1)]
    story = Story("key k", START, steps, edges, ())
    assert [branch.depth for branch in story.iterate_tree_lines()] == list(range(count))
    assert [branch.cut for branch in story.iterate_tree_lines(10)] == [0] * 10 + [1]


def test_last_branch_of_each_step_is_marked() -> None:
    found = {branch.step.id: branch.last for branch in a_story("abcd", "ab", "ac", "cd").iterate_tree_lines()}
    assert found == {"a": True, "b": False, "c": True, "d": True}


def test_gap_of_a_root_is_the_time_since_the_root_before() -> None:
    gaps = [branch.gap for branch in a_story("abc", "ab").iterate_tree_lines()]
    assert gaps == [None, SECOND, 2 * SECOND]


def test_step_without_a_time_has_no_gap() -> None:
    story = Story("key k", START, [a_step("a", 0), a_step("b", None), a_step("c", 3)], (), ())
    assert [branch.gap for branch in story.iterate_tree_lines()] == [None, None, 3 * SECOND]


def test_step_is_found_by_its_id() -> None:
    assert a_story("ab").step("b").title == "b"
