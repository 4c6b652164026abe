"""Object stores other than S3 as filesystems of `pyarrow.fs`, for reading.

Paths in such a filesystem are URIs without their scheme. Arrow's own clients for some clouds take other settings, and
retry for many minutes if there are no credentials.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pyarrow.fs as pafs

from commitlake.connectors.storage.cloud_objects import FoundObject, ObjectReader, ReplacedError
from commitlake.connectors.storage.cloud_uris import GOOGLE, CloudUri, parse_cloud_uri
from commitlake.connectors.storage.errors import CloudUnavailableError
from commitlake.connectors.storage.range_files import RangeFile, ReadOnlyHandler

_MAX_LOOKS = 5
"""Attempts to begin to read an object that is being replaced."""


def cloud_filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the filesystem of a URI, and the path within it.

    Raises:
        CloudError: if it has not the form of a URI of its scheme.
    """
    place = parse_cloud_uri(uri)
    return pafs.PyFileSystem(_CloudHandler(place.scheme)), place.path


def check_readable(uri: str) -> None:
    """Check that a place can be listed, with few attempts, because a user waits.

    Raises:
        CloudError: if the server cannot be reached, or refuses the listing.
    """
    place = parse_cloud_uri(uri)
    _reader_of(place.scheme).has_objects(place, is_waited_for=True)


@cache
def _reader_of(scheme: str) -> ObjectReader:
    """Return the reader of a scheme, which needs the package of an extra."""
    if scheme in GOOGLE:
        from commitlake.connectors.storage.gcs_objects import GcsReader  # noqa: PLC0415 (an extra)

        return GcsReader()
    from commitlake.connectors.storage.azure_objects import AzureReader  # noqa: PLC0415 (an extra)

    return AzureReader()


class _CloudHandler(ReadOnlyHandler):
    """Handler of the containers of one scheme; the methods that change a filesystem are refused."""

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme

    def get_type_name(self) -> str:
        """Return the name of this kind of filesystem."""
        return self._scheme

    def equals(self, other: Any) -> bool:
        """Return whether another handler has the same objects."""
        return isinstance(other, _CloudHandler) and other.get_type_name() == self._scheme

    def __eq__(self, other: object) -> bool:
        return self.equals(other)

    def __hash__(self) -> int:
        return hash(self._scheme)

    def get_file_info(self, paths: Sequence[str]) -> list[pafs.FileInfo]:
        """Return the kind and size of files and folders; a folder exists if an object is in it."""
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """Return the files and folders in a folder."""
        if selector.recursive:
            raise NotImplementedError
        folder = self._uri(selector.base_dir)
        objects, folders = _reader_of(self._scheme).list_folder(folder)
        if not objects and not folders and not selector.allow_not_found:
            raise FileNotFoundError(f"{folder} does not exist")
        root = folder.authority
        return [
            *(pafs.FileInfo(f"{root}/{name}", pafs.FileType.Directory) for name in sorted(folders)),
            # With hierarchical namespaces, a folder is also an object.
            *(_file_info(f"{root}/{name}", each) for name, each in sorted(objects.items()) if name not in folders),
        ]

    def open_ranges(self, path: str) -> RangeFile:
        """Open an object that several threads can read."""
        return _CloudFile(self._uri(path))

    def _uri(self, path: str) -> CloudUri:
        authority, _, prefix = path.partition("/")
        return CloudUri(self._scheme, authority, prefix.strip("/"))

    def _info(self, path: str) -> pafs.FileInfo:
        uri = self._uri(path)
        reader = _reader_of(self._scheme)
        if reader.has_objects(uri) or not uri.prefix:
            return pafs.FileInfo(path, pafs.FileType.Directory)
        try:
            return _file_info(path, reader.head(uri))
        except FileNotFoundError:
            return pafs.FileInfo(path, pafs.FileType.NotFound)


class _CloudFile(RangeFile):
    """An object that is read by ranges.

    Raises:
        FileNotFoundError: if it does not exist.
    """

    def __init__(self, uri: CloudUri) -> None:
        super().__init__()
        self._uri, self._reader = uri, _reader_of(uri.scheme)
        self._found = self._reader.head(uri)

    def size(self) -> int:
        """Return the number of bytes."""
        return self._found.size

    def read_at(self, size: int, start: int) -> bytes:
        """Read from a position; see RangeFile."""
        is_first = self.is_first_read()
        for _ in range(_MAX_LOOKS):
            found = self._found
            end = min(found.size, start + size)
            if start >= end:
                return b""
            try:
                # In a newer object, the range could end anywhere.
                return self._reader.read(self._uri, start, end, found)
            except ReplacedError:
                if start or not is_first:
                    break
                self._found = self._reader.head(self._uri)
        raise CloudUnavailableError(f"{self._uri} was replaced while it was read", "Run it again")


def _file_info(path: str, found: FoundObject) -> pafs.FileInfo:
    return pafs.FileInfo(path, pafs.FileType.File, size=found.size, mtime=found.modified)
