"""A target in HDFS, through the package hdfs-native.

Each part is a file, as in an object store, because the package cannot join files on the servers, and a file to which an
agent appends stays locked for a minute if the agent is killed. Each file is written under a random name in
`shipped/temporary`, then closed, then renamed, so it appears only once its last byte has been written. A killed agent
leaves temporary files, which the next one deletes.

Manifests are folders of versions, see `storage.hdfs_versions`. There is no lock, because its owner could be dead
or only slow. Instead, an agent lists the versions, and ends if the newest is not the one that it knows. It replaces a
manifest by renaming its own temporary file to the next version, which the NameNode does for one agent only. Then it
lists the versions again. So of two agents, only one continues:

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

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from commitlake.connectors.shipping.errors import ShipConflictError, ShipError, ShipNameError, ShipUnavailableError
from commitlake.connectors.shipping.target import ShipTarget
from commitlake.connectors.storage.errors import CloudError, CloudNameError, CloudUnavailableError
from commitlake.connectors.storage.hdfs_clients import FEW_ATTEMPTS, MAX_ATTEMPTS, HdfsClient, pause
from commitlake.connectors.storage.hdfs_uris import is_possible, parse_hdfs_uri
from commitlake.connectors.storage.hdfs_versions import Version, find_versions, version_path
from commitlake.connectors.storage.pace import Pace
from commitlake.schemas.shipped import FOLDER, MAX_MANIFEST_BYTES, PARTS, Part, ShippedFile, part_name
from commitlake.schemas.store_files import check_relative

TEMPORARY = f"{FOLDER}/temporary"
_KEPT_VERSIONS = 2


class HdfsTarget(ShipTarget):
    """Target in a folder, which is created if it does not exist.

    Args:
        root: URI of the folder.
        pace: limit of the bandwidth.
    """

    has_parts = True

    def __init__(self, root: str, pace: Pace) -> None:
        self._root = parse_hdfs_uri(root)
        self.text = str(self._root)
        self._pace = pace
        self._client = HdfsClient(self._root)
        self._few = HdfsClient(self._root, FEW_ATTEMPTS)  # for the requests of a step that is retried as a whole
        self._versions: dict[str, Version | None] = {}
        self._tried: dict[str, set[bytes]] = {}  # SHA-256 of manifests that may have been written

    def claim(self) -> None:
        """See ShipTarget; the condition of the manifest replaces a lock."""
        with self._errors(TEMPORARY):
            self._few.make_folder(self._path(TEMPORARY))
            self._delete_temporary()

    def close(self) -> None:
        """See ShipTarget."""

    def names_in(self, folder: str, limit: int) -> list[str]:
        """See ShipTarget."""
        with self._errors(folder), suppress(FileNotFoundError):
            return [found.path.rpartition("/")[2] for found in self._client.list(self._path(folder), limit)]
        return []

    def read_manifest(self, name: str) -> bytes | None:
        """See ShipTarget."""
        with self._errors(name):
            versions, data = self._read_newest(name, self._client)
            self._versions[name] = versions[-1] if versions else None
        return data

    def read_range(self, name: str, offset: int, size: int) -> bytes | None:
        """Return a range of a file, or less if it ends before; None if it does not exist."""
        with self._errors(name), suppress(FileNotFoundError):
            data = self._read(self._client, self._path(name), offset, size)
            self._pace.take(len(data))
            return data
        return None

    def replace_manifest(self, name: str, data: bytes) -> None:
        """See ShipTarget."""
        mine = hashlib.sha256(data).digest()
        tried = self._tried.setdefault(name, set())
        tried.add(mine)
        with self._errors(name):
            for attempt in range(1, MAX_ATTEMPTS + 1):
                try:
                    is_replaced = self._try_replace(name, data) == mine
                except CloudUnavailableError:
                    if attempt == MAX_ATTEMPTS:
                        raise
                    pause(attempt)
                    continue
                if is_replaced:
                    tried.clear()
                    self._delete_versions(name)
                    self._delete_temporary()
                    return
        raise ShipUnavailableError(f"{self.text}, {name}: its temporary file was deleted again and again. Run it again")

    def put(self, name: str, data: bytes, modified_ms: int = 0) -> None:  # noqa: ARG002
        """See ShipTarget."""
        self._write(name, lambda: [data])

    def delete(self, name: str) -> None:
        """See ShipTarget."""
        with self._errors(name):
            self._client.delete(self._path(name))

    def write_part(self, file: ShippedFile, part: Part, data: bytes) -> None:
        """See ShipTarget."""
        self._write(part_name(file.name, part), lambda: [data])

    def has_part(self, file: ShippedFile, part: Part) -> bool:
        """See ShipTarget; only its size is compared."""
        return self._size(part_name(file.name, part)) == part.size

    def drop_parts(self, file: ShippedFile, parts: Iterable[Part]) -> None:
        """See ShipTarget; a folder without parts is deleted, too."""
        for part in parts:
            self.delete(part_name(file.name, part))
        with self._errors(file.name), suppress(FileNotFoundError):
            folder = self._path(f"{PARTS}/of-{file.name}")
            if not self._client.list(folder, limit=1):
                self._client.delete(folder)

    def part_names(self) -> Iterator[str]:
        """See ShipTarget."""
        root = self._root.key("").rstrip("/")
        with self._errors(PARTS), suppress(FileNotFoundError):
            for found in self._client.list(self._path(PARTS), recursive=True):
                if not found.isdir:
                    yield found.path.removeprefix(f"{root}/")

    def cut(self, file: ShippedFile, end: int) -> None:
        """See ShipTarget; the parts are deleted later, when a manifest without them is written."""

    def seal(self, file: ShippedFile) -> None:
        """See ShipTarget."""
        self._write(file.name, lambda: self._bytes_of(file))
        found = self.sealed_size(file)
        if found != file.size:
            raise ShipUnavailableError(f"{self.text}/{file.name}: expected {file.size} bytes, found {found}")

    def sealed_size(self, file: ShippedFile) -> int | None:
        """See ShipTarget."""
        return self._size(file.name)

    def _try_replace(self, name: str, data: bytes) -> bytes | None:
        """Write the version after the known one, if the known one is the newest, and read the newest one back.

        Returns:
            The SHA-256 of the new version, which an earlier attempt may have written; None if there is no new one.
        """
        folder, known = self._path(name), self._versions.get(name)
        number = known.number + 1 if known else 1
        if find_versions(self._few, folder)[-1:] == ([known] if known else []):
            # An error here is another agent's version, or a temporary file that an agent deleted.
            with suppress(FileExistsError, FileNotFoundError):
                self._write_once(version_path(folder, number), [data], replace=False)
        versions, found = self._read_newest(name, self._few)
        newest = versions[-1] if versions else None
        if newest == known:
            return None
        digest = hashlib.sha256(found or b"").digest()
        is_mine = newest is not None and newest.number == number and digest in self._tried[name]
        if is_mine and known is not None and known not in versions:
            self._client.delete(version_path(folder, number))
            is_mine = False
        if not is_mine:
            raise ShipConflictError(
                f"{self.text}: {name} was replaced by another agent, or the copy was deleted: stop all agents but one, "
                "and start that one again"
            )
        self._versions[name] = newest
        return digest

    def _read_newest(self, name: str, client: HdfsClient) -> tuple[list[Version], bytes | None]:
        """Return a manifest's versions, and the content of the newest one."""
        folder = self._path(name)
        for _ in range(MAX_ATTEMPTS):
            versions = find_versions(client, folder)
            if not versions:
                return [], None
            with suppress(FileNotFoundError):  # deleted by another agent, after a newer one was written
                data = self._read(client, version_path(folder, versions[-1].number), 0, MAX_MANIFEST_BYTES + 1)
                if len(data) > MAX_MANIFEST_BYTES:
                    raise ShipError(f"{self.text}/{name}: expected at most {MAX_MANIFEST_BYTES} bytes, found more")
                return versions, data
        raise ShipUnavailableError(f"{self.text}/{name}: its newest version was deleted again and again. Run it again")

    def _delete_versions(self, name: str) -> None:
        """Delete old versions, except the last ones, which a reader may be about to open."""
        folder, newest = self._path(name), self._versions[name]
        for version in find_versions(self._client, folder):
            if newest is not None and version.number <= newest.number - _KEPT_VERSIONS:
                self._client.delete(version_path(folder, version.number))

    def _delete_temporary(self) -> None:
        """Delete what killed agents and failed requests left; another agent that writes there tries again."""
        with suppress(FileNotFoundError):
            for found in self._client.list(self._path(TEMPORARY)):
                self._client.delete(found.path)

    def _write(self, name: str, pieces: Callable[[], Iterable[bytes]]) -> None:
        """Write a file completely or not at all; an existing one is replaced."""
        with self._errors(name):
            for attempt in range(1, MAX_ATTEMPTS + 1):
                try:
                    self._write_once(self._path(name), pieces(), replace=True)
                except (FileNotFoundError, CloudUnavailableError):
                    # The temporary file was deleted, or the answer was lost: the same bytes are written again.
                    if attempt == MAX_ATTEMPTS:
                        raise
                    pause(attempt)
                else:
                    return

    def _write_once(self, path: str, pieces: Iterable[bytes], *, replace: bool) -> None:
        HdfsClient(self._root, 1).make_folder(path.rpartition("/")[0])  # the caller tries again
        temporary = self._client.write_new(self._path(TEMPORARY), self._paced(pieces))
        self._client.rename(temporary, path, replace=replace)

    def _paced(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield bytes in small pieces, each when it may be sent."""
        for piece in pieces:
            for start in range(0, len(piece), self._pace.slice_bytes):
                small = piece[start : start + self._pace.slice_bytes]
                self._pace.take(len(small))
                yield small

    def _bytes_of(self, file: ShippedFile) -> Iterator[bytes]:
        """Yield the bytes of a file's parts, each part once its checksum is known to be right."""
        for part in file.parts:
            name = part_name(file.name, part)
            try:
                data = self._read(self._few, self._path(name), 0, part.size + 1)
            except FileNotFoundError:
                data = b""
            if (len(data), zlib.crc32(data)) != (part.size, part.crc):
                raise ShipError(f"{self.text}/{name}: expected {part.size} bytes with its CRC-32: the file was changed")
            yield data

    def _read(self, client: HdfsClient, path: str, offset: int, size: int) -> bytes:
        reader = client.open(path)
        end = min(offset + size, len(reader))
        return client.read(reader, offset, end, path) if offset < end else b""

    def _size(self, name: str) -> int | None:
        with self._errors(name):
            found = self._client.status(self._path(name))
        return None if found is None or found.isdir else found.length

    def _path(self, name: str) -> str:
        check_relative(name)
        if not is_possible(name):
            raise ShipNameError(f"{name!a}: HDFS has no files with such a name")
        return self._root.key(name)

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Convert the errors of the client."""
        try:
            yield
        except ShipError:
            raise
        except CloudUnavailableError as error:
            raise ShipUnavailableError(f"{self.text}, {name}: {error}") from None
        except CloudNameError as error:
            raise ShipNameError(f"{self.text}, {name}: {error}") from None
        except (CloudError, NotADirectoryError, IsADirectoryError, FileExistsError) as error:
            raise ShipError(f"{self.text}, {name}: {error}") from None
        except FileNotFoundError as error:
            raise ShipUnavailableError(f"{self.text}, {name}: {error}, also when tried again") from None
