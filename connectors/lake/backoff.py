"""Updates of tables that follow others, and waiting times before one is retried after a conflict with another run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

MAX_TRIES = 10
_FIRST_SECONDS, _LONGEST_SECONDS = 0.25, 8.0


def backoff_seconds(attempt: int) -> float:
    """Return the seconds to wait after a failed attempt: they grow with each attempt, and differ between processes.

    Args:
        attempt: number of the failed attempt, from 0.
    """
    longest = min(_FIRST_SECONDS * 2**attempt, _LONGEST_SECONDS)
    return random.uniform(longest / 2, longest)  # noqa: S311 (no secret)


@dataclass(frozen=True)
class TableUpdate:
    """Result of an update of a table that follows others.

    Attributes:
        table: name of the table.
        version: version of `messages` that the table has reached.
        rows: number of added rows; 0 if another run committed first.
        seconds: duration; 0 if it was not measured.
        is_unfinished: True if rows that existed at the start are still missing.
        problems: sentences on files that could not be read.
    """

    table: str
    version: int = -1
    rows: int = 0
    seconds: float = 0.0
    is_unfinished: bool = False
    problems: Sequence[str] = ()


Followed = TypeVar("Followed", bound=TableUpdate)


def update_until_version(
    wanted_version: int, update_table: Callable[[], Followed], wait: Callable[[float], object]
) -> Iterator[Followed]:
    """Update a table repeatedly until it has reached a version, and yield the result of each attempt.

    Args:
        wanted_version: the version to reach.
        update_table: updates the table, unless another run has committed first.
        wait: waits for a number of seconds.

    Yields:
        At most `MAX_TRIES` results; the last one has an earlier version if other runs were first on every try.
    """
    for attempt in range(MAX_TRIES):
        followed = update_table()
        yield followed
        if followed.version >= wanted_version:
            return
        wait(backoff_seconds(attempt))
