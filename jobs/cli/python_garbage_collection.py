"""Python's garbage collector, off while modules are loaded."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Switch the garbage collector off while modules are loaded, because it would only slow loading down.

    At the end, all objects that exist then are excluded from later collections.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
