"""The files of a Delta table's log: listed, read and replaced in a folder or in an object store."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake.exceptions import TableNotFoundError

from commitlake.connectors.lake.delta_log.file_names import LOG, POINTER, SEALS
from commitlake.connectors.lake.delta_log.newest_versions import read_newest_version, write_newest_version
from commitlake.connectors.lake.delta_log.versions import StorageOptions, table_filesystem
from commitlake.connectors.lake.paths import local_folder_or_none
from commitlake.connectors.storage.adapter_choice import open_lake_storage
from commitlake.connectors.storage.s3_options import S3Options

_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.\d{10}|\.[0-9a-f-]{36})?\.(?:parquet|json)")

_Listed = list[tuple[str, int, int]]
"""Name, size and modification time in nanoseconds of each file of a folder."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of a table's Delta log: its name, version and size.

    Attributes:
        name: name without the folder.
        version: version of the entry or checkpoint.
        size: size in bytes.
        mtime_ns: modification time; 0 if unknown.
    """

    name: str
    version: int
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class LogListing:
    """The files of a log, by version.

    Attributes:
        entries: the log's entries.
        checkpoints: the parts of each checkpoint.
        seals: names of the seals, newest first, see `delta_log.seals`.
        has_pointer: whether `_last_checkpoint` exists.
        noted: the newest version recorded in the lake, see `newest_versions`; -1 for none.
    """

    entries: dict[int, LogFile] = field(default_factory=dict)
    checkpoints: dict[int, list[LogFile]] = field(default_factory=dict)
    seals: list[str] = field(default_factory=list)
    has_pointer: bool = False
    noted: int = -1

    @property
    def checkpoint_version(self) -> int:
        """Return the version of the newest checkpoint, from which readers start; -1 if there is none."""
        return max(self.checkpoints, default=-1)

    @property
    def newest_version(self) -> int:
        """Return the newest version; -1 for an empty log."""
        return max([self.checkpoint_version, *self.entries])


class LogFolder:
    """Access to the files of one table's log.

    Args:
        table_uri: path or URI of the table.
        storage_options: deltalake's options for an object store.
        s3: the object store to write to; by default that of the environment.
    """

    def __init__(self, table_uri: str, storage_options: StorageOptions = None, s3: S3Options | None = None) -> None:
        self.table_uri = table_uri
        self._s3 = s3
        self._options = storage_options
        self._folder = local_folder_or_none(table_uri)
        if self._folder is not None and not self._folder.is_dir():
            raise TableNotFoundError(f"{table_uri}: expected a folder with a Delta table, found no such folder")

    @cached_property
    def filesystem(self) -> pafs.FileSystem:
        """A filesystem whose root is the table's folder."""
        return table_filesystem(self.table_uri, self._options)

    def read_listing(self) -> LogListing:
        """List the log; the listing is empty for a table without one."""
        # Seals and note are read first; otherwise, those added meanwhile would seem to lack their entries.
        noted = read_newest_version(self.table_uri, self._options)
        seals = sorted((name for name, _, _ in self._list_files(SEALS) if _ENTRY.fullmatch(name)), reverse=True)
        return replace(self.list_entry_files(), seals=seals, noted=noted)

    def list_entry_files(self) -> LogListing:
        """List the log's entries and checkpoints, in one request, without the other files of the log."""
        found = LogListing()
        has_pointer = False
        for name, size, mtime_ns in self._list_files(LOG):
            has_pointer |= name == POINTER
            if entry := _ENTRY.fullmatch(name):
                version = int(entry[1])
                found.entries[version] = LogFile(name, version, size, mtime_ns)
            elif checkpoint := _CHECKPOINT.fullmatch(name):
                version = int(checkpoint[1])
                found.checkpoints.setdefault(version, []).append(LogFile(name, version, size, mtime_ns))
        return replace(found, has_pointer=has_pointer)

    def read(self, name: str, folder: str = LOG) -> bytes:
        """Read a file of the log.

        Raises:
            FileNotFoundError: if it does not exist.
        """
        if self._folder is not None:
            return (self._folder / folder / name).read_bytes()
        with self.filesystem.open_input_stream(f"{folder}/{name}", compression=None) as source:
            return bytes(source.read())

    def open(self, name: str) -> pa.NativeFile:
        """Open a file of the log, to read parts of it.

        Raises:
            FileNotFoundError: if it does not exist.
        """
        return self.filesystem.open_input_file(f"{LOG}/{name}")

    def write(self, name: str, data: bytes, folder: str = LOG) -> None:
        """Write a file of the log, or replace it as a whole."""
        # deltalake's own streams do not accept bytes from pyarrow.
        storage = open_lake_storage(str(self._folder or self.table_uri), self._s3)
        with storage.open_write(f"{folder}/{name}") as output:
            output.write(data)

    def record_newest_version(self, version: int) -> None:
        """Record the table's newest version in the lake, beside the table."""
        write_newest_version(self.table_uri, version, self._s3)

    def delete(self, name: str, folder: str = LOG) -> None:
        """Delete a file of the log, if it exists."""
        with suppress(FileNotFoundError):
            self.filesystem.delete_file(f"{folder}/{name}")

    def _list_files(self, folder: str) -> _Listed:
        if self._folder is not None:
            return _list_folder(self._folder / folder)
        infos = self.filesystem.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
        return [(info.base_name, info.size, info.mtime_ns or 0) for info in infos if info.is_file]


def entry_name(version: int) -> str:
    """Return the file name of a version's log entry; the file with the version's checksums has the same name."""
    return f"{version:020d}.json"


def _list_folder(folder: Path) -> _Listed:
    """Return the files of a folder; none if it does not exist. deltalake's own listing takes ten times as long."""
    found = []
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # deleted meanwhile
                status = entry.stat()
                if stat.S_ISREG(status.st_mode):
                    found.append((entry.name, status.st_size, status.st_mtime_ns))
    return found
