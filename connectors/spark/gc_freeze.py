"""Exclusion of loaded modules from garbage collection in worker processes, to save time.

Spark collects garbage in a Python worker after every task. With numba loaded that takes 80 ms, during which the core is
idle; frozen objects are ignored by the collector.
"""

from __future__ import annotations

import gc
from functools import cache


@cache
def freeze_loaded() -> None:
    """Exclude all objects loaded so far from garbage collection, once per process."""
    gc.collect()
    gc.freeze()
