"""Memory allocator for columns in processes that only do this project's work."""

from __future__ import annotations

import os
from functools import cache

import pyarrow as pa

_CHOSEN = "ARROW_DEFAULT_MEMORY_POOL"


@cache
def use_system_memory() -> None:
    """Let Arrow allocate memory from the C library, unless the environment chooses otherwise.

    Arrow's own allocator returns large columns to the system and allocates them again, batch after batch: an archive
    task then spends time on pages that the system clears, and uses about 40 MiB more.
    """
    if _CHOSEN not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
