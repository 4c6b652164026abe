"""HDFS as a filesystem of `pyarrow.fs`, for reading, without the JVM and native library that Arrow's own one needs.

Paths are URIs without their scheme. A folder of versions (see `hdfs_versions`) is opened like a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from commitlake.connectors.storage.errors import CloudUnavailableError
from commitlake.connectors.storage.hdfs_clients import FEW_ATTEMPTS, HdfsClient
from commitlake.connectors.storage.hdfs_uris import HdfsUri, parse_hdfs_uri
from commitlake.connectors.storage.hdfs_versions import list_versions, version_path
from commitlake.connectors.storage.range_files import RangeFile, ReadOnlyHandler
from commitlake.schemas.times import from_ms

if TYPE_CHECKING:
    from hdfs_native import FileReader, FileStatus

_MAX_LOOKS = 5
"""Attempts to begin to read a file that is being replaced."""


def hdfs_filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the filesystem of a URI, and the path within it.

    Raises:
        CloudError: if it has not the form of a URI in HDFS.
    """
    return pafs.PyFileSystem(_HdfsHandler()), parse_hdfs_uri(uri).path


def check_readable(uri: str) -> None:
    """Check that a place can be listed, with few attempts, because a user waits.

    Raises:
        CloudError: if the NameNode cannot be reached, or refuses the listing.
    """
    place = parse_hdfs_uri(uri)
    client = HdfsClient(place, FEW_ATTEMPTS)
    if client.status(place.key("")) is not None:
        client.list(place.key(""), limit=1)


class _HdfsHandler(ReadOnlyHandler):
    """Handler of all clusters; the methods that change a filesystem are refused."""

    def get_type_name(self) -> str:
        """Return the name of this kind of filesystem."""
        return "hdfs"

    def equals(self, other: Any) -> bool:
        """Return whether another handler has the same files."""
        return isinstance(other, _HdfsHandler)

    def __eq__(self, other: object) -> bool:
        return self.equals(other)

    def __hash__(self) -> int:
        return hash("hdfs")

    def get_file_info(self, paths: Sequence[str]) -> list[pafs.FileInfo]:
        """Return the kind and size of files and folders."""
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """Return the files and folders in a folder."""
        if selector.recursive:
            raise NotImplementedError
        uri = _uri(selector.base_dir)
        client, path = HdfsClient(uri), uri.key("")
        try:
            found = client.list(path)
        except (FileNotFoundError, NotADirectoryError):
            if selector.allow_not_found:
                return []
            raise FileNotFoundError(f"{uri} does not exist") from None
        if any(status.path == path and not status.isdir for status in found):
            raise NotADirectoryError(f"{uri} is a file, expected a folder")
        return [_file_info(f"{uri.path}/{_name(status)}", status) for status in sorted(found, key=_name)]

    def open_ranges(self, path: str) -> RangeFile:
        """Open a file that several threads can read."""
        return _HdfsFile(_uri(path))

    def _info(self, path: str) -> pafs.FileInfo:
        uri = _uri(path)
        status = HdfsClient(uri).status(uri.key(""))
        return pafs.FileInfo(path, pafs.FileType.NotFound) if status is None else _file_info(path, status)


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


class _HdfsFile(RangeFile):
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


def _uri(path: str) -> HdfsUri:
    authority, _, folder = path.partition("/")
    return HdfsUri(authority, folder.strip("/"))


def _name(status: FileStatus) -> str:
    return status.path.rpartition("/")[2]


def _file_info(path: str, status: FileStatus) -> pafs.FileInfo:
    changed = from_ms(status.modification_time)
    if status.isdir:
        return pafs.FileInfo(path, pafs.FileType.Directory, mtime=changed)
    return pafs.FileInfo(path, pafs.FileType.File, size=status.length, mtime=changed)
