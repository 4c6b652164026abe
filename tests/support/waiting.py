"""Waiting for a condition, with a deadline; and the few places where time itself must pass."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE_SECONDS = 60.0
"""Long enough for a machine that does much else: only a failing test waits so long."""
_LOOK_SECONDS = 0.01


def wait_until(
    holds: Callable[[], bool], seconds: float = PATIENCE_SECONDS, look_seconds: float = _LOOK_SECONDS
) -> float:
    """Wait until a condition holds, and return the seconds that this took.

    Args:
        holds: the condition.
        seconds: when to give up.
        look_seconds: the time between two checks.

    Raises:
        TimeoutError: it did not hold in time.
    """
    started = time.monotonic()
    while not holds():
        if time.monotonic() - started > seconds:
            raise TimeoutError(f"the condition did not hold within {seconds:g} s")
        time.sleep(look_seconds)
    return time.monotonic() - started


def let_pass(seconds: float, why: str) -> None:
    """Let time pass where there is nothing to wait for.

    Args:
        seconds: how long.
        why: what happens meanwhile, or must not happen, for those who read the test.
    """
    assert why
    time.sleep(max(0.0, seconds))


async def let_pass_in_loop(seconds: float, why: str) -> None:
    """Let time pass, as `let_pass`, while the other tasks of the event loop go on."""
    assert why
    await asyncio.sleep(seconds)
