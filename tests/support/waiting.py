"""Waits for a condition, with a deadline, and waits of a fixed length where nothing can be observed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE_SECONDS = 60.0
"""Long enough for a busy machine; only a failing test waits this long."""
_LOOK_SECONDS = 0.01


def wait_until(
    holds: Callable[[], bool], seconds: float = PATIENCE_SECONDS, look_seconds: float = _LOOK_SECONDS
) -> float:
    """Wait until a condition holds, and return the seconds waited.

    Args:
        holds: the condition.
        seconds: time limit.
        look_seconds: time between two checks.

    Raises:
        TimeoutError: if it does not hold in time.
    """
    started = time.monotonic()
    while not holds():
        if time.monotonic() - started > seconds:
            raise TimeoutError(f"the condition did not hold within {seconds:g} s")
        time.sleep(look_seconds)
    return time.monotonic() - started


def let_pass(seconds: float, why: str) -> None:
    """Let time pass if there is no condition to wait for.

    Args:
        seconds: duration.
        why: for readers of the test, what happens meanwhile or must not happen.
    """
    assert why
    time.sleep(max(0.0, seconds))


async def let_pass_in_loop(seconds: float, why: str) -> None:
    """Let time pass, as `let_pass` does, while other tasks of the event loop continue."""
    assert why
    await asyncio.sleep(seconds)
