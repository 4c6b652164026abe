"""Memory settings of processes that run only this project's code: Arrow's allocator and garbage collection."""

from __future__ import annotations

import gc
import os
import sys
from functools import cache

_CHOSEN = "ARROW_DEFAULT_MEMORY_POOL"


def use_system_allocator() -> None:
    """Let Arrow allocate memory by the C library, unless an environment variable chooses an allocator.

    Arrow's own allocator returns large columns to the system and allocates them again, batch after batch: an archive
    task then spends time on pages that the system clears, and uses about 40 MiB more. What Arrow allocates on its own
    account, such as pages of Parquet, comes from the C library only if Arrow was not loaded before; so it does in
    processes that this one starts then.
    """
    if _CHOSEN in os.environ:
        return
    if "pyarrow" not in sys.modules:
        os.environ[_CHOSEN] = "system"  # Arrow reads it once, when it is loaded
        return
    import pyarrow as pa  # noqa: PLC0415 (it must not be loaded before)

    pa.set_memory_pool(pa.system_memory_pool())


@cache
def freeze_loaded_objects() -> None:
    """Exclude all objects loaded so far from garbage collection, once per process.

    Spark collects garbage in a Python worker after every task. With numba loaded that takes 80 ms, during which the
    core is idle; frozen objects are ignored by the collector.
    """
    gc.collect()
    gc.freeze()
