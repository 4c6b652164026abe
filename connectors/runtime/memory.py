"""How a process that does nothing but this project's work gets memory for columns."""

from __future__ import annotations

import os
from functools import cache

import pyarrow as pa

_CHOSEN = "ARROW_DEFAULT_MEMORY_POOL"


@cache
def use_system_memory() -> None:
    """Let Arrow take memory from the C library, once, unless the environment chooses otherwise.

    Arrow's own allocator gives large columns back to the system and takes them anew, batch after batch: an archive
    task then spends time on pages that the system clears, and holds some 40 MiB more.
    """
    if _CHOSEN not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
