"""The time between two attempts at a commit."""

from __future__ import annotations

import random

from commitlake.connectors.lake.backoff import MAX_TRIES, TableUpdate, backoff_seconds, update_until_version


def test_waits_grow_to_a_limit_and_differ() -> None:
    random.seed(1)
    for attempt in range(MAX_TRIES):
        longest = min(0.25 * 2**attempt, 8.0)
        waits = {backoff_seconds(attempt) for _ in range(20)}
        assert len(waits) == 20
        assert all(longest / 2 <= wait <= longest for wait in waits)


def test_a_table_is_updated_until_it_has_reached_the_version() -> None:
    versions, waits = iter([3, 4, 5, 6]), list[float]()
    tries = list(update_until_version(5, lambda: TableUpdate("edges", next(versions)), waits.append))
    assert [one.version for one in tries] == [3, 4, 5]
    assert len(waits) == 2


def test_an_update_that_never_reaches_the_version_ends() -> None:
    waits: list[float] = []
    assert [one.version for one in update_until_version(5, lambda: TableUpdate("edges", 4), waits.append)] == [
        4
    ] * MAX_TRIES
    assert len(waits) == MAX_TRIES
