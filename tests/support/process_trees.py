"""A process with all that it has started: the JVM of a job has its own session, and Spark's workers have own groups."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress

from commitlake.jobs.cli.process import descendants
from tests.support.waiting import wait_until


def kill_tree(root: int) -> None:
    """End a process and all its descendants, as a power cut would."""
    for process in (*descendants(root), root):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def wait_until_gone(processes: Iterable[int], patience_seconds: float) -> None:
    """Wait until no process of these is left.

    Raises:
        TimeoutError: One of them is still there.
    """
    left = list(processes)
    wait_until(lambda: not any(map(_exists, left)), patience_seconds)


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
