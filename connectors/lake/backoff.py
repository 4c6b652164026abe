"""How often, and after how long, a commit is tried again that another run has kept from being made."""

from __future__ import annotations

import random

MAX_TRIES = 10
_FIRST_SECONDS, _LONGEST_SECONDS = 0.25, 8.0


def wait_seconds(attempt: int) -> float:
    """Return how long to wait after a try: longer each time, and for each process another time.

    Args:
        attempt: number of the try that has failed, from 0.
    """
    longest = min(_FIRST_SECONDS * 2**attempt, _LONGEST_SECONDS)
    return random.uniform(longest / 2, longest)  # noqa: S311 (no secret)
