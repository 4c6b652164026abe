"""Warnings of messages that are in a store, but are not read; see `newer_data`.

They are found where a store is opened or the end of its log is found, below all jobs. So they are logged, and a job
whose stores have such messages does not exit with 0, whatever it does with them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

UNREAD = logging.getLogger(__name__)
"""Logger of these warnings."""


@contextmanager
def noticed_unread() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether there was such a warning; each of them is printed only once."""
    known: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        is_known = text in known
        known.add(text)
        return not is_known

    UNREAD.addFilter(is_new)
    try:
        yield lambda: bool(known)
    finally:
        UNREAD.removeFilter(is_new)
