"""Ownership of a store's folder, and detection of crashes: the files `lock` and `abort`.

`lock` is locked by the operating system while a store is open, so that a broker and this store exclude each other.
`abort` exists while a store is open, and contains the process id: if it exists at the next start, the last process
crashed. Source: DefaultMessageStore.start, createTempFile, shutdown.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from commitlake.broker_lite.errors import StoreLockedError
from commitlake.schemas.safe_store_files import create_file, make_folders, open_or_create_file, sync_folder

LOCK_FILE = "lock"
ABORT_FILE = "abort"
_LOCK_TEXT = b"lock"

# A process can lock its own file again, and loses the lock when it closes any other descriptor of the file.
_held_here: set[str] = set()
_held_here_guard = threading.Lock()


class StoreLock:
    """Lock on a store's folder against other processes, held until `release` is called."""

    def __init__(self, root: Path) -> None:
        """Lock the folder, or raise an error if it is in use.

        Raises:
            StoreLockedError: if another process, or another store in this process, holds it.
            UnsafeFileError: if `lock` is a symbolic link or not a regular file.
        """
        self._path = root / LOCK_FILE
        self._key = str(root.resolve())
        with _held_here_guard:
            if self._key in _held_here:
                raise StoreLockedError(
                    f"{root}: the store is open in this process already: expected a store that is not in use"
                )
            self._descriptor = self._lock()
            _held_here.add(self._key)

    def _lock(self) -> int:
        descriptor = open_or_create_file(self._path, may_have_hard_links=True)
        try:
            # Java locks the same byte; both use POSIX locks.
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(descriptor)
            raise StoreLockedError(
                f"{self._path.parent}: another process has the store open and holds its lock: expected a store that is "
                "not in use"
            ) from error
        status = os.fstat(descriptor)
        if status.st_size == 0 and status.st_nlink == 1:
            os.pwrite(descriptor, _LOCK_TEXT, 0)
        return descriptor

    def release(self) -> None:
        """Unlock the folder."""
        with _held_here_guard:
            os.close(self._descriptor)
            _held_here.discard(self._key)


@contextmanager
def hold_store_lock(root: Path) -> Iterator[StoreLock]:
    """Hold a folder's lock while the block opens a store; release it only if that fails.

    Raises:
        StoreLockedError: if another process, or another store in this process, holds it.
        UnsafeFileError: if `lock` is a symbolic link or not a regular file.
    """
    make_folders(root)
    lock = StoreLock(root)
    try:
        yield lock
    except BaseException:
        lock.release()
        raise


class AbortMark:
    """Marker file `abort`, which exists while a store is open or after a crash.

    Attributes:
        was_found: True if the file existed before, because the store was not closed properly.
    """

    def __init__(self, root: Path) -> None:
        self._path = root / ABORT_FILE
        self.was_found = os.path.lexists(self._path)

    def set(self) -> None:
        """Create the file, so that the next start can detect a crash."""
        descriptor = create_file(self._path)
        try:
            os.write(descriptor, str(os.getpid()).encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        # The file's name must be on disk, too, or a crash of the machine would look like a clean stop.
        sync_folder(self._path.parent)

    def clear(self) -> None:
        """Delete the file, because the store was closed cleanly and everything is on disk."""
        # Not synced: if a crash of the machine brings the file back, the next start merely recovers once more.
        self._path.unlink(missing_ok=True)
