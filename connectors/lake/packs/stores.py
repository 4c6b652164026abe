"""The interface of a place for packs, and local folders; `open_store` selects one by URI scheme."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from commitlake.connectors.lake.packs.errors import PackError, PackNameError, PackStoreError
from commitlake.connectors.lake.packs.location import PackLocation, pack_location
from commitlake.connectors.lake.packs.names import PackFile, parse_pack_name
from commitlake.connectors.storage.uris import has_scheme
from commitlake.connectors.whole_files import write_whole
from commitlake.schemas.store_files import (
    UnsafeFileError,
    files_in,
    folders_in,
    make_folders,
    open_file,
    remove_file,
    sync_folder,
)
from commitlake.schemas.times import from_seconds

_TEMPORARY = re.compile(r"\.[0-9]{20}-[0-9]{20}-[0-9a-f]{16}(-merged)?\.zst\.[0-9]+-[0-9a-f]{16}\.tmp")


class PackOutput(Protocol):
    """An output for a pack's bytes."""

    def write(self, data: memoryview, /) -> object:
        """Write all of `data`."""
        ...


class PackStore(Protocol):
    """A store of packs by name; every method raises `PackNameError` for a name that `parse_pack_name` refuses."""

    def open_write(self, name: str) -> AbstractContextManager[PackOutput]:
        """Open a new pack for writing; it appears, or replaces one of its name, when the block ends without error."""
        ...

    def read_range(self, name: str, offset: int, length: int) -> bytes:
        """Read a range of a pack; the result is shorter only at the end of the pack.

        Raises:
            PackError: if the pack does not exist, or is not readable.
        """
        ...

    def size(self, name: str) -> int:
        """Return the size of a pack in bytes.

        Raises:
            PackError: as for `read_range`.
        """
        ...

    def check(self) -> None:
        """Check before a job begins that packs can be stored here; a folder need not exist yet.

        Raises:
            PackStoreError: if they cannot.
        """
        ...

    def list_packs(self, folder: str = "") -> Iterator[PackFile]:
        """Yield all packs by date, broker and range; other files are skipped.

        Args:
            folder: only those of one date and broker: the part of a pack's name before the last '/'.

        Raises:
            PackStoreError: if they cannot be listed.
        """
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete packs; missing ones are ignored.

        Raises:
            PackStoreError: if one cannot be deleted.
        """
        ...

    def delete_unfinished(self, before: datetime.datetime) -> int:
        """Delete files that killed writers left unfinished, and return their number.

        Args:
            before: time; later files are kept, because their writers may still be running.

        Raises:
            PackStoreError: if one cannot be deleted.
        """
        ...


class LocalPackStore:
    """Packs in a folder.

    A pack is written to a temporary file in its folder, synced and renamed. So a file with a pack's name is always
    complete, even if the writer is killed. `is_temporary` recognises the temporary files; their names are never valid
    names of packs.

    Args:
        root: the lake's folder of bodies; it is created with the first pack.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(root)

    @contextmanager
    def open_write(self, name: str) -> Iterator[PackOutput]:
        """See PackStore."""
        path = self._path(name)
        _make_folder(path.parent, self._root)
        # Unbuffered, because frames are large; _WholeWrites handles partial writes.
        with write_whole(path, buffering=0) as file:
            yield _WholeWrites(file.fileno())
        sync_folder(path.parent)

    def read_range(self, name: str, offset: int, length: int) -> bytes:
        """See PackStore."""
        with self._open(name) as descriptor:
            available = max(0, os.fstat(descriptor).st_size - offset)
            pieces, wanted = [], min(length, available)  # the length comes from a table, so limit it to the file's size
            while wanted > 0 and (piece := os.pread(descriptor, wanted, offset)):
                pieces.append(piece)
                offset += len(piece)
                wanted -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def size(self, name: str) -> int:
        """See PackStore."""
        with self._open(name) as descriptor:
            return os.fstat(descriptor).st_size

    def check(self) -> None:
        """See PackStore."""
        folder = next(folder for folder in (self._root, *self._root.absolute().parents) if folder.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            reason = "cannot be written by this user" if folder.is_dir() else "is a file"
            found = f"{folder}, which {reason}"
            raise PackStoreError(str(self._root), "a folder to write to", found, "Name another folder for bodies")

    def list_packs(self, folder: str = "") -> Iterator[PackFile]:
        """See PackStore."""
        for each in [self._root / folder] if folder else self._folders():
            for file_name in self._listed(files_in, each, lambda name: name.endswith(".zst")):
                path = each / file_name
                name = path.relative_to(self._root).as_posix()
                with suppress(PackNameError, FileNotFoundError):  # not a pack, or deleted meanwhile
                    store_date, status = parse_pack_name(name).store_date, path.lstat()
                    yield PackFile(name, store_date, status.st_size, from_seconds(status.st_mtime))

    def _folders(self) -> Iterator[Path]:
        """Yield the folders of packs, by date and broker."""
        for date in self._listed(folders_in, self._root):
            if date.startswith("store_date="):
                for broker in self._listed(folders_in, self._root / date):
                    if broker.startswith("broker="):
                        yield self._root / date / broker

    def _listed(self, names_in: Callable[..., list[str]], folder: Path, *wanted: Callable[[str], bool]) -> list[str]:
        try:
            return names_in(folder, *wanted, below=self._root)
        except UnsafeFileError as error:
            advice = "Move what it leads to into the folder: only the folder itself may be a link"
            raise PackStoreError(str(self._root), "folders and files", str(error), advice) from None

    def delete(self, names: Iterable[str]) -> None:
        """See PackStore."""
        for name in names:
            self._unlink(self._path(name))

    def delete_unfinished(self, before: datetime.datetime) -> int:
        """See PackStore."""
        count = 0
        for path in [path for folder in self._folders() for path in folder.iterdir()]:
            with suppress(FileNotFoundError):  # its writer has just renamed it
                if is_temporary(path.name) and from_seconds(path.lstat().st_mtime) < before:
                    self._unlink(path)
                    count += 1
        return count

    def _unlink(self, path: Path) -> None:
        try:
            with suppress(FileNotFoundError):
                remove_file(path, below=self._root)
        except OSError as error:
            advice = "Run as a user with permission to change the lake"
            raise PackStoreError(str(self._root), f"{path} to be deleted", str(error.strerror), advice) from None

    @contextmanager
    def _open(self, name: str) -> Iterator[int]:
        path = self._path(name)
        try:
            descriptor = open_file(path, below=self._root)
            try:
                yield descriptor
            finally:
                os.close(descriptor)
        except UnsafeFileError as error:
            advice = "Move what it leads to into the folder: only the folder itself may be a link"
            raise PackError(name, None, "a regular file in a regular folder", str(error), advice) from None
        except (FileNotFoundError, NotADirectoryError):
            advice = "Has it expired by a lifecycle rule? If not, restore it from a backup of the lake"
            raise PackError(name, None, f"a file in {self._root}", "none", advice) from None
        except OSError as error:
            advice = "Run as a user with permission to read the lake, and check that its disk is mounted"
            raise PackError(name, None, f"a file in {self._root} to read", str(error.strerror), advice) from None

    def _path(self, name: str) -> Path:
        parse_pack_name(name)
        return self._root / name


class _WholeWrites:
    """A file descriptor that writes all bytes it is given, or fails."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: memoryview, /) -> int:
        """See PackOutput."""
        done = 0
        while done < len(data):
            done += os.write(self._descriptor, data[done:])
        return done


def open_store(location: PackLocation | str) -> PackStore:
    """Return the store of a lake's bodies.

    Args:
        location: result of `pack_location`; or a root alone, for an object store of this process's own environment.

    Raises:
        PackStoreError: if packs cannot be stored in this kind of place.
        S3Error: if it is in an object store and names no bucket.
    """
    if isinstance(location, str):
        location = pack_location(location)
    root = location.root
    if location.s3 is not None:
        from commitlake.connectors.lake.packs.s3_store import S3PackStore

        return S3PackStore(root, location.s3)
    if not has_scheme(root) and not root.startswith("file:"):
        return LocalPackStore(root)
    parts = urlsplit(root)
    if parts.scheme != "file" or parts.netloc not in {"", "localhost"}:
        raise PackStoreError(
            root,
            "a folder of this machine, a file: URI, or s3://bucket/prefix",
            f"{parts.scheme}:",
            "Correct --bodies",
        )
    return LocalPackStore(unquote(parts.path))


def is_temporary(file_name: str) -> bool:
    """Return True for a file that a killed writer left; it may be deleted once no writer runs."""
    return _TEMPORARY.fullmatch(file_name) is not None


def _make_folder(folder: Path, root: Path) -> None:
    """Create a folder and its parents, and sync each entry, because a pack is lost if its folder is lost.

    Args:
        folder: the folder that holds the packs.
        root: folder below which no part of the path may be a link.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    make_folders(folder, below=root)
    for new in reversed(missing):
        sync_folder(new.parent)
