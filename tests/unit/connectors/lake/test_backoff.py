"""The time between two tries of a commit."""

from __future__ import annotations

import random

from commitlake.connectors.lake.backoff import MAX_TRIES, wait_seconds


def test_waits_grow_to_a_limit_and_differ() -> None:
    random.seed(1)
    for attempt in range(MAX_TRIES):
        longest = min(0.25 * 2**attempt, 8.0)
        waits = {wait_seconds(attempt) for _ in range(20)}
        assert len(waits) == 20
        assert all(longest / 2 <= wait <= longest for wait in waits)
