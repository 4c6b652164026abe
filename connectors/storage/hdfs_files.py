"""Files in HDFS: reads of ranges, and files that are replaced only on a condition, as folders of versions.

The latter are folders whose files are the versions, named by their numbers. Such a folder is opened like a file:

    shipped/log.json/00000000000000000017      the newest version is the content
    shipped/log.json/00000000000000000016      the one before it, for readers that have just listed the folder

HDFS can rename a file to a name that does not exist yet, which only one of two processes can do, but it cannot compare
a file and replace it. So a new version is a rename to the next number: it succeeds only if no other process has written
that version. Old versions are deleted, so a process that was suspended for long can still create a version with a
number that existed before. It has no effect: the largest number counts, versions are deleted only below a larger one,
and the process that created the version finds the larger one when it lists the folder afterwards.

If all versions are deleted, numbers begin again. So a process also compares the version that it replaces, by size and
time, before and after its rename.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from commitlake.connectors.storage.errors import CloudUnavailableError
from commitlake.connectors.storage.hdfs_clients import HdfsClient
from commitlake.connectors.storage.storage import FoundFile, ReplacedError, VersionedFile
from commitlake.connectors.storage.uris import HdfsUri
from commitlake.schemas.shipped_manifest import VERSION_DIGITS, is_version_name
from commitlake.schemas.times import from_ms

if TYPE_CHECKING:
    from hdfs_native import FileReader, FileStatus


class Version(NamedTuple):
    """A numbered version of a file, as listed; its time distinguishes it from another version with its number."""

    number: int
    size: int
    modified_ms: int


def version_path(folder: str, number: int) -> str:
    """Return the path of a numbered version of the file; each write to HDFS makes a new one.

    >>> version_path("/copy/shipped/log.json", 17)
    '/copy/shipped/log.json/00000000000000000017'
    """
    return f"{folder}/{number:0{VERSION_DIGITS}d}"


def list_versions(client: HdfsClient, folder: str) -> list[int]:
    """Return the numbers of a file's versions, in order; none if the folder does not exist."""
    try:
        return [version.number for version in find_versions(client, folder)]
    except NotADirectoryError:
        return []


def find_versions(client: HdfsClient, folder: str) -> list[Version]:
    """Return a file's versions, in order; none if the folder does not exist.

    Raises:
        NotADirectoryError: if it is a file.
    """
    try:
        entries = client.list(folder)
    except FileNotFoundError:
        return []
    # HDFS lists a file as the only entry of itself.
    if any(found.path == folder and not found.isdir for found in entries):
        raise NotADirectoryError(f"expected a folder, but {folder} is a file")
    named = [(found.path.rpartition("/")[2], found) for found in entries if not found.isdir]
    return sorted(
        Version(int(name), found.length, found.modification_time) for name, found in named if is_version_name(name)
    )


_MAX_LOOKS = 5
"""Attempts to open a file that is being replaced."""


@dataclass(frozen=True, slots=True)
class _OpenVersion:
    """An open file or version.

    Attributes:
        path: its path; of a folder of versions, that of the newest one.
        status: its status then.
        reader: reads its bytes.
    """

    path: str
    status: FileStatus
    reader: FileReader

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self.reader)


class HdfsFile(VersionedFile):
    """A file in HDFS opened for reads of ranges, all from one version."""

    def __init__(self, uri: HdfsUri) -> None:
        self._uri, self._client = uri, HdfsClient(uri)
        super().__init__(str(uri))

    def newest_version(self) -> _OpenVersion | None:
        """Return the newest version; in a folder of versions, the one with the largest number. See VersionedFile."""
        for _ in range(_MAX_LOOKS):
            path = self._uri.key("")
            found = self._client.status(path)
            if found is not None and found.isdir:
                path, found = self._newest_version_in_folder(path, found)
            if found is None:
                break
            # Replaced between the two requests.
            with suppress(FileNotFoundError):
                return _OpenVersion(path, found, self._client.open(path))
        return None

    def _newest_version_in_folder(self, folder: str, folder_status: FileStatus) -> tuple[str, FileStatus | None]:
        numbers = list_versions(self._client, folder)
        if not numbers:
            return folder, None
        path = version_path(folder, numbers[-1])
        # If this version was deleted meanwhile, any status will do: opening it fails, and the caller looks again.
        return path, self._client.status(path) or folder_status

    def read_version(self, version: _OpenVersion, start: int, end: int) -> bytes | None:
        """Return a range of a version; raise ReplacedError if the file was replaced and its old blocks are deleted."""
        try:
            return self._read_range(version, start, end)
        except CloudUnavailableError:
            # The blocks of a replaced file fail like those of a DataNode that is down.
            if not self._is_replaced(version):
                raise
            # A reader of parts looks for the file that has these bytes now.
            if version.path == self._uri.key("") and self._client.status(version.path) is None:
                return None
            raise ReplacedError from None

    def _read_range(self, version: _OpenVersion, start: int, end: int) -> bytes:
        what = f"{self._uri} cannot be read: "
        # Without retries first, which take long and are in vain if the file was replaced.
        try:
            return self._client.send_once(lambda _: version.reader.read_range(start, end - start), what)
        except CloudUnavailableError:
            if self._is_replaced(version):
                raise
            return self._client.read(version.reader, start, end, version.path)

    def _is_replaced(self, version: _OpenVersion) -> bool:
        found = self._client.status(version.path)
        return found is None or _file_identity(found) != _file_identity(version.status)


def _file_identity(status: FileStatus) -> tuple[int, int]:
    return status.length, status.modification_time


def to_found_file(status: FileStatus) -> FoundFile:
    """Convert the status of a file to a `FoundFile`."""
    return FoundFile(status.length, from_ms(status.modification_time))
