"""A local folder as a place for the files of a lake.

A file is written to a temporary file beside it, synced and renamed. So a file is always complete, even if its writer is
killed. No part of a path below the folder may be a link.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from commitlake.connectors.atomic_files import open_atomic, write_new
from commitlake.connectors.storage.errors import FileError, ObjectStoreError
from commitlake.connectors.storage.storage import FoundFile, LakeStorage, check_name
from commitlake.schemas.safe_store_files import (
    UnsafeFileError,
    files_in,
    folders_in,
    make_folders,
    open_file,
    remove_file,
    sync_folder,
)
from commitlake.schemas.times import from_seconds

_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9]+-[0-9a-f]{16}\.tmp")
"""Name of a temporary file of `open_atomic`."""
_MOVE = "Move what it leads to into the folder: only the folder itself may be a link"


class FolderStorage(LakeStorage):
    """Files below a folder, which is created with the first file.

    Args:
        root: the folder.
        may_be_link: whether the folder itself may be a link.
    """

    place_noun, file_noun = "a folder", "a file"

    def __init__(self, root: str | os.PathLike[str], *, may_be_link: bool = False) -> None:
        self._root = Path(root)
        self._below = self._root if may_be_link else self._root.parent
        self.text = str(self._root)

    def check_access(self) -> None:
        """Check that the folder can be written to, or can be created; see LakeStorage."""
        folder = next(folder for folder in (self._root, *self._root.absolute().parents) if folder.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            reason = "cannot be written by this user" if folder.is_dir() else "is a file"
            raise ObjectStoreError(f"{folder}, which {reason}", "Name another folder")

    def files(self, prefix: str, suffix: str) -> Iterator[tuple[str, FoundFile]]:
        """Yield the files with a prefix and a suffix; links are refused, because skipping them could lose data."""
        for folder, start in self._folders_of_prefix(prefix):
            with self._convert_link_errors():
                names = files_in(folder, partial(_has_prefix_and_suffix, start, suffix), trusted_root=self._below)
            for name in names:
                with suppress(FileNotFoundError):  # deleted meanwhile
                    status = (folder / name).lstat()
                    found = FoundFile(status.st_size, from_seconds(status.st_mtime))
                    yield (folder / name).relative_to(self._root).as_posix(), found

    def _folders_of_prefix(self, prefix: str) -> Iterator[tuple[Path, str]]:
        """Yield the folders that may contain files with a prefix, each with the prefix of those files' names in it."""
        name, _, start = prefix.rpartition("/")
        yield self._path(name), start
        if start or not prefix:
            with self._convert_link_errors():
                found = folders_in(self._path(name), trusted_root=self._below)
            for inner in found:
                if inner.startswith(start):
                    yield from self._folder_and_partitions(self._path(name) / inner)

    def _folder_and_partitions(self, folder: Path) -> Iterator[tuple[Path, str]]:
        """Yield a folder and the folders of partitions in it, whose names have the form `column=value`."""
        yield folder, ""
        with self._convert_link_errors():
            found = folders_in(folder, lambda name: "=" in name, trusted_root=self._below)
        for inner in found:
            yield from self._folder_and_partitions(folder / inner)

    @contextmanager
    def _convert_link_errors(self) -> Iterator[None]:
        try:
            yield
        except UnsafeFileError as error:
            raise ObjectStoreError(str(error), _MOVE) from None

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes, or None if it does not exist; see LakeStorage."""
        with suppress(FileNotFoundError, NotADirectoryError), self._open(name) as descriptor:
            return os.fstat(descriptor).st_size
        return None

    def get_range(self, name: str, start: int, size: int) -> bytes | None:
        """Return a range of a file, shortened to the end of the file; None if the file does not exist.

        See LakeStorage.
        """
        with suppress(FileNotFoundError, NotADirectoryError), self._open(name) as descriptor:
            left = min(size, max(0, os.fstat(descriptor).st_size - start))  # the size may come from a damaged table
            pieces = []
            while left > 0 and (piece := os.pread(descriptor, left, start)):
                pieces.append(piece)
                start += len(piece)
                left -= len(piece)
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return None

    @contextmanager
    def open_write(self, name: str, *, syncs_folders: bool = False) -> Iterator[BinaryIO]:
        """Open a file for writing, which appears when the block ends without an error; see LakeStorage."""
        path = self._path(name)
        # Found before they are created: only the folders above new ones need to be synced.
        missing = [each for each in (path.parent, *path.parent.parents) if syncs_folders and not each.exists()]
        make_folders(path.parent, trusted_root=self._below)
        for new in reversed(missing):
            sync_folder(new.parent)
        with open_atomic(path) as file:
            yield file
        # The file's own sync does not keep its name: the rename is durable once the folder is synced.
        if syncs_folders:
            sync_folder(path.parent)

    def put_new(self, name: str, data: bytes) -> bool:
        """Write a file if none has its name, and return whether it was written; see LakeStorage."""
        path = self._path(name)
        make_folders(path.parent, trusted_root=self._below)
        return write_new(path, data)

    def delete_all(self, names: Iterable[str]) -> None:
        """Delete files; missing ones are ignored. See LakeStorage."""
        for name in names:
            self._delete(self._path(name))

    def delete_old_unfinished_files(
        self, prefix: str, cutoff: datetime.datetime, may_delete: Callable[[str], bool]
    ) -> int:
        """Delete incomplete files of killed writers, and return how many were deleted; see LakeStorage."""
        count = 0
        # Not by `files`: what has the name of an unfinished file is deleted, also if it is a link.
        for path in [
            path for folder, _ in self._folders_of_prefix(prefix) if folder.is_dir() for path in folder.iterdir()
        ]:
            unfinished = _TEMPORARY.fullmatch(path.name)
            if unfinished is None or not may_delete(
                (path.parent / unfinished["name"]).relative_to(self._root).as_posix()
            ):
                continue
            with suppress(FileNotFoundError):  # its writer has just renamed it
                if from_seconds(path.lstat().st_mtime) < cutoff:
                    count += self._delete(path)
        return count

    def _delete(self, path: Path) -> bool:
        """Delete a file, and return whether it existed."""
        try:
            remove_file(path, trusted_root=self._below)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ObjectStoreError(
                f"{path} cannot be deleted: {error.strerror}", "Run as a user with permission to change the lake"
            ) from None
        return True

    @contextmanager
    def _open(self, name: str) -> Iterator[int]:
        path = self._path(name)
        try:
            descriptor = open_file(path, trusted_root=self._below)
            try:
                yield descriptor
            finally:
                os.close(descriptor)
        except UnsafeFileError as error:
            raise FileError(str(path), "a regular file in a regular folder", str(error), _MOVE) from None
        except (FileNotFoundError, NotADirectoryError):
            raise
        except OSError as error:
            advice = "Run as a user with permission to read the lake, and check that its disk is mounted"
            raise FileError(str(path), f"a file in {self.text} to read", str(error.strerror), advice) from None

    def _path(self, name: str) -> Path:
        return self._root / check_name(name)


def _has_prefix_and_suffix(prefix: str, suffix: str, name: str) -> bool:
    return name.startswith(prefix) and name.endswith(suffix)
