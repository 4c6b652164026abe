"""Short reads at many places by several threads, because reads of network disks and object stores mostly wait."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

LOCAL_THREADS = max(2, min(os.cpu_count() or 1, 8))
"""Number of local files that are read at a time; each has up to 32 MiB of its file in memory."""
REMOTE_THREADS = 32
"""Number of requests to an object store that are under way at a time."""

_T = TypeVar("_T")
_R = TypeVar("_R")


def map_concurrently(function: Callable[[_T], _R], values: Sequence[_T], thread_count: int) -> list[_R]:
    """Call a function for each value, several at a time, and return the results in order.

    Args:
        values: its arguments.
        thread_count: largest number of threads; with one, the functions are called on this thread.

    Raises:
        Exception: the first error in the order of the values, after all calls have ended.
    """
    count = min(thread_count, len(values))
    if count <= 1:
        return list(map(function, values))
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(function, values))
