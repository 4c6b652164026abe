"""Stores that `commitlake ship` copied to an object store: their manifest, and the segment that is still in parts.

See `schemas.shipped_manifest`. The manifest says which segments a prefix has; other objects are ignored. A segment that
is not complete reads like the broker's own file: the shipped bytes, then zeros up to its size. While it is read, an
agent may merge its parts, or make the segment's object of them. The bytes stay the same, so a reader that misses a part
reads the manifest again, and continues.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files.remote_files import RemoteFile
from commitlake.connectors.storage.adapter_choice import is_read_by_adapter
from commitlake.connectors.storage.uris import check_scheme, is_uri
from commitlake.schemas.safe_store_files import MAX_SMALL_FILE_BYTES, UnsafeFileError, read_file
from commitlake.schemas.shipped_manifest import (
    FILES_MANIFEST,
    LOG_MANIFEST,
    MAX_MANIFEST_BYTES,
    Manifest,
    ManifestError,
    Part,
    ShippedFile,
    is_version_name,
    parse_manifest,
    part_name,
)

_SPECIAL = re.compile(r"[\[{]")
_PLAIN_S3_URI = re.compile(r"s3://(?P<path>(?P<bucket>[A-Za-z0-9.-]+)(?:/[A-Za-z0-9._=+,:/-]*)?)")  # nothing is escaped
_URI_ERROR = "{path} cannot be opened: {error}"
_OF_NAMES = frozenset({errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.EILSEQ})
_MAKING, _READING_LARGE = threading.Lock(), threading.Lock()
_LARGE_MANIFEST_BYTES = 1 << 20
_ATTEMPTS = 5  # each needs a new manifest, so more are never needed unless parts are missing


def read_shipped_manifest(
    filesystem: pafs.FileSystem, store: str, manifest_name: str = LOG_MANIFEST
) -> Manifest | None:
    """Return the manifest of a store's log or other files, or None if no agent has shipped the store.

    Args:
        store: the store's folder in it.
        manifest_name: `LOG_MANIFEST` or `FILES_MANIFEST`.

    Raises:
        StoreError: if the manifest is damaged, or in the form that only HDFS has.
    """
    place = f"{store}/{manifest_name}"
    try:
        if isinstance(filesystem, pafs.LocalFileSystem):
            return parse_manifest(read_file(Path(place), trusted_root=Path(store), limit=MAX_MANIFEST_BYTES), place)
        with filesystem.open_input_file(place) as file:
            is_large = file.size() > _LARGE_MANIFEST_BYTES  # its objects need ten times as much
            # One large manifest at a time, because many stores are listed at once.
            with _READING_LARGE if is_large else nullcontext():
                return parse_manifest(file.read(MAX_MANIFEST_BYTES), place)
    except (FileNotFoundError, NotADirectoryError):
        # In HDFS's form the manifest is a folder, and "missing" would be the wrong message.
        check_no_versions(filesystem, place)
        return None
    except UnsafeFileError:
        check_no_versions(filesystem, place)
        raise
    except ManifestError as error:
        check_no_versions(filesystem, place)  # some object stores have objects for folders
        raise StoreError(str(error)) from None


def check_no_versions(filesystem: pafs.FileSystem, manifest_path: str) -> None:
    """Refuse a manifest that is a folder of versions, as in HDFS, because only the adapter for HDFS can read it.

    Args:
        manifest_path: path of the manifest in it.

    Raises:
        StoreError: if a version is there.
    """
    if filesystem.type_name == "py::hdfs":
        return
    try:
        found = filesystem.get_file_info(pafs.FileSelector(manifest_path, allow_not_found=True))
    except NotADirectoryError:
        return
    if any(is_version_name(entry.base_name) for entry in found):
        raise StoreError(
            f"{manifest_path} is a folder, as in HDFS: another tool moved the copy out of HDFS, and its newest records "
            "cannot be found. Fetch the copy by 'commitlake ship --store hdfs://… --to FOLDER --once'"
        )


def resolve_filesystem(path: str) -> tuple[pafs.FileSystem, str]:
    """Return the filesystem of a path or URI, and the path within it.

    A URI may have a glob's brackets and placeholders in it, which URIs do not allow.

    Raises:
        CloudError: if the scheme is unknown, or the URI has not the form of its scheme.
        StoreError: if Arrow cannot open it.
    """
    if is_uri(path):
        # Only the part before the pattern is given to the parser of URIs.
        if (special := _SPECIAL.search(path)) is not None:
            fixed = path[: path.rindex("/", 0, special.start())]
            filesystem, inner_path = resolve_filesystem(fixed)
            return filesystem, inner_path.rstrip("/") + path[len(fixed) :]
        if is_read_by_adapter(path):
            from commitlake.connectors.storage.filesystem import open_filesystem  # noqa: PLC0415 (needs extras)

            return open_filesystem(path)
        check_scheme(path)
        try:
            if (plain := _PLAIN_S3_URI.fullmatch(path)) is not None:
                return _get_bucket_filesystem(plain["bucket"]), plain["path"].rstrip("/")
            filesystem, inner_path = pafs.FileSystem.from_uri(path)
        except (pa.ArrowException, OSError) as error:
            raise StoreError(_URI_ERROR.format(path=path, error=str(error).splitlines()[0])) from None
        return filesystem, str(inner_path)
    return pafs.LocalFileSystem(), str(Path(path).absolute())


def _get_bucket_filesystem(bucket: str) -> pafs.FileSystem:
    # Another thread may be removing variables.
    names = sorted(name for name in list(os.environ) if name.startswith("AWS_"))
    settings = tuple((name, os.environ.get(name, "")) for name in names)
    # Two threads would otherwise both make a client for the same bucket.
    with _MAKING:
        # The process id is part of the key, because Arrow's client does not survive a fork.
        return _open_bucket_filesystem(bucket, settings, os.getpid())


@lru_cache(maxsize=8)
def _open_bucket_filesystem(bucket: str, settings: tuple[tuple[str, str], ...], process_id: int) -> pafs.FileSystem:  # noqa: ARG001
    """Return Arrow's client of a bucket, cached because a new one takes a request and opens connections of its own.

    Args:
        settings: variables of the environment that the client reads; another environment needs another client.
        process_id: id of this process; a client does not survive a fork.
    """
    filesystem, _ = pafs.FileSystem.from_uri(f"s3://{bucket}")
    return filesystem


class MultiPartFile:
    """File of a copied store that is stored in several parts, which several threads can read.

    Args:
        filesystem: the filesystem of the store.
        store: the store's folder in it.
        name: path of the file in the store.
        entry: its entry in a manifest; None to read the manifests.
        newer_entry: returns the entry of a newer manifest, for one of which a part is missing; raises StoreError if
            there is none with the same bytes. None to read the manifests for this file alone.

    Raises:
        FileNotFoundError: if the manifests do not name it.
    """

    def __init__(
        self,
        filesystem: pafs.FileSystem,
        store: str,
        name: str,
        entry: ShippedFile | None = None,
        newer_entry: Callable[[ShippedFile], ShippedFile] | None = None,
    ) -> None:
        self._filesystem = filesystem
        self._newer_entry = newer_entry
        self._store, self._name = store, name
        self._path = f"{store}/{name}"
        self._open: dict[str, RemoteFile] = {}
        self._is_closed, self._looking = False, threading.Lock()
        self._entry = self._find_entry() if entry is None else entry

    def read_at(self, size: int, position: int) -> Array:
        """Return bytes from a position of the file, fewer than `size` only at the end of the file."""
        window = np.empty(size, np.uint8)
        return window[: self.read_into(window, position)]

    def read_into(self, window: Array, position: int) -> int:
        """Fill `window` from a position of the file; return the number of bytes read."""
        # The manifest may be older than the objects: an agent has merged some parts meanwhile.
        for _ in range(_ATTEMPTS):
            entry = self._entry
            with suppress(FileNotFoundError):
                return self._read_bytes(entry, window, position)
            with self._looking:
                if self._entry is entry:  # else another thread has looked
                    self._open = {}  # not closed here: other threads may read these, and the last one drops them
                    self._entry = self._find_entry() if self._newer_entry is None else self._newer_entry(entry)
                    if self._entry == entry:
                        break  # a part is deleted only after a manifest without it was written
        raise StoreError(
            f"{self._path}: a part that the manifest lists is missing in {self._store}/shipped: run 'commitlake ship' "
            "on the broker's machine again"
        )

    def size(self) -> int:
        """Return the size of the broker's file."""
        return self._entry.size

    def close(self) -> None:
        """Close the objects, without waiting for threads that still read them."""
        self._is_closed = True
        for file in list(self._open.values()):
            file.close()

    def _find_entry(self) -> ShippedFile:
        for name in (LOG_MANIFEST, FILES_MANIFEST):
            manifest = read_shipped_manifest(self._filesystem, self._store, name)
            if manifest is not None and self._name in manifest.files:
                return manifest.files[self._name]
        raise FileNotFoundError(f"{self._path} does not exist")

    def _read_bytes(self, entry: ShippedFile, window: Array, position: int) -> int:
        wanted = max(0, min(len(window), entry.size - position))
        if entry.is_sealed:
            return self._open_object(self._path).read_into(window[:wanted], position)
        end = position + wanted
        # Parts are in order and without gaps, so each byte comes from exactly one.
        for part in entry.parts:
            begin, stop = max(position, part.offset), min(end, part.end)
            if begin < stop:
                self._read_part(part, window[begin - position : stop - position], begin)
        # What is not shipped is zeros in the broker's file, too, as far as a reader can tell.
        window[max(0, entry.shipped_bytes - position) : wanted] = 0
        return wanted

    def _read_part(self, part: Part, window: Array, begin: int) -> None:
        name = part_name(self._name, part)
        if self._open_object(f"{self._store}/{name}").read_into(window, begin - part.offset) != len(window):
            raise StoreError(f"{self._store}/{name}: expected {part.size} bytes, found fewer: the object was changed")

    def _open_object(self, path: str) -> RemoteFile:
        opened = self._open
        if path not in opened:
            file = RemoteFile(self._filesystem, path)
            # `_open` may be replaced by another thread meanwhile, hence the local name.
            if opened.setdefault(path, file) is not file:
                file.close()  # another thread was faster
            # The file was closed while this object was opened, so nobody else would close it.
            elif self._is_closed:
                file.close()
        return opened[path]


def shipped_file_sizes(manifest: Manifest, folder: str, object_sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the names of the shipped files in a folder, with their sizes.

    A complete file that is not listed has expired in the target.

    Args:
        manifest: the manifest that has the files of the folder.
        folder: path of the folder in the store.
        object_sizes: sizes of the objects in the folder, by name.
    """
    found = {}
    for path, file in manifest.files.items():
        parent, _, name = path.rpartition("/")
        if parent == folder and (name in object_sizes or not file.is_sealed):
            found[name] = object_sizes[name] if file.is_sealed else file.size
    return found


@contextmanager
def open_small_files_folder(store_root: str, *, with_topics: bool = False) -> Iterator[Path | None]:
    """Yield a local folder with a store's settings, offsets and checkpoint, with their modification times.

    It is the store's own folder; for a store that was shipped to an object store, it is a temporary copy of these
    files; for another store in an object store it is None, because the times of its files are not known.

    Args:
        store_root: path or URI of the folder of the store's log.
        with_topics: whether a temporary copy has an empty folder for each topic that has queues.

    Raises:
        StoreError: if a manifest is damaged or has names that no file can have, or a file is too large.
    """
    if not is_uri(store_root):
        yield Path(store_root).parent
        return
    filesystem, root = resolve_filesystem(store_root)
    store = root.rsplit("/", 1)[0]
    manifest = read_shipped_manifest(filesystem, store, FILES_MANIFEST)
    if manifest is None:
        yield None
        return
    small = [file for file in manifest.files.values() if file.modified_ms]
    topics = {"/".join(name.split("/")[:2]) for name in manifest.files if name.count("/") > 1} if with_topics else set()
    del manifest  # it may be large, and many stores may be read at a time
    with tempfile.TemporaryDirectory(prefix="commitlake-small-files-") as folder:
        with _convert_name_errors(f"{store}/{FILES_MANIFEST}"):
            for topic in topics:
                (Path(folder) / topic).mkdir(parents=True, exist_ok=True)
            for file in small:
                _copy_small_file(filesystem, store, file, Path(folder) / file.name)
        yield Path(folder)


@contextmanager
def _convert_name_errors(manifest: str) -> Iterator[None]:
    """Convert errors about impossible or conflicting file names in a manifest to a StoreError."""
    try:
        yield
    except OSError as error:
        if error.errno not in _OF_NAMES:
            raise
        raise StoreError(f"{manifest}: lists a file whose name is not possible here: {error.strerror}") from None


def _copy_small_file(filesystem: pafs.FileSystem, store: str, file: ShippedFile, path: Path) -> None:
    """Copy a small file. Its content may be newer than the manifest, because an agent writes the file first."""
    if file.size > MAX_SMALL_FILE_BYTES:
        raise StoreError(
            f"{store}/{file.name}: expected a file of at most {MAX_SMALL_FILE_BYTES} bytes, found {file.size} bytes"
        )
    # Listed but deleted: a broker has removed it, as it does with its abort file.
    with suppress(FileNotFoundError), filesystem.open_input_file(f"{store}/{file.name}") as source:
        data = source.read(MAX_SMALL_FILE_BYTES)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        # The times tell when the broker wrote offsets, which readers compare with the log.
        os.utime(path, ns=(file.modified_ms * 1_000_000, file.modified_ms * 1_000_000))
