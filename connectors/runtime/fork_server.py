"""The process of multiprocessing's that starts others: this one cannot fork, for its threads would be lost."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait as wait_for


def start_fork_server() -> None:
    """Start it with SIGINT blocked, and so its processes: a terminal's Ctrl-C is for this process alone to answer."""
    resource_tracker.ensure_running()  # which unblocks signals that it finds blocked
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """Let a process of a pool end when the one that has started the pool is killed; it would wait for tasks forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # it is called in processes that multiprocessing has started
    threading.Thread(target=_wait_and_end, args=(parent.sentinel,), daemon=True).start()


def _wait_and_end(sentinel: int) -> None:
    wait_for([sentinel])
    os._exit(1)
