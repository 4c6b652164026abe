"""A process with all that it has started: the JVM of a job has its own session, and Spark's workers have own groups."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress

from commitlake.jobs.cli.process import descendants


def kill_tree(root: int) -> None:
    """End a process and all below it, as a power cut would."""
    for process in (*descendants(root), root):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def wait_until_gone(processes: Iterable[int], patience_seconds: float) -> None:
    """Wait until no process of these is left.

    Raises:
        TimeoutError: One of them is still there.
    """
    deadline = time.monotonic() + patience_seconds
    for process in processes:
        while _exists(process):
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {process} does not end")
            time.sleep(0.05)


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
