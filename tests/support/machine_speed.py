"""Current speed of this machine, for limits of processor time.

Even processor time depends on the machine: on its clock, and on other work on the same core. A limit in seconds that
holds on one machine fails on another, so tests multiply it by `slowness`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable

_TEXT = json.dumps({str(number): [number, "value"] for number in range(10_000)})
_REFERENCE_SECONDS = 0.005
"""Processor time of `_work` on an idle server of 2024."""


def slowness() -> float:
    """Return how much longer a fixed task takes now than on an idle server of 2024, as a factor of at least 1."""
    return max(1.0, *(_seconds_of(_work) / _REFERENCE_SECONDS for _ in range(3)))


def takes_at_most(seconds: float, work: Callable[[], object], attempts: int = 3) -> bool:
    """Return whether some work needs at most this processor time of its thread, on an idle server of 2024.

    Other work on the same core also costs processor time, for moments. So an attempt that takes longer is repeated.

    Args:
        seconds: the limit.
        work: does the work; called once for each attempt.
        attempts: how often it is tried at most.
    """
    return any(_seconds_of(work) <= seconds * slowness() for _ in range(attempts))


def longest_step_is_at_most(seconds: float, steps: Callable[[], Iterable[object]], attempts: int = 3) -> bool:
    """Return whether each step of some work needs at most this processor time, as `takes_at_most` does.

    Args:
        seconds: the limit of a step.
        steps: begins the work, and yields after each step.
        attempts: how often it is tried at most.
    """
    return any(_longest_step_seconds(steps()) <= seconds * slowness() for _ in range(attempts))


def _seconds_of(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def _longest_step_seconds(steps: Iterable[object]) -> float:
    longest, began = 0.0, time.thread_time()
    for _ in steps:
        longest, began = max(longest, time.thread_time() - began), time.thread_time()
    return max(longest, time.thread_time() - began)


def _work() -> int:
    """Parse, allocate and loop, as parsers do."""
    return sum(len(value) for value in json.loads(_TEXT).values())
