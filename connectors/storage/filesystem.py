"""Adapters that let Arrow read Azure's and Google's object stores and HDFS as filesystems of `pyarrow.fs`.

Paths in such a filesystem are URIs without their scheme. Arrow's own clients for some clouds take other settings, and
retry for many minutes if there are no credentials; its client for HDFS needs a JVM and a native library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.fs as pafs

from commitlake.connectors.storage.adapter_choice import open_readable_storage
from commitlake.connectors.storage.storage import FolderEntry, RangeFile, ReadableStorage


def open_filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the filesystem of a URI, and the path within it.

    Raises:
        CloudError: if it has not the form of a URI of its scheme.
    """
    scheme, _, path = open_readable_storage(uri).text.partition("://")
    return pafs.PyFileSystem(StorageHandler(scheme)), path


class StorageHandler(pafs.FileSystemHandler):  # type: ignore[misc]  # Arrow has no types
    """Read-only Arrow filesystem for all URIs with one scheme, such as `hdfs`."""

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme

    def get_type_name(self) -> str:
        """Return the name of this kind of filesystem."""
        return self._scheme

    def equals(self, other: Any) -> bool:
        """Return whether another handler serves the same files."""
        return isinstance(other, StorageHandler) and other.get_type_name() == self._scheme

    def __eq__(self, other: object) -> bool:
        return self.equals(other)

    def __hash__(self) -> int:
        return hash(self._scheme)

    def normalize_path(self, path: str) -> str:
        """Return a path unchanged, because it is already in normal form."""
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[pafs.FileInfo]:
        """Return the kind and size of files and folders."""
        return [self._path_info(path) for path in paths]

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """Return the files and folders in a folder."""
        if selector.recursive:
            raise NotImplementedError
        storage, name = self._storage_and_name(selector.base_dir)
        try:
            found = storage.entries(name)
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise
        folder = selector.base_dir.rstrip("/")
        return [_file_info(f"{folder}/{entry.name}", entry) for entry in found]

    def open_for_range_reads(self, path: str) -> RangeFile:
        """Open a file for reads of ranges by several threads.

        Raises:
            FileNotFoundError: if it does not exist.
        """
        storage, name = self._storage_and_name(path)
        return storage.open(name)

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file for reads at any position."""
        return pa.PythonFile(self.open_for_range_reads(path), mode="r")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Open a file for reading from its beginning."""
        return self.open_input_file(path)

    def _storage_and_name(self, path: str) -> tuple[ReadableStorage, str]:
        authority, _, name = path.partition("/")
        return open_readable_storage(f"{self._scheme}://{authority}"), name.strip("/")

    def _path_info(self, path: str) -> pafs.FileInfo:
        storage, name = self._storage_and_name(path)
        found = storage.entry(name)
        return pafs.FileInfo(path, pafs.FileType.NotFound) if found is None else _file_info(path, found)

    def _refuse_write(self, *arguments: Any, **named: Any) -> NoReturn:
        raise NotImplementedError("this file system is read-only: it cannot be changed through this adapter")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse_write
    move = copy_file = open_output_stream = open_append_stream = _refuse_write


def _file_info(path: str, entry: FolderEntry) -> pafs.FileInfo:
    if entry.file is None:
        return pafs.FileInfo(path, pafs.FileType.Directory)
    return pafs.FileInfo(path, pafs.FileType.File, size=entry.file.size, mtime=entry.file.modified)
