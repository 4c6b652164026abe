"""Sets of places: their condition in SQL has all of them, and exactly they are selected."""

from __future__ import annotations

import random

import pyarrow as pa

from commitlake.connectors.lake.rows import message_places
from commitlake.connectors.lake.rows.message_places import WantedMessages


def rows(places: list[tuple[str, int]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "broker": pa.array([broker for broker, _ in places], pa.string()),
            "physical_offset": pa.array([offset for _, offset in places], pa.int64()),
        }
    )


def test_the_places_are_selected_and_others_are_not() -> None:
    chance = random.Random(5)
    all_places = [(broker, offset) for broker in ("a", "b", "c") for offset in range(0, 5_000, 7)]
    wanted = chance.sample(all_places, 700)
    chosen = WantedMessages.of([*wanted, *wanted[:9]])
    chance.shuffle(all_places)
    found = [
        (row["broker"], row["physical_offset"])
        for start in range(0, len(all_places), 100)
        for row in chosen.select(rows(all_places[start : start + 100])).to_pylist()
    ]
    assert sorted(found) == sorted(wanted)
    assert (chosen.missing_count, chosen.first_missing()) == (0, None)


def test_places_without_a_row_are_counted() -> None:
    chosen = WantedMessages.of([("a", 1), ("a", 2), ("b", 3)])
    chosen.select(rows([("a", 2), ("z", 1)]))
    assert (chosen.missing_count, chosen.first_missing()) == (2, ("a", 1))
    assert WantedMessages({}).condition() == "false"


def test_ranges_are_divided_at_the_largest_gaps() -> None:
    chosen = WantedMessages.of([("it's", 5), ("it's", 6), ("it's", 900), ("it's", 1000)])
    limit = message_places._MAX_RANGES
    try:
        message_places._MAX_RANGES = 2
        assert chosen.condition() == (
            "((broker = 'it''s' AND physical_offset >= 5 AND physical_offset <= 6) OR "
            "(broker = 'it''s' AND physical_offset >= 900 AND physical_offset <= 1000))"
        )
    finally:
        message_places._MAX_RANGES = limit
