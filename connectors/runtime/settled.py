"""A worker process after its first task: what is loaded stays, and costs nothing between tasks.

Spark collects garbage in a Python worker after every task. With numba loaded that takes 80 ms, in which the core is
idle; of objects that are frozen the collector knows nothing.
"""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle() -> None:
    """Freeze what the process has loaded, once."""
    gc.collect()
    gc.freeze()
