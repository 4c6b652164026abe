"""The place for packs, in a folder or in an object store."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol
from urllib.parse import unquote, urlsplit

from commitlake.connectors.lake.packs.errors import (
    PackError,
    PackNameError,
    PackStoreError,
)
from commitlake.connectors.lake.packs.location import PackLocation
from commitlake.connectors.lake.packs.names import PackFile, PackPlace, parse_pack_name
from commitlake.connectors.storage.adapter_choice import open_lake_storage
from commitlake.connectors.storage.errors import FileError, ObjectStoreError
from commitlake.connectors.storage.folder_storage import FolderStorage
from commitlake.connectors.storage.storage import LakeStorage
from commitlake.connectors.storage.uris import has_scheme

_DATES = "store_date="
"""Beginning of the names of all packs."""
_EXPIRED = "Has it expired by a lifecycle rule? If not, restore it from a backup of the lake"


class PackOutput(Protocol):
    """A file-like output for a new pack's bytes."""

    def write(self, data: memoryview, /) -> object:
        """Write all of `data`."""
        ...


class _CallerError(Exception):
    """Wrapper for an exception of the caller's own code, so that it is not converted like an error of the store."""

    def __init__(self, error: ObjectStoreError) -> None:
        super().__init__(error)
        self.error = error


class PackStore:
    """A store of packs (files with message bodies), by name; it can be pickled. A file with a pack's name is complete.

    Every method raises a `PackNameError` for a name that `parse_pack_name` refuses, and a `PackStoreError` if the place
    cannot be used.

    Args:
        storage: the place.

    Attributes:
        merged_places: places of packs that `merged_packs` has found in merged ones: their next bodies need no search.
    """

    def __init__(self, storage: LakeStorage) -> None:
        self._storage = storage
        self.merged_places: dict[str, PackPlace] = {}

    @contextmanager
    def open_write(self, name: str) -> Iterator[PackOutput]:
        """Open a new pack for writing.

        It appears, replacing a pack of its name, when the block ends without an error.
        """
        parse_pack_name(name)
        try:
            with (
                self._convert_errors(f"{name} to be written"),
                self._storage.open_write(name, syncs_folders=True) as output,
            ):
                try:
                    yield output
                except ObjectStoreError as error:  # of another place, which the block reads
                    raise _CallerError(error) from None
        except _CallerError as failed:
            raise failed.error from failed.error.__cause__

    def read_range(self, name: str, offset: int, length: int) -> bytes:
        """Read a range of a pack; the result is shorter only at the end of the pack.

        Raises:
            PackError: if the pack does not exist, or is not readable.
        """
        parse_pack_name(name)
        with self._convert_errors(f"{name} to be read", name):
            data = self._storage.get_range(name, offset, length)
        if data is None:
            raise self._missing_error(name)
        return data

    def size(self, name: str) -> int:
        """Return the size of a pack in bytes.

        Raises:
            PackError: as for `read_range`.
        """
        parse_pack_name(name)
        with self._convert_errors(f"{name} to be read", name):
            size = self._storage.size(name)
        if size is None:
            raise self._missing_error(name)
        return size

    def check_writable(self) -> None:
        """Check before a job begins that packs can be stored here; a folder need not exist yet."""
        with self._convert_errors(f"{self._storage.place_noun} to write to"):
            self._storage.check_access()

    def list_packs(self, folder: str = "") -> Iterator[PackFile]:
        """Yield all packs, or those of one date and broker; other files are skipped.

        Args:
            folder: only those of one date and broker: the part of a pack's name before the last '/'.
        """
        with self._convert_errors("packs to be listed"):
            for name, found in self._storage.files(f"{folder}/" if folder else _DATES, ".zst"):
                with suppress(PackNameError):
                    yield PackFile(name, parse_pack_name(name).store_date, found.size, found.modified)

    def delete(self, names: Iterable[str]) -> None:
        """Delete packs; missing ones are ignored."""
        known = list(names)
        for name in known:
            parse_pack_name(name)
        with self._convert_errors("packs to be deleted"):
            self._storage.delete_all(known)

    def delete_unfinished_packs(self, older_than: datetime.datetime) -> int:
        """Delete files that killed writers left unfinished, and return their number.

        Args:
            older_than: time; later files are kept, because their writers may still be running.
        """
        with self._convert_errors("unfinished packs to be deleted"):
            return self._storage.delete_old_unfinished_files(_DATES, older_than, _is_pack_name)

    @contextmanager
    def _convert_errors(self, expected: str, name: str = "") -> Iterator[None]:
        """Convert errors of the folder or object store; an error about one file becomes an error of that pack."""
        try:
            yield
        except FileError as error:
            raise PackError(name, error.offset, error.expected, error.cause, error.advice) from None
        except ObjectStoreError as error:
            raise PackStoreError(
                self._storage.text, expected, error.cause, error.advice, is_transient=error.is_transient
            ) from None

    def _missing_error(self, name: str) -> PackError:
        return PackError(name, None, f"{self._storage.file_noun} in {self._storage.text}", "none", _EXPIRED)


def open_pack_store(location: PackLocation) -> PackStore:
    """Return the store of the packs with a lake's message bodies.

    Args:
        location: `Lake.packs`.

    Raises:
        PackStoreError: if packs cannot be stored in this kind of place.
        S3Error: if it is in an object store and names no bucket.
    """
    root = location.root
    if location.s3 is not None:
        return PackStore(open_lake_storage(root, location.s3))
    if has_scheme(root) or root.startswith("file:"):
        parts = urlsplit(root)
        if parts.scheme != "file" or parts.netloc not in {"", "localhost"}:
            expected = "a folder of this machine, a file: URI, or s3://bucket/prefix"
            raise PackStoreError(root, expected, f"{parts.scheme}:", "Correct --bodies")
        root = unquote(parts.path)
    return PackStore(FolderStorage(root, may_be_link=True))


def _is_pack_name(name: str) -> bool:
    try:
        parse_pack_name(name)
    except PackNameError:
        return False
    return True
