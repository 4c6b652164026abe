"""Garbage collection in worker processes: loaded modules are excluded from it.

Spark collects garbage in a Python worker after every task. With numba loaded that takes 80 ms, during which the core is
idle; frozen objects are ignored by the collector.
"""

from __future__ import annotations

import gc
from functools import cache


@cache
def freeze_loaded() -> None:
    """Freeze all loaded objects, once per process."""
    gc.collect()
    gc.freeze()
