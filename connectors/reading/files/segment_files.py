"""Files of segments on local disks and other filesystems of `pyarrow.fs`.

Large local segments are mapped, see `segment_windows`. If a file was truncated, a read here returns fewer bytes.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow.fs as pafs

from commitlake.connectors.log_format.files import SegmentFile
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files.remote_files import RemoteFile
from commitlake.connectors.reading.files.shipped_stores import MultiPartFile, resolve_filesystem
from commitlake.schemas.safe_store_files import UnsafeFileError, open_file

Window = np.ndarray[Any, np.dtype[np.uint8]]


@runtime_checkable
class RemoteSegment(SegmentFile, Protocol):
    """Open segment on a remote filesystem, which several threads can read."""

    def read_at(self, size: int, position: int) -> Window:
        """Return bytes from a position of the file, fewer than `size` only at the end of the file."""
        ...


class LocalFile:
    """Segment on a local disk; once open it can be read to its end even if it is deleted."""

    def __init__(self, path: str, below: Path | None = None) -> None:
        self.descriptor = open_file(path, trusted_root=below)

    def read_into(self, window: Window, position: int) -> int:
        """Fill `window` from a position of the file; return the number of bytes read."""
        view = window.data
        done = 0
        while done < len(view):
            # A single call may return fewer bytes than the file has, for example more than 2 GiB at once, or after a
            # signal.
            count = os.preadv(self.descriptor, [view[done:]], position + done)
            if count == 0:
                break
            done += count
        return done

    def size(self) -> int:
        """Return the size of the file, bytes."""
        return os.fstat(self.descriptor).st_size

    def next_data(self, position: int) -> int | None:
        """Return the first position at or after `position` that is not in a hole of a sparse file, or None."""
        try:
            return os.lseek(self.descriptor, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            return position  # the filesystem does not report holes

    def next_hole(self, position: int) -> int:
        """Return the first position at or after `position` that is in a hole, or the end of the file."""
        try:
            return os.lseek(self.descriptor, position, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return position  # the file ends before it
            return os.fstat(self.descriptor).st_size

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


def open_remote(filesystem: pafs.FileSystem, path: str) -> RemoteSegment:
    """Open a segment on a remote filesystem, also one that is stored there in parts, as `commitlake ship` copies it."""
    # The complete object first: an agent deletes the parts only after it has made the object, so one of them exists.
    try:
        return RemoteFile(filesystem, path)
    except FileNotFoundError:
        store, folder, name = path.rsplit("/", 2)
        return MultiPartFile(filesystem, store, f"{folder}/{name}")


class OpenSegment:
    """Segment opened by its path or URI, as a context manager.

    Attributes:
        file: the open segment.

    Raises:
        StoreError: if it cannot be read, or is a link or not a regular file.
        FileNotFoundError: if it does not exist, or was deleted.
    """

    def __init__(self, path: str) -> None:
        filesystem, inner_path = resolve_filesystem(path)
        self.file: SegmentFile
        try:
            if isinstance(filesystem, pafs.LocalFileSystem):
                self.file = LocalFile(inner_path)
            else:
                self.file = open_remote(filesystem, inner_path)
        except UnsafeFileError as error:
            raise StoreError(str(error)) from None
        except PermissionError:
            raise StoreError(
                f"{path} cannot be read by this user: run as the broker's user, or give read permission"
            ) from None

    def __enter__(self) -> SegmentFile:
        return self.file

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()
