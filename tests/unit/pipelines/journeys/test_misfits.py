"""Paths of journeys, and keys that do not fit."""

from __future__ import annotations

import datetime

import pyarrow as pa

from commitlake.pipelines.journeys.misfits import (
    MisfitRules,
    count_keys_by_path,
    first_keys_by_path,
    misfits_of_table,
    paths_to_topic_lists,
    rare_paths,
    sum_path_counts,
)

NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)


def journeys(*rows: tuple[str, str]) -> pa.Table:
    """Return journeys of keys and their topics: `!` after a topic for dead, `<` before a key that began before."""
    made = [
        {
            "key": key.strip("<"),
            "path": [topic.strip("!") for topic in path.split()],
            "last_topic": path.split()[-1].strip("!"),
            "last_sent_at": NOON - number * MINUTE,
            "outcome": "dead" if "!" in path else "delivered",
            "began_before": key.startswith("<"),
            "is_cut": key == "hub",
        }
        for number, (key, path) in enumerate(rows)
    ]
    return pa.Table.from_pylist(made)


FOUND = journeys(("a", "x y"), ("b", "x y!"), ("c", "x"), ("<d", "z"), ("hub", "x x"), ("e", "y x"))


def reasons(wanted: MisfitRules, found: pa.Table = FOUND) -> dict[str, list[str]]:
    """Return the reasons for each key that does not fit."""
    rare = rare_paths(sum_path_counts([count_keys_by_path(found)])) if wanted.is_unexpected else None
    return {row["key"]: row["reasons"] for row in misfits_of_table(found, wanted, rare).to_pylist()}


def test_paths_are_counted_in_the_order_of_their_keys() -> None:
    expected = [(["x", "y"], 2, 1, 0), (["x"], 1, 0, 0), (["x", "x"], 1, 0, 0), (["y", "x"], 1, 0, 0)]
    for parts in ([FOUND], [FOUND.slice(0, 1), FOUND.slice(1, 3), FOUND.slice(4)]):
        found = paths_to_topic_lists(sum_path_counts(map(count_keys_by_path, parts)))
        assert [tuple(row.values()) for row in found.to_pylist()] == expected
    assert sum_path_counts([count_keys_by_path(FOUND.slice(0, 0))]).num_rows == 0


def test_nothing_is_missing_for_sure_in_a_path_that_is_cut() -> None:
    assert reasons(MisfitRules(NOON, missing=["y"])) == {"c": ["missing y"]}
    assert reasons(MisfitRules(NOON, missing=["z", "y"])) == {
        "a": ["missing z"],
        "b": ["missing z"],
        "c": ["missing z", "missing y"],
        "e": ["missing z"],
    }


def test_keys_are_stuck_if_they_had_the_time_to_go_on() -> None:
    assert reasons(MisfitRules(NOON, stuck=[("x", 3 * MINUTE)])) == {"hub": ["stuck after x"], "e": ["stuck after x"]}
    assert reasons(MisfitRules(NOON, stuck=[("x", 6 * MINUTE)])) == {}


def test_a_path_through_topics_needs_no_reason() -> None:
    assert reasons(MisfitRules(NOON, through=["x", "y"])) == {"a": [], "b": [], "e": []}
    assert reasons(MisfitRules(NOON, through=["y"], stuck=[("x", MINUTE)])) == {"e": ["stuck after x"]}
    assert set(reasons(MisfitRules(NOON))) == {"a", "b", "c", "hub", "e"}


def test_a_path_of_one_key_in_a_hundred_is_expected() -> None:
    hundred = journeys(("odd", "y"), *((f"k{number}", "x") for number in range(99)))
    assert reasons(MisfitRules(NOON, is_unexpected=True), hundred) == {}
    more = pa.concat_tables([hundred, journeys(("k99", "x"))])
    assert reasons(MisfitRules(NOON, is_unexpected=True), more) == {"odd": ["unexpected path"]}
    assert reasons(MisfitRules(NOON, is_unexpected=True), more.slice(0, 0)) == {}


def test_the_first_keys_of_paths_are_those_that_began_here() -> None:
    found = first_keys_by_path(
        journeys(("a", "x y"), ("<b", "x y"), ("c", "x y"), ("d", "x y"), ("e", "x")), [("x", "y"), ("z",)], 2
    )
    assert found == {("x", "y"): ["a", "c"], ("z",): []}
