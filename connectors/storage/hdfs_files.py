"""Files in HDFS that are read by ranges; a folder of versions (see `hdfs_versions`) is opened like a file."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from commitlake.connectors.storage.errors import CloudUnavailableError
from commitlake.connectors.storage.hdfs_clients import HdfsClient
from commitlake.connectors.storage.hdfs_uris import HdfsUri
from commitlake.connectors.storage.hdfs_versions import list_versions, version_path
from commitlake.connectors.storage.range_files import RangeFile
from commitlake.connectors.storage.storage import FoundFile
from commitlake.schemas.times import from_ms

if TYPE_CHECKING:
    from hdfs_native import FileReader, FileStatus

_MAX_LOOKS = 5
"""Attempts to begin to read a file that is being replaced."""


@dataclass(frozen=True, slots=True)
class _OpenVersion:
    """Version of a file that is open.

    Attributes:
        path: its path; of a folder of versions, that of the newest one.
        status: its status then.
        reader: reads its bytes.
    """

    path: str
    status: FileStatus
    reader: FileReader


class HdfsFile(RangeFile):
    """A file that is read by ranges.

    Raises:
        FileNotFoundError: if it does not exist.
    """

    def __init__(self, uri: HdfsUri) -> None:
        super().__init__()
        self._uri, self._client = uri, HdfsClient(uri)
        self._opened = self._open()

    def _open(self) -> _OpenVersion:
        for _ in range(_MAX_LOOKS):
            path = self._uri.key("")
            found = self._client.status(path)
            if found is not None and found.isdir:
                path, found = self._newest_version(path, found)
            if found is None:
                break
            with suppress(FileNotFoundError):
                return _OpenVersion(path, found, self._client.open(path))
        raise FileNotFoundError(f"{self._uri} does not exist")

    def _newest_version(self, folder: str, found: FileStatus) -> tuple[str, FileStatus | None]:
        numbers = list_versions(self._client, folder)
        if not numbers:
            return folder, None
        path = version_path(folder, numbers[-1])
        return path, self._client.status(path) or found

    def size(self) -> int:
        """Return the number of bytes."""
        return len(self._opened.reader)

    def read_at(self, size: int, start: int) -> bytes:
        """Read from a position; see RangeFile."""
        is_first = self.is_first_read()
        for _ in range(_MAX_LOOKS):
            opened = self._opened
            end = min(len(opened.reader), start + size)
            if start >= end:
                return b""
            try:
                return self._read_range(opened, start, end)
            except CloudUnavailableError:
                # The blocks of a file that was replaced are deleted after some seconds.
                if not self._is_replaced(opened):
                    raise
                if start or not is_first:
                    # A reader of parts looks for the file that has these bytes now.
                    if opened.path == self._uri.key("") and self._client.status(opened.path) is None:
                        raise FileNotFoundError(f"{self._uri} does not exist any more") from None
                    break
                self._opened = self._open()
        raise CloudUnavailableError(f"{self._uri} was replaced while it was read", "Run it again")

    def _read_range(self, opened: _OpenVersion, start: int, end: int) -> bytes:
        what = f"{self._uri} cannot be read: "
        try:
            return self._client.once(lambda _: opened.reader.read_range(start, end - start), what)
        except CloudUnavailableError:
            if self._is_replaced(opened):
                raise
            return self._client.read(opened.reader, start, end, opened.path)

    def _is_replaced(self, opened: _OpenVersion) -> bool:
        found = self._client.status(opened.path)
        return found is None or _identity(found) != _identity(opened.status)


def _identity(status: FileStatus) -> tuple[int, int]:
    return status.length, status.modification_time


def found_file(status: FileStatus) -> FoundFile:
    """Return what a status says of a file."""
    return FoundFile(status.length, from_ms(status.modification_time))
