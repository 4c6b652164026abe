"""Python's garbage collector, off while modules are loaded."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off() -> Iterator[None]:
    """Load modules without the collector: it would look for garbage among what is loaded again and again.

    What is there at the end stays, and the collector does not look at it any more.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
