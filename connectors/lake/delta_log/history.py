"""The commits of a Delta table as recorded in its log, newest first.

Entries are read one by one, and only as far as the caller iterates. A damaged entry is skipped: readers of the table no
longer need it, because otherwise the table could not have been opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from deltalake import DeltaTable

from commitlake.connectors.lake.delta import log_of
from commitlake.connectors.lake.delta_log.entries import commit_info
from commitlake.connectors.lake.delta_log.files import entry_name


@dataclass(frozen=True, slots=True)
class CommitNote:
    """A commit of a Delta table, as its log records it.

    Attributes:
        version: version that the commit created.
        timestamp_ms: time of the commit, ms since 1970.
        metadata: its `userMetadata`; None if there is none.
    """

    version: int
    timestamp_ms: int
    metadata: str | None


def read_history(table: DeltaTable) -> Iterator[CommitNote]:
    """Yield the commits of a table, newest first, from the version at which it is open."""
    folder = log_of(table.table_uri)
    for version in sorted(folder.read_listing().entries, reverse=True):
        if version > table.version():
            continue
        try:
            data = folder.read(entry_name(version))
        except FileNotFoundError:  # deleted by a cleanup meanwhile
            continue
        info = commit_info(data)
        if info is not None:
            yield CommitNote(version, int(info.get("timestamp") or 0), info.get("userMetadata"))
