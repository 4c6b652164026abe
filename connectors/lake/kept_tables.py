"""Cache of opened Delta tables, which can be opened again in less time.

A run opens each table of a lake several times. Opening a table reads its whole log since the newest checkpoint, which
takes six requests in an object store. A table that was opened before reads only newer entries.

A table belongs to one holder at a time, because deltalake changes it in place. When its holder releases it, it is kept
together with the names, sizes and times of the log files that it was read from. It is used again only while all of
these files are unchanged, and only where the log was checked as for a table that is opened anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable

from commitlake.connectors.lake.log_files import LogFile, LogListing
from commitlake.connectors.lake.versions import StorageOptions

MAX_KEPT = 24
"""Maximum number of tables kept in a process; a lake has twenty. The one released first is dropped first."""

_Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class _Kept:
    """A table without a holder.

    Attributes:
        attributes: those of the table.
        listing: the files of its log when it was checked last.
    """

    attributes: dict[str, Any]
    listing: LogListing


# Only single operations of the dictionary are used: a table may be released at any moment, in any thread.
_kept: dict[_Key, _Kept] = {}


class LentTable(DeltaTable):
    """A table that is kept when its holder releases it, if `keep_later` was called."""

    _place: _Key | None = None
    _listing: LogListing | None = None

    def keep_later(self, uri: str, options: StorageOptions, listing: LogListing) -> None:
        """Keep the table when it is no longer used.

        Args:
            uri: path or URI of the table.
            options: deltalake's options for an object store.
            listing: the files of its log, which were checked; empty if they changed while the table was read.
        """
        if listing.newest >= 0:
            self._place, self._listing = _key(uri, options), listing

    def load_as_version(self, version: Any) -> None:
        """Load another version; the table is not kept."""
        self._place = None
        super().load_as_version(version)

    def __del__(self) -> None:
        """Keep the table's attributes; at the end of the interpreter, names of this module may be None."""
        if self._place is None or self._listing is None or _Kept is None:
            return
        if self.version() > self._listing.newest:
            return  # its newest entries were not listed, so a change of theirs would not be noticed
        _kept.pop(self._place, None)
        _kept[self._place] = _Kept(dict(self.__dict__), self._listing)
        with suppress(StopIteration, KeyError, RuntimeError):  # another thread did the same
            while len(_kept) > MAX_KEPT:
                del _kept[next(iter(_kept))]


def take(uri: str, options: StorageOptions) -> tuple[LentTable, LogListing] | None:
    """Take a kept table, and the files of the log that it was read from; None if there is no such table.

    The caller must update it, and check that the files are unchanged, see `is_continued`.

    Args:
        uri: path or URI of the table.
        options: deltalake's options for an object store.
    """
    kept = _kept.pop(_key(uri, options), None)
    if kept is None:
        return None
    table = LentTable.__new__(LentTable)
    table.__dict__.update(kept.attributes)
    table._place = None  # noqa: SLF001 (it is this module's)
    return table, kept.listing


def is_continued(before: LogListing, now: LogListing) -> bool:
    """Return whether a log has changed only by newer files, and by the deletion of what a newer checkpoint replaces.

    Args:
        before: the log's files when the table was read.
        now: its files.
    """
    old, new = _by_name(before), _by_name(now)
    return all(file.mtime_ns and new.get(name, file) == file for name, file in old.items()) and all(
        name in new or file.version < now.base for name, file in old.items()
    )


def forget() -> None:
    """Drop all kept tables."""
    _kept.clear()


def _key(uri: str, options: Mapping[str, str] | None) -> _Key:
    return uri, tuple(sorted((options or {}).items()))


def _by_name(listing: LogListing) -> dict[str, LogFile]:
    checkpoints = (part for parts in listing.checkpoints.values() for part in parts)
    return {file.name: file for file in (*listing.entries.values(), *checkpoints)}
