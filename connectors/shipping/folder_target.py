"""A target in a folder, local or mounted: a copy of the store that jobs can read.

Parts are written into the file itself, which has its full size from the beginning, as the broker's own files have. No
part of a path below the folder may be a link. `shipped/lock` is locked by the process that writes.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from commitlake.connectors.checksums import crc_of_range
from commitlake.connectors.shipping.ship_target import ShipError, ShipTarget, ShipUnavailableError
from commitlake.connectors.storage.bandwidth_limit import BandwidthLimit
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.safe_store_files import (
    UnsafeFileError,
    check_relative_name,
    create_file,
    files_in,
    make_folders,
    open_file,
    open_parent,
    read_file,
    remove_file,
    rename_file,
)
from commitlake.schemas.shipped_manifest import LOCK, MAX_MANIFEST_BYTES, Part, ShippedFile

_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class FolderTarget(ShipTarget):
    """Target in a local or mounted folder, which is created if it does not exist.

    Args:
        root: the folder.
        pace: limit of the bandwidth.
    """

    has_parts = False

    def __init__(self, root: str, pace: BandwidthLimit) -> None:
        self.text = root
        self._root = Path(root).absolute()
        self._pace = pace
        self._lock: int | None = None
        self._manifests: dict[str, bytes | None] = {}

    def claim(self) -> None:
        """Create the folder if necessary, and lock it for this process."""
        with self._convert_errors(LOCK):
            make_folders(self._root)
            path = self._path(LOCK)
            make_folders(path.parent, trusted_root=self._root)
            with suppress(FileExistsError):
                os.close(create_file(path, trusted_root=self._root, may_replace=False))
            self._lock = open_file(path, os.O_RDWR, trusted_root=self._root)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ShipError(
                    f"{self.text}: another agent ships to this folder: stop one of the two agents",
                    exit_code=ExitCode.REFUSED,
                ) from None

    def close(self) -> None:
        """Release the lock on the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def list_names(self, folder: str, limit: int) -> list[str]:
        """Return the names of at most `limit` files in a folder."""
        with self._convert_errors(folder):
            return files_in(self._path(folder), trusted_root=self._root)[:limit] if self._root.is_dir() else []

    def read_manifest(self, name: str) -> bytes | None:
        """Return the content of a manifest, or None if there is none."""
        data: bytes | None = None
        with self._convert_errors(name), suppress(FileNotFoundError):
            data = read_file(self._path(name), trusted_root=self._root, limit=MAX_MANIFEST_BYTES)
        self._manifests[name] = data
        return data

    def replace_manifest(self, name: str, data: bytes) -> None:
        """Replace a manifest atomically, unless another agent has changed it."""
        known = self._manifests.get(name)
        # The lock does not work on every mounted file system, so the manifest is compared, too.
        if self.read_manifest(name) != known:
            self._manifests[name] = known
            raise ShipError(
                f"{self.text}: another agent has replaced {name}: stop one of the two agents",
                exit_code=ExitCode.REFUSED,
            )
        self.write_file(name, data)
        self._manifests[name] = data

    def write_file(self, name: str, data: bytes, modified_ms: int = 0) -> None:
        """Write a small file completely or not at all."""
        path = self._path(name)
        beside = path.with_name(f".{path.name}.tmp")
        with self._convert_errors(name):
            make_folders(path.parent, trusted_root=self._root)
            with os.fdopen(create_file(beside, trusted_root=self._root), "wb") as file:
                file.write(data)
                file.flush()
                if modified_ms:
                    os.utime(file.fileno(), ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
                os.fsync(file.fileno())
            rename_file(beside, path, trusted_root=self._root)
            # Without it, a crash of the machine may lose the new name, though not the file.
            with open_parent(path, self._root) as parent:
                _sync_folder(parent)

    def delete(self, name: str) -> None:
        """Delete a small file, if it exists."""
        with self._convert_errors(name), suppress(FileNotFoundError):
            remove_file(self._path(name), trusted_root=self._root)

    def write_part(self, file: ShippedFile, part: Part, data: bytes) -> None:
        """Write a part into its file at the position of the part."""
        with self._convert_errors(file.name), self._open_file(file, is_new=part.offset == 0) as descriptor:
            view = memoryview(data)
            done = 0
            while done < len(view):
                step = view[done : done + self._pace.slice_size_bytes]
                self._pace.wait_for_bytes(len(step))
                done += os.pwrite(descriptor, step, part.offset + done)
            # The full size, as of the broker's own files, from which jobs derive the size of segments.
            if os.fstat(descriptor).st_size < file.size:
                os.ftruncate(descriptor, file.size)
            # Before the manifest names the part.
            os.fdatasync(descriptor)

    def has_part(self, file: ShippedFile, part: Part) -> bool:
        """Return whether the bytes of a part are in its file, as their checksum shows."""
        with (
            self._convert_errors(file.name),
            suppress(FileNotFoundError),
            self._open_file(file, os.O_RDONLY) as descriptor,
        ):
            return crc_of_range(descriptor, part.offset, part.size) == part.crc
        return False

    def drop_parts(self, file: ShippedFile, parts: Iterable[Part]) -> None:
        """Do nothing, because a folder has no separate parts."""

    def part_names(self) -> Iterator[str]:
        """Yield nothing, because a folder has no separate parts."""
        yield from ()

    def truncate(self, file: ShippedFile, end: int) -> None:
        """Replace the bytes of a file from position `end` on by zeros."""
        with self._convert_errors(file.name), suppress(FileNotFoundError), self._open_file(file) as descriptor:
            # Cut and extended again, so that the rest reads as zeros, like bytes that were never written.
            os.ftruncate(descriptor, end)
            os.ftruncate(descriptor, file.size)
            os.fdatasync(descriptor)

    def seal(self, file: ShippedFile) -> None:
        """Give a completed file its full size, and sync it to disk."""
        with self._convert_errors(file.name), self._open_file(file) as descriptor:
            os.ftruncate(descriptor, file.size)
            os.fsync(descriptor)

    def sealed_size(self, file: ShippedFile) -> int | None:
        """Return the size of a file in the folder, or None if it is missing."""
        with (
            self._convert_errors(file.name),
            suppress(FileNotFoundError),
            self._open_file(file, os.O_RDONLY) as descriptor,
        ):
            return os.fstat(descriptor).st_size
        return None

    def _path(self, name: str) -> Path:
        return self._root / check_relative_name(name)

    @contextmanager
    def _open_file(self, file: ShippedFile, flags: int = os.O_RDWR, *, is_new: bool = False) -> Iterator[int]:
        path = self._path(file.name)
        if is_new:
            make_folders(path.parent, trusted_root=self._root)
            with suppress(FileExistsError):
                os.close(create_file(path, trusted_root=self._root, may_replace=False))
        descriptor = open_file(path, flags, trusted_root=self._root)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _convert_errors(self, name: str) -> Iterator[None]:
        """Convert errors of the operating system to a ShipError; a missing file stays a FileNotFoundError."""
        try:
            yield
        except (ShipError, FileNotFoundError):
            raise
        except UnsafeFileError as error:
            raise ShipError(f"{error}. Remove it, because 'commitlake ship' follows no links in its target") from None
        except OSError as error:
            text = f"{self._root / name} cannot be written: {error.strerror or error}"
            if error.errno in _DENIED or isinstance(error, NotADirectoryError):
                raise ShipError(
                    f"{text}. Give this user permission to write, or name another place with --to"
                ) from None
            raise ShipUnavailableError(f"{text}. Nothing is lost: the next attempt continues there") from None


def _sync_folder(folder: int) -> None:
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
