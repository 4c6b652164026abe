"""Interfaces of places for files, which an adapter implements for each kind of place.

    FolderStorage   a folder of this machine    the standard library
    S3Storage       s3://bucket/prefix          boto3
    AzureStorage    abfss://…/prefix            obstore
    GcsStorage      gs://bucket/prefix          google-cloud-storage
    HdfsStorage     hdfs://host:port/folder     hdfs-native

    Storage           copies of stores: all but folders     adapter_choice.open_storage
    ReadableStorage   stores: Azure, Google and HDFS        adapter_choice.open_readable_storage
    LakeStorage       tables and packs: folders and S3      adapter_choice.open_lake_storage

An adapter has no connection, so it can be pickled: its clients are those of the process, which retry requests. Files
are written completely or not at all.
"""

from __future__ import annotations

import datetime
import io
import sys
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

from commitlake.connectors.storage.bandwidth_limit import BandwidthLimit
from commitlake.connectors.storage.errors import CloudUnavailableError, ObjectStoreError
from commitlake.schemas.safe_store_files import check_relative_name
from commitlake.schemas.shipped_manifest import MAX_MANIFEST_BYTES, Part

UNKNOWN_CRC = -1
"""Checksum of a file that another program has written, where a server keeps only the checksums that writers give."""


class ReplacedError(Exception):
    """A file is no longer the version that was found: it was replaced or deleted."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """One version of a file: its size, time, checksum and identifier at the server.

    Attributes:
        size: number of bytes.
        modified: time at which it was written.
        version: identifies its content at the server; None if the server gives none.
        crc: CRC-32 of its bytes; `UNKNOWN_CRC`, or None if the server keeps no checksums.
    """

    size: int
    modified: datetime.datetime
    version: Any = None
    crc: int | None = None


@dataclass(frozen=True, slots=True)
class FileContent:
    """All bytes of one version of a file.

    Attributes:
        data: the bytes.
        version: the version, for `Storage.replace`.
    """

    data: bytes
    version: Any


class Storage(ABC):
    """Access to the files below one URI in an object store or HDFS.

    Every method raises an `ObjectStoreError` if the server cannot be reached or refuses a request, and an
    `UnsafeFileError` for a name that is no relative path. In HDFS, a `NotADirectoryError`, `IsADirectoryError`,
    `FileExistsError` or `FileNotFoundError` says that something else has the name of a file or folder.

    Args:
        text: URI of the place.
        pace: limit of the bytes per second; by default there is none.

    Attributes:
        text: URI of the place.
        pace: limit of the bytes per second.
    """

    def __init__(self, text: str, pace: BandwidthLimit | None) -> None:
        self.text = text
        self.pace = pace or BandwidthLimit()

    @abstractmethod
    def check_access(self) -> None:
        """Check that the container or folder exists and is accessible, with few attempts, because a user waits."""

    def check_readable(self) -> None:
        """Check that files below the URI can be listed, with few attempts, as a user waits; the URI need not exist."""
        self.check_access()

    @abstractmethod
    def delete_unfinished_files(self) -> None:
        """Delete the incomplete files that killed writers have left."""

    @abstractmethod
    def names(self, folder: str, limit: int | None = None) -> Iterator[str]:
        """Yield the names of all files in a folder and its subfolders.

        Args:
            folder: the folder; none need exist.
            limit: maximum number of names.
        """

    @abstractmethod
    def head(self, name: str) -> FoundFile | None:
        """Return the newest version of a file, or None if it does not exist."""

    @abstractmethod
    def get(self, name: str, max_bytes: int) -> FileContent | None:
        """Read a file, or return None if it does not exist.

        Raises:
            ObjectStoreError: also if the file is larger than `max_bytes`.
            ReplacedError: if it was replaced again and again meanwhile.
        """

    @abstractmethod
    def get_range(self, name: str, start: int, size: int) -> bytes | None:
        """Return a range of a file, shortened to the end of the file; None if the file does not exist."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Write a file; an existing one is replaced."""

    @abstractmethod
    def put_if(self, name: str, data: bytes, version: Any) -> Any:
        """Write a file if it still has the given version, and return its new version.

        Args:
            name: name of the file.
            data: its new content.
            version: the version; None if no file may exist.

        Raises:
            ReplacedError: if it has another version, which an earlier attempt may have written.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""

    def delete_empty_folder(self, folder: str) -> None:  # noqa: B027 (most places have no such folders)
        """Delete a folder without files; only HDFS has such folders."""

    @abstractmethod
    def compose(self, name: str, parts: Sequence[Part], part_file_name: Callable[[Part], str]) -> None:
        """Write a file as the concatenation of other files, which the server joins if it can.

        Args:
            name: name of the file.
            parts: ranges of the file, in order and without a gap.
            part_file_name: returns the name of the file that has the bytes of a range.

        Raises:
            ObjectStoreError: also if a part has another size, or another checksum as far as it can be compared.
            ReplacedError: if parts were deleted meanwhile.
        """

    def replace(self, name: str, data: bytes, version: Any, was_sent_before: Callable[[bytes], bool]) -> FileContent:
        """Replace a file if it still has the given version.

        Content from an earlier attempt of this process is accepted.

        Args:
            name: name of the file, a manifest.
            data: its new content.
            version: the version; None if no file may exist.
            was_sent_before: whether this process has tried to write some content.

        Returns:
            The present content: `data`, or another one that this process has sent before, which can be replaced next.

        Raises:
            ReplacedError: if another process has replaced or deleted the file.
        """
        try:
            return FileContent(data, self.put_if(name, data, version))
        except ReplacedError:
            # A retry after a lost answer is refused, too, although the first attempt has written the data.
            found = self.get(name, MAX_MANIFEST_BYTES)
            # Other content of the known version means that the refusal had another reason than a writer.
            if found is None or not was_sent_before(found.data) or (found.data != data and found.version == version):
                raise
            return found

    def uri_of(self, name: str) -> str:
        """Return the URI of a file or folder."""
        return f"{self.text}/{name}" if name else self.text

    def too_large_error(self, name: str, max_bytes: int) -> ObjectStoreError:
        """Return the error for a file that is too large to be one that this program has written."""
        return ObjectStoreError(f"{self.uri_of(name)}: expected at most {max_bytes} bytes, found more")

    def check_part(self, name: str, part: Part, data: bytes) -> None:
        """Check that data has the size and checksum that the manifest states for a part.

        Raises:
            ObjectStoreError: if they are not those of the part.
        """
        if (len(data), zlib.crc32(data)) != (part.size, part.crc):
            raise self.changed_part_error(name, part)

    def changed_part_error(self, name: str, part: Part) -> ObjectStoreError:
        """Return the error for a file whose size or CRC-32 differs from those of the expected part."""
        return ObjectStoreError(
            f"{self.uri_of(name)}: expected {part.size} bytes with its CRC-32: the file was changed or deleted"
        )


def check_name(name: str) -> str:
    """Return a name after checking that it is a relative path; it may be empty, for the URI itself.

    Raises:
        UnsafeFileError: if it is not.
    """
    if name:
        check_relative_name(name)
    return name


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A file or folder, as a listing of its folder shows it.

    Attributes:
        name: name without the folder.
        file: the file; None for a folder.
    """

    name: str
    file: FoundFile | None = None


class ReadableStorage(Storage):
    """Access to files below one URI, through which Arrow can read them.

    S3 does not need it: Arrow has its own client for S3.
    """

    @abstractmethod
    def entry(self, name: str) -> FolderEntry | None:
        """Return the file or folder with a name, or None if there is none."""

    @abstractmethod
    def entries(self, folder: str) -> list[FolderEntry]:
        """Return the files and folders in a folder.

        Raises:
            FileNotFoundError: if it does not exist.
            NotADirectoryError: if it is a file.
        """

    @abstractmethod
    def open(self, name: str) -> RangeFile:
        """Open a file that several threads can read.

        Raises:
            FileNotFoundError: if it does not exist.
        """


class LakeStorage(ABC):
    """Access to the files of a lake, below a folder or a URI.

    Every method raises an `ObjectStoreError` if the place cannot be used, and an `UnsafeFileError` for a name that is
    no relative path.

    Attributes:
        text: path or URI of the place.
        place_noun: what such a place is called.
        file_noun: what a file is called there.
    """

    text: str
    place_noun: ClassVar[str]
    file_noun: ClassVar[str]

    @abstractmethod
    def check_access(self) -> None:
        """Check that the bucket or folder is accessible, with few attempts, as a user waits; a folder may not exist."""

    @abstractmethod
    def files(self, prefix: str, suffix: str) -> Iterator[tuple[str, FoundFile]]:
        """Yield the files with a prefix and a suffix, ordered by name within each folder."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes, or None if it does not exist.

        Raises:
            FileError: if this file cannot be read.
        """

    @abstractmethod
    def get_range(self, name: str, start: int, size: int) -> bytes | None:
        """Return a range of a file, shortened to the end of the file; None if the file does not exist.

        Raises:
            FileError: if this file cannot be read.
        """

    @abstractmethod
    def open_write(self, name: str, *, syncs_folders: bool = False) -> AbstractContextManager[Any]:
        """Open a file for writing. It appears, replacing a file of its name, when the block ends without an error.

        Args:
            name: name of the file.
            syncs_folders: whether a crash of the machine may not lose the file's name in its folder, either.
        """

    @abstractmethod
    def put_new(self, name: str, data: bytes) -> bool:
        """Write a file if none has its name, and return whether it was written; of several writers, only one does."""

    @abstractmethod
    def delete_all(self, names: Iterable[str]) -> None:
        """Delete files; missing ones are ignored."""

    @abstractmethod
    def delete_old_unfinished_files(
        self, prefix: str, cutoff: datetime.datetime, may_delete: Callable[[str], bool]
    ) -> int:
        """Delete incomplete files of killed writers, and return how many were deleted.

        Args:
            prefix: beginning of the names of the files.
            cutoff: time; later ones are kept, because their writers may still be running.
            may_delete: whether a file of some name may be deleted.
        """


class RangeFile(io.RawIOBase, ABC):
    """A file for reads of ranges by several threads, which also works as a seekable file."""

    def __init__(self) -> None:
        super().__init__()
        self._position = 0

    @abstractmethod
    def size(self) -> int:
        """Return the number of bytes."""

    @abstractmethod
    def read_at(self, size: int, start: int) -> bytes:
        """Return bytes from a position of the file; fewer than `size` only at the end of the file.

        Args:
            size: maximum number of bytes.
            start: the position.
        """

    def readable(self) -> bool:
        """Return True, because the file can be read."""
        return True

    def seekable(self) -> bool:
        """Return True, because the file can be read at any position."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Set the position of the next read."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size()}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Read from the current position; None or a negative number reads to the end."""
        data = self.read_at(sys.maxsize if size is None or size < 0 else size, self._position)
        self._position += len(data)
        return data


_MAX_LOOKS = 5
"""Attempts to begin to read a file that is being replaced."""


class VersionedFile(RangeFile):
    """A file that may be replaced while it is read; all bytes that it returns are of one version.

    Args:
        place: URI of the file.

    Raises:
        FileNotFoundError: if it does not exist.
    """

    def __init__(self, place: str) -> None:
        super().__init__()
        self._place = place
        self._first_read = threading.Lock()  # never released
        self._version = self._find_newest()

    @abstractmethod
    def newest_version(self) -> Any:
        """Return the newest version, which has a `size` in bytes, or None if there is none."""

    @abstractmethod
    def read_version(self, version: Any, start: int, end: int) -> bytes | None:
        """Return a range of a version, which does not exceed its end; None if the file was deleted.

        Raises:
            ReplacedError: if the file has another version by now.
        """

    def size(self) -> int:
        """Return the number of bytes."""
        return int(self._version.size)

    def read_at(self, size: int, start: int) -> bytes:
        """Return bytes from a position of the file; fewer than `size` only at the end of the file."""
        # A reader that has no data yet, because this is the first read, may switch to a newer version.
        may_switch = self._first_read.acquire(blocking=False) and start == 0
        for _ in range(_MAX_LOOKS):
            version = self._version
            end = min(version.size, start + size)
            if start >= end:
                return b""
            try:
                data = self.read_version(version, start, end)
            except ReplacedError:
                # Bytes of two versions must not be mixed.
                if not may_switch:
                    break
                self._version = self._find_newest()
                continue
            if data is None:
                raise self._missing_error()
            return data
        raise replaced_while_read_error(self._place)

    def _find_newest(self) -> Any:
        found = self.newest_version()
        if found is None:
            raise self._missing_error()
        return found

    def _missing_error(self) -> FileNotFoundError:
        return FileNotFoundError(f"{self._place} does not exist")


def replaced_while_read_error(path_or_uri: str) -> CloudUnavailableError:
    """Return the error for a file that was replaced or deleted during a read."""
    return CloudUnavailableError(f"{path_or_uri} was replaced while it was read", "Run it again")
