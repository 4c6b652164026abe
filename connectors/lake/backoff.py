"""Waiting times before a commit is tried again after a conflict with another run."""

from __future__ import annotations

import random

MAX_TRIES = 10
_FIRST_SECONDS, _LONGEST_SECONDS = 0.25, 8.0


def wait_seconds(attempt: int) -> float:
    """Return the waiting time after a failed attempt: it grows with each attempt, and is random per process.

    Args:
        attempt: number of the try that has failed, from 0.
    """
    longest = min(_FIRST_SECONDS * 2**attempt, _LONGEST_SECONDS)
    return random.uniform(longest / 2, longest)  # noqa: S311 (no secret)
