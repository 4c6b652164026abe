"""The commits of a Delta table as recorded in its log, newest first.

Entries are read one by one, and only as far as the caller iterates. A damaged entry is skipped: readers of the table no
longer need it, because otherwise the table could not have been opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from commitlake.connectors.lake.delta_log.entries import find_commit_info
from commitlake.connectors.lake.delta_log.files import LogFolder, entry_name


@dataclass(frozen=True, slots=True)
class CommitNote:
    """Commit of a Delta table, with the data that its log records about it.

    Attributes:
        version: version that the commit created.
        timestamp_ms: time of the commit, ms since 1970.
        metadata: its `userMetadata`; None if there is none.
    """

    version: int
    timestamp_ms: int
    metadata: str | None


def read_history(log_folder: LogFolder, newest_version: int) -> Iterator[CommitNote]:
    """Yield the commits of a table from its version `newest_version` back to the oldest in the log."""
    for version in sorted(log_folder.read_listing().entries, reverse=True):
        # Committed after the table was opened, and so not part of what the caller sees.
        if version > newest_version:
            continue
        try:
            data = log_folder.read(entry_name(version))
        except FileNotFoundError:  # deleted by a cleanup meanwhile
            continue
        info = find_commit_info(data)
        if info is not None:
            yield CommitNote(version, int(info.get("timestamp") or 0), info.get("userMetadata"))
