"""A folder in HDFS, through the package hdfs-native.

The package cannot join files on the servers, and a file to which a process appends stays locked for a minute if the
process is killed. So a file that consists of others is written from bytes that are read back. Each file is written
under a random name in `shipped/temporary`, then closed, then renamed, so it appears only once its last byte has been
written. A killed agent leaves temporary files, which the next one deletes.

Files that are replaced on a condition, manifests, are folders of versions, see `hdfs_files`. There is no lock,
because its owner could be dead or only slow. Instead, an agent lists the versions, and ends if the newest is not the
one that it knows. It replaces a manifest by renaming its own temporary file to the next version, which the NameNode
does for one agent only. Then it lists the versions again. So of two agents, only one continues:

- both replace version 16: the NameNode refuses one of the renames, and that agent ends;
- one was suspended for long while versions 17 to 20 were written and 17 was deleted: its listing shows 20, and it ends.
  If it was suspended between its listing and its rename, the rename to 17 succeeds but has no effect, because readers
  and agents take the largest number; its second listing shows 20, and it ends;
- one is at version 16, the copy is deleted or moved, and another agent begins there with version 1: 16 is not in the
  listing, or has another time, and the first agent ends. If the copy is deleted between its listing and its rename, 16
  is not in the second listing: the agent deletes its own version, whose files are gone, and ends. The last versions are
  kept, so an agent whose copy still exists always finds the version that it has replaced;
- an agent is killed before its rename: the manifest is the old one; after it: it is the new one, and the next agent
  continues from there. Only if the copy is deleted and the agent is killed, both in the moment around its rename, does
  a manifest remain whose files are gone. The next agent finds them missing, and ends or ships them again;
- the answer to a rename is lost: the agent lists the versions before it retries, and reads the new one; if it is its
  own, the rename succeeded.

A file that was closed is on all DataNodes of its pipeline, in memory or on disk. Whether they have written it to disk
is a setting of the cluster, `dfs.datanode.synconclose`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from commitlake.connectors.storage.bandwidth_limit import BandwidthLimit
from commitlake.connectors.storage.errors import CloudNameError, CloudUnavailableError
from commitlake.connectors.storage.hdfs_clients import FEW_ATTEMPTS, MAX_ATTEMPTS, HdfsClient, pause_before_retry
from commitlake.connectors.storage.hdfs_files import HdfsFile, Version, find_versions, to_found_file, version_path
from commitlake.connectors.storage.storage import (
    FileContent,
    FolderEntry,
    FoundFile,
    RangeFile,
    ReadableStorage,
    ReplacedError,
    check_name,
)
from commitlake.connectors.storage.uris import HdfsUri, is_valid_hdfs_name, parse_hdfs_uri
from commitlake.schemas.shipped_manifest import FOLDER, MAX_MANIFEST_BYTES, Part

TEMPORARY = f"{FOLDER}/temporary"
_KEPT_VERSIONS = 2


class HdfsStorage(ReadableStorage):
    """Files below a folder in HDFS.

    Args:
        uri: URI of the folder.
        pace: limit of the bytes per second.
    """

    def __init__(self, uri: str, pace: BandwidthLimit | None = None) -> None:
        self._root = parse_hdfs_uri(uri)
        super().__init__(str(self._root), pace)
        self._client = HdfsClient(self._root)
        self._few = HdfsClient(self._root, FEW_ATTEMPTS)  # for the requests of a step that is retried as a whole

    def check_access(self) -> None:
        """Check that the folder is accessible, and create it if it does not exist."""
        self._few.make_folder(self._path(TEMPORARY))

    def delete_unfinished_files(self) -> None:
        """Delete the temporary files that killed writers have left; a running writer tries again. See Storage."""
        with suppress(FileNotFoundError):
            for found in self._client.list(self._path(TEMPORARY)):
                self._client.delete(found.path)

    def names(self, folder: str, limit: int | None = None) -> Iterator[str]:
        """Yield the names of all files in a folder and its subfolders."""
        root = self._path("").rstrip("/")
        with suppress(FileNotFoundError):
            for found in self._client.list_files(self._path(folder), limit):
                yield found.path.removeprefix(f"{root}/")

    def head(self, name: str) -> FoundFile | None:
        """Return the newest version of a file, or None if it does not exist."""
        found = self._client.status(self._path(name))
        return None if found is None or found.isdir else to_found_file(found)

    def get(self, name: str, max_bytes: int) -> FileContent | None:
        """Read a file, in its newest version if `replace` has written it; None if it does not exist. See Storage."""
        versions, data = self._read_newest(name, self._client, max_bytes)
        return None if data is None else FileContent(data, versions[-1])

    def get_range(self, name: str, start: int, size: int) -> bytes | None:
        """Return a range of a file, shortened to the end of the file; None if the file does not exist. See Storage."""
        with suppress(FileNotFoundError):
            data = self._read(self._client, self._path(name), start, size)
            self.pace.wait_for_bytes(len(data))
            return data
        return None

    def put(self, name: str, data: bytes) -> None:
        """Write a file; an existing one is replaced. See Storage."""
        self._write(name, lambda: [data])

    def put_if(self, name: str, data: bytes, version: Any) -> Any:
        """Write a file if it still has the given version, and return its new version."""
        return self.replace(name, data, version, lambda found: found == data).version

    def replace(self, name: str, data: bytes, version: Any, was_sent_before: Callable[[bytes], bool]) -> FileContent:
        """Replace a file if it still has the given version, which consists of number, size and time."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                found = self._try_replace(name, data, version, was_sent_before)
            except CloudUnavailableError:
                if attempt == MAX_ATTEMPTS:
                    raise
                pause_before_retry(attempt)
                continue
            if found is not None:
                if found.data == data:
                    self._delete_versions(name, found.version)
                    self.delete_unfinished_files()
                return found
        raise self._deleted_error(
            f"{self.uri_of(name)}: its temporary file was deleted again and again by other processes"
        )

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        self._client.delete(self._path(name))

    def delete_empty_folder(self, folder: str) -> None:
        """Delete a folder without files; only HDFS has such folders. See Storage."""
        path = self._path(folder)
        with suppress(FileNotFoundError):
            if not self._client.list(path, limit=1):
                self._client.delete(path)

    def compose(self, name: str, parts: Sequence[Part], part_file_name: Callable[[Part], str]) -> None:
        """Write a file as the concatenation of other files, which the server joins if it can."""

        def iterate_pieces() -> Iterator[bytes]:
            return (self._read_part(part_file_name(part), part) for part in parts)

        self._write(name, iterate_pieces)

    def check_readable(self) -> None:
        """Check that the folder can be listed, without creating anything."""
        if self._few.status(self._path("")) is not None:
            self._few.list(self._path(""), limit=1)

    def entry(self, name: str) -> FolderEntry | None:
        """Return the file or folder with a name, or None if there is none; see ReadableStorage."""
        found = self._client.status(self._root.key(name))
        return None if found is None else _to_folder_entry(found)

    def entries(self, folder: str) -> list[FolderEntry]:
        """Return the files and folders in a folder; see ReadableStorage."""
        path = self._root.key(folder)
        try:
            found = self._client.list(path)
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(f"the folder {self.uri_of(folder)} does not exist") from None
        if any(status.path == path and not status.isdir for status in found):
            raise NotADirectoryError(f"expected a folder, but {self.uri_of(folder)} is a file")
        return sorted(map(_to_folder_entry, found), key=lambda entry: entry.name)

    def open(self, name: str) -> RangeFile:
        """Open a file for several threads; a folder of versions is opened like a file. See ReadableStorage."""
        return HdfsFile(HdfsUri(self._root.authority, self._root.key(name).strip("/")))

    def _try_replace(
        self, name: str, data: bytes, known_version: Version | None, was_sent_before: Callable[[bytes], bool]
    ) -> FileContent | None:
        """Write the next version if the known one is still the newest, and return it; None if nothing was written.

        Returns:
            The new version, which an earlier attempt may have written; None if there is no new one.
        """
        folder = self._path(name)
        number = known_version.number + 1 if known_version else 1
        if find_versions(self._few, folder)[-1:] == ([known_version] if known_version else []):
            # An error here is another writer's version, or a temporary file that a writer deleted.
            with suppress(FileExistsError, FileNotFoundError):
                self._write_once(version_path(folder, number), [data], replace=False)
        versions, found = self._read_newest(name, self._few, MAX_MANIFEST_BYTES)
        newest = versions[-1] if versions else None
        # Nothing was written, because the temporary file was deleted: the caller tries again.
        if newest == known_version:
            return None
        if newest is None or found is None or newest.number != number or not was_sent_before(found):
            raise ReplacedError
        # The copy was deleted between listing and rename, so the files that this version names are gone.
        if known_version is not None and known_version not in versions:
            self._client.delete(version_path(folder, number))
            raise ReplacedError
        return FileContent(found, newest)

    def _read_newest(self, name: str, client: HdfsClient, max_bytes: int) -> tuple[list[Version], bytes | None]:
        """Return a file's versions, and the content of the newest one."""
        folder = self._path(name)
        for _ in range(MAX_ATTEMPTS):
            versions = find_versions(client, folder)
            if not versions:
                return [], None
            with suppress(FileNotFoundError):  # deleted by another writer, after a newer one was written
                data = self._read(client, version_path(folder, versions[-1].number), 0, max_bytes + 1)
                if len(data) > max_bytes:
                    raise self.too_large_error(name, max_bytes)
                return versions, data
        raise self._deleted_error(
            f"{self.uri_of(name)}: its newest version was deleted again and again by other processes"
        )

    def _delete_versions(self, name: str, newest: Version) -> None:
        """Delete old versions, but keep the newest few, which readers may be about to open."""
        folder = self._path(name)
        for version in find_versions(self._client, folder):
            if version.number <= newest.number - _KEPT_VERSIONS:
                self._client.delete(version_path(folder, version.number))

    def _deleted_error(self, problem: str) -> CloudUnavailableError:
        return CloudUnavailableError(problem, "Run it again")

    def _write(self, name: str, make_pieces: Callable[[], Iterable[bytes]]) -> None:
        """Write a file completely or not at all; an existing one is replaced."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                self._write_once(self._path(name), make_pieces(), replace=True)
            except (FileNotFoundError, CloudUnavailableError):
                # The temporary file was deleted, or the answer was lost: the same bytes are written again.
                if attempt == MAX_ATTEMPTS:
                    raise
                pause_before_retry(attempt)
            else:
                return

    def _write_once(self, path: str, pieces: Iterable[bytes], *, replace: bool) -> None:
        HdfsClient(self._root, 1).make_folder(path.rpartition("/")[0])  # the caller tries again
        temporary = self._client.write_new_file(self._path(TEMPORARY), self._throttle_pieces(pieces))
        self._client.rename(temporary, path, replace=replace)

    def _throttle_pieces(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield bytes in small pieces, waiting before each as the bandwidth limit requires."""
        for piece in pieces:
            for start in range(0, len(piece), self.pace.slice_size_bytes):
                small = piece[start : start + self.pace.slice_size_bytes]
                self.pace.wait_for_bytes(len(small))
                yield small

    def _read_part(self, name: str, part: Part) -> bytes:
        """Read a part, and check its size and checksum."""
        try:
            # One byte more, so that a longer file is noticed.
            data = self._read(self._few, self._path(name), 0, part.size + 1)
        except FileNotFoundError:
            data = b""
        self.check_part(name, part, data)
        return data

    def _read(self, client: HdfsClient, path: str, start: int, size: int) -> bytes:
        reader = client.open(path)
        end = min(start + size, len(reader))
        return client.read(reader, start, end, path) if start < end else b""

    def _path(self, name: str) -> str:
        if not is_valid_hdfs_name(check_name(name)):
            raise CloudNameError(f"{name!a}: HDFS does not allow this as the name of a file")
        return self._root.key(name)


def _to_folder_entry(status: Any) -> FolderEntry:
    return FolderEntry(status.path.rpartition("/")[2], None if status.isdir else to_found_file(status))
