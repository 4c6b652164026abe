"""Killed processes: their output so far, and the number of kills in a test.

Tests kill a few processes in every run, and TEST_KILLS in the long one; TEST_MESSAGES sets a larger number of messages.
The variables do not begin with COMMITLAKE_, because jobs warn of such variables that they do not know.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.waiting import let_pass


def kill_count(short: int, *, share: int = 1) -> int:
    """Return the number of kills, or of rounds with kills, of a test.

    Args:
        short: the number if `TEST_KILLS` is not set.
        share: divisor of `TEST_KILLS` for the test; the result is never less than `short`.
    """
    asked = os.environ.get("TEST_KILLS")
    return max(short, int(asked) // share) if asked else short


def message_count(short: int) -> int:
    """Return the number of messages of a test with kills: `TEST_MESSAGES` if it is set and larger than `short`.

    Args:
        short: the number otherwise.
    """
    return max(short, int(os.environ.get("TEST_MESSAGES") or 0))


def numbers_until_killed(program: str, *arguments: object, seconds: float) -> list[tuple[int, ...]]:
    """Run a Python program, kill it after a while, and return the numbers that it has printed.

    Args:
        program: its source; it prints "opening" when it begins its work, and then lines of numbers.
        *arguments: its arguments.
        seconds: time after which it is killed.

    Returns:
        The numbers of each line, without the last line, which may be cut.
    """
    command = [sys.executable, "-c", program, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "opening\n"
        let_pass(seconds, "it is killed at any moment")
        process.kill()
        lines = process.stdout.read().split("\n")
    return [tuple(map(int, line.split())) for line in lines[:-1]]
