"""Errors for stores that cannot be read, and warnings about messages that a read misses; see `newer_data`.

The warnings are found where a store is opened or the end of its log is found, below all jobs. So they are logged, and
a job whose stores have such messages does not exit with 0, whatever it does with them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from commitlake.connectors.reading.errors import UnsupportedStoreError

if TYPE_CHECKING:
    from commitlake.connectors.log_format.format import Format

ASK_HINT = "'commitlake snapshot --namesrv' asks the broker for them"
PULL_HINT = "'archive --from-broker' pulls all messages from the running broker"
UNREAD = logging.getLogger(__name__)
"""Logger of these warnings."""


@contextmanager
def watch_unread_warnings() -> Iterator[Callable[[], bool]]:
    """Print each warning about messages that a read misses only once; yield a function that tells if there were any."""
    known: set[str] = set()

    def is_first_occurrence(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        is_known = text in known
        known.add(text)
        return not is_known

    # A filter of the logger, because several parts of a run find the same messages independently.
    UNREAD.addFilter(is_first_occurrence)
    try:
        yield lambda: bool(known)
    finally:
        UNREAD.removeFilter(is_first_occurrence)


def refuse_rocksdb_queues(store: str) -> NoReturn:
    """Raise an error, because the store's queues are in RocksDB instead of files.

    Raises:
        UnsupportedStoreError: always.
    """
    raise UnsupportedStoreError(f"{store}: the queues are in RocksDB, which CommitLake cannot read. {ASK_HINT}")


def format_folder_names(formats: Sequence[Format]) -> str:
    """Return the folder names of formats, for an error message."""
    return " or ".join(f"'{log_format.folder}'" for log_format in formats)


def find_appended_logs(folders: Iterable[str], formats: Sequence[Format]) -> dict[str, list[str]]:
    """Return the names of a store's folders in which a log may go on, by the folder of the log."""
    found: dict[str, list[str]] = {}
    for name in folders:
        for log_format in formats:
            if name.startswith(log_format.folders.appended_logs):
                found.setdefault(log_format.folder, []).append(name)
    return found
