"""Process trees, although the JVM of a job has its own session, and Spark's workers their own process groups."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress

from commitlake.jobs.cli.process import list_descendant_ids
from tests.support.waiting import wait_until


def kill_tree(root: int) -> None:
    """End a process and all its descendants, as a power cut would."""
    for process in (*list_descendant_ids(root), root):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def wait_until_gone(processes: Iterable[int], patience_seconds: float) -> None:
    """Wait until all of these processes have ended.

    Raises:
        TimeoutError: One of them is still running.
    """
    left = list(processes)
    wait_until(lambda: not any(map(_exists, left)), patience_seconds)


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
