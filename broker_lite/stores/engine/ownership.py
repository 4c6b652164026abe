"""Who may write to a store, and whether the last who did went in peace: the files `lock` and `abort`.

`lock` is locked, by the operating system, while a store is open: a broker and this store keep each other out. `abort`
is there while a store is open, and holds the process's id: whoever finds it at the start knows that the last one
crashed. Source: DefaultMessageStore.start, createTempFile, shutdown.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from commitlake.broker_lite.stores.engine.errors import StoreLockedError
from commitlake.schemas.store_files import create_file, make_folders, open_or_create, sync_folder

LOCK_FILE = "lock"
ABORT_FILE = "abort"
_LOCK_TEXT = b"lock"

# A process can take its own lock again, and loses it when it closes any other descriptor of the file.
_held_here: set[str] = set()
_held_here_guard = threading.Lock()


class StoreLock:
    """The lock of a store's folder, held from construction to `release`."""

    def __init__(self, root: Path) -> None:
        """Take the lock.

        Raises:
            StoreLockedError: if it is held by another process, or by another store in this one.
            UnsafeFileError: if `lock` is a link or no regular file.
        """
        self._path = root / LOCK_FILE
        self._key = str(root.resolve())
        with _held_here_guard:
            if self._key in _held_here:
                raise StoreLockedError(f"{root}: expected to be the only one to open it, found it open in this process")
            self._descriptor = self._lock()
            _held_here.add(self._key)

    def _lock(self) -> int:
        descriptor = open_or_create(self._path, may_have_names=True)
        try:
            # The same byte that Java locks; POSIX locks both.
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(descriptor)
            raise StoreLockedError(
                f"{self._path.parent}: expected to be the only one to open it, found its lock held by another process"
            ) from error
        status = os.fstat(descriptor)
        if status.st_size == 0 and status.st_nlink == 1:
            os.pwrite(descriptor, _LOCK_TEXT, 0)
        return descriptor

    def release(self) -> None:
        """Give the lock back."""
        with _held_here_guard:
            os.close(self._descriptor)
            _held_here.discard(self._key)


@contextmanager
def holding(root: Path) -> Iterator[StoreLock]:
    """Hold a folder's lock, which is given back if the store in it cannot be opened; the folder is made if need be.

    Raises:
        StoreLockedError: if it is held by another process, or by another store in this one.
        UnsafeFileError: if `lock` is a link or no regular file.
    """
    make_folders(root)
    lock = StoreLock(root)
    try:
        yield lock
    except BaseException:
        lock.release()
        raise


class AbortMark:
    """The file `abort`.

    Attributes:
        was_found: whether the last who had the store open did not close it.
    """

    def __init__(self, root: Path) -> None:
        self._path = root / ABORT_FILE
        self.was_found = os.path.lexists(self._path)

    def set(self) -> None:
        """Write the file: from here on, a crash is seen by whoever comes next, a crash of the machine too."""
        descriptor = create_file(self._path)
        try:
            os.write(descriptor, str(os.getpid()).encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_folder(self._path.parent)

    def clear(self) -> None:
        """Remove the file: everything is on the disk."""
        self._path.unlink(missing_ok=True)
