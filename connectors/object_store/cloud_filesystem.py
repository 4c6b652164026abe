"""Object stores other than S3 as filesystems of `pyarrow.fs`, for reading.

Paths in such a filesystem are URIs without their scheme. Arrow has a client of its own for some clouds, which takes
other settings, and retries for many minutes where there are no credentials.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import obstore
import pyarrow as pa
import pyarrow.fs as pafs
from obstore.exceptions import PreconditionError

from commitlake.connectors.object_store.cloud_clients import FEW_ATTEMPTS, cloud_client
from commitlake.connectors.object_store.cloud_errors import ERRORS, cloud_error
from commitlake.connectors.object_store.cloud_uris import CloudUri, parse_cloud_uri
from commitlake.connectors.object_store.errors import CloudUnavailableError

_Result = TypeVar("_Result")
_MAX_LOOKS = 5
"""Attempts to begin to read an object that is being replaced."""


def cloud_filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the filesystem of a URI, and the path within it.

    Raises:
        CloudError: if it has not the form of a URI of its scheme.
    """
    place = parse_cloud_uri(uri)
    return pafs.PyFileSystem(_CloudHandler(place.scheme)), place.path


def check_readable(uri: str) -> None:
    """Check that a place can be listed, with few attempts, because a user waits.

    Raises:
        CloudError: if the server cannot be reached, or refuses the listing.
    """
    place = parse_cloud_uri(uri)
    client = cloud_client(place, FEW_ATTEMPTS)
    _asked(place, f"{place} cannot be listed: ", lambda: _first_object(client, place))


class _CloudHandler(pafs.FileSystemHandler):  # type: ignore[misc]  # Arrow has no types
    """Handler of the containers of one scheme; the methods that change a filesystem are refused."""

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme

    def get_type_name(self) -> str:
        """Return the name of this kind of filesystem."""
        return self._scheme

    def equals(self, other: Any) -> bool:
        """Return whether another handler has the same objects."""
        return isinstance(other, _CloudHandler) and other.get_type_name() == self._scheme

    def __eq__(self, other: object) -> bool:
        return self.equals(other)

    def __hash__(self) -> int:
        return hash(self._scheme)

    def normalize_path(self, path: str) -> str:
        """Return the path that is used in requests."""
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[pafs.FileInfo]:
        """Return the kind and size of files and folders; a folder exists if an object is in it."""
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """Return the files and folders in a folder."""
        if selector.recursive:
            raise NotImplementedError
        folder = self._uri(selector.base_dir)
        client = cloud_client(folder)
        found: Any = _asked(
            folder,
            f"{folder} cannot be listed: ",
            lambda: obstore.list_with_delimiter(client, folder.prefix or None),
        )
        objects = {each["path"]: each for each in found["objects"]}
        folders = set(found["common_prefixes"])
        if not objects and not folders and not selector.allow_not_found:
            raise FileNotFoundError(f"{folder} does not exist")
        root = folder.authority
        return [
            *(pafs.FileInfo(f"{root}/{name}", pafs.FileType.Directory) for name in sorted(folders)),
            # With hierarchical namespaces, a folder is also an object.
            *(_file_info(root, each) for name, each in sorted(objects.items()) if name not in folders),
        ]

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open an object for reads at any position."""
        return pa.PythonFile(_CloudFile(self._uri(path)), mode="r")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Open an object to read it from its beginning."""
        return self.open_input_file(path)

    def _uri(self, path: str) -> CloudUri:
        authority, _, prefix = path.partition("/")
        return CloudUri(self._scheme, authority, prefix.strip("/"))

    def _info(self, path: str) -> pafs.FileInfo:
        uri = self._uri(path)
        client = cloud_client(uri)
        if _asked(uri, f"{uri} cannot be listed: ", lambda: _first_object(client, uri)):
            return pafs.FileInfo(path, pafs.FileType.Directory)
        if not uri.prefix:
            return pafs.FileInfo(path, pafs.FileType.Directory)
        try:
            found = obstore.head(client, uri.prefix)
        except FileNotFoundError:
            return pafs.FileInfo(path, pafs.FileType.NotFound)
        except ERRORS as error:
            raise cloud_error(error, uri, f"{uri} cannot be read: ") from None
        return pafs.FileInfo(path, pafs.FileType.File, size=found["size"], mtime=found["last_modified"])

    def _refuse(self, *arguments: Any, **named: Any) -> NoReturn:
        raise NotImplementedError("this filesystem is only read")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse


class _CloudFile(io.RawIOBase):
    """An object that is read by ranges.

    Raises:
        FileNotFoundError: if it does not exist.
    """

    def __init__(self, uri: CloudUri) -> None:
        super().__init__()
        self._uri, self._client = uri, cloud_client(uri)
        self._position = 0
        self._look()

    def _look(self) -> None:
        found = self._get(lambda: obstore.head(self._client, self._uri.prefix))
        self._size, self._version = int(found["size"]), found["e_tag"]

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Set the position of the next read."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Read from the position; less only at the end of the object."""
        for _ in range(_MAX_LOOKS):
            end = self._size if size is None or size < 0 else min(self._size, self._position + size)
            if self._position >= end:
                return b""
            try:
                data = self._read_range(self._position, end)
            except PreconditionError:
                if self._position:
                    break
                self._look()
            else:
                self._position = end
                return data
        raise CloudUnavailableError(f"{self._uri} was replaced while it was read", "Run it again")

    def _read_range(self, start: int, end: int) -> bytes:
        """Read a range of the object that was looked at; of a newer one, it could be cut anywhere."""
        options: Any = {"range": (start, end)}
        if self._version:
            options["if_match"] = self._version
        return bytes(self._get(lambda: obstore.get(self._client, self._uri.prefix, options=options).bytes()))

    def _get(self, request: Callable[[], Any]) -> Any:
        try:
            return request()
        except PreconditionError:
            raise
        except FileNotFoundError:
            raise FileNotFoundError(f"{self._uri} does not exist") from None
        except ERRORS as error:
            raise cloud_error(error, self._uri, f"{self._uri} cannot be read: ") from None


def _first_object(client: Any, folder: CloudUri) -> bool:
    """Return whether there is an object in a folder."""
    prefix = f"{folder.prefix}/" if folder.prefix else None
    return any(page for page in obstore.list(client, prefix, chunk_size=1))


def _asked(uri: CloudUri, what: str, request: Callable[[], _Result]) -> _Result:
    try:
        return request()
    except ERRORS as error:
        raise cloud_error(error, uri, what) from None


def _file_info(root: str, found: Any) -> pafs.FileInfo:
    return pafs.FileInfo(
        f"{root}/{found['path']}", pafs.FileType.File, size=found["size"], mtime=found["last_modified"]
    )
