"""Server process of multiprocessing that starts processes, because forking this process would break its threads."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait as wait_for


def start_fork_server() -> None:
    """Start the server with SIGINT blocked, also for its children, so that only this process handles Ctrl-C."""
    resource_tracker.ensure_running()  # it would unblock blocked signals, so start it first
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """Exit this pool process if its parent is killed; otherwise it would wait for tasks forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # only called in processes started by multiprocessing
    threading.Thread(target=_wait_and_end, args=(parent.sentinel,), daemon=True).start()


def _wait_and_end(sentinel: int) -> None:
    wait_for([sentinel])
    os._exit(1)
