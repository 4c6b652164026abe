"""A target in an object store or HDFS.

Each part is a file, whose name contains its range and checksum, see `schemas.shipped_manifest`. A complete file is made
of its parts, by the server if it can join them, and appears once its last byte has been written. There are no locks: a
manifest is replaced only if it is the version that this agent knows, so of two agents, one ends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from commitlake.connectors.shipping.ship_target import ShipError, ShipNameError, ShipTarget, ShipUnavailableError
from commitlake.connectors.storage.errors import CloudNameError, ObjectStoreError
from commitlake.connectors.storage.storage import ReplacedError, Storage
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.shipped_manifest import MAX_MANIFEST_BYTES, PARTS, Part, ShippedFile, part_name


class StorageTarget(ShipTarget):
    """Target in an object store or HDFS; in HDFS, its folder is created if it does not exist.

    Args:
        storage: the place, which limits the bandwidth.
    """

    has_parts = True

    def __init__(self, storage: Storage) -> None:
        self.text = storage.text
        self._storage = storage
        self._versions: dict[str, Any] = {}
        self._tried: dict[str, set[bytes]] = {}  # SHA-256 of manifests that may have been written

    def claim(self) -> None:
        """Check that the target is accessible; it needs no lock, because a manifest is replaced only if unchanged."""
        with self._convert_errors(""):
            self._storage.check_access()
            self._storage.delete_unfinished_files()

    def close(self) -> None:
        """Do nothing, because objects cannot be locked."""

    def list_names(self, folder: str, limit: int) -> list[str]:
        """Return the names of at most `limit` files in a folder."""
        with self._convert_errors(folder):
            return [name.removeprefix(f"{folder}/") for name in self._storage.names(folder, limit)]

    def read_manifest(self, name: str) -> bytes | None:
        """Return the content of a manifest, or None if there is none."""
        with self._convert_errors(name):
            found = self._storage.get(name, MAX_MANIFEST_BYTES)
        self._versions[name] = None if found is None else found.version
        return None if found is None else found.data

    def read_range(self, name: str, offset: int, size: int) -> bytes | None:
        """Return a range of a file, shorter at the file's end; None if the file does not exist."""
        with self._convert_errors(name):
            return self._storage.get_range(name, offset, size)

    def replace_manifest(self, name: str, data: bytes) -> None:
        """Replace a manifest, unless another agent has changed it."""
        tried = self._tried.setdefault(name, set())
        tried.add(_digest(data))
        while True:
            known = self._versions.get(name)
            with self._convert_errors(name):
                found = self._storage.replace(name, data, known, lambda content: _digest(content) in tried)
            self._versions[name] = found.version
            if found.data == data:
                tried.clear()
                return

    def write_file(self, name: str, data: bytes, modified_ms: int = 0) -> None:  # noqa: ARG002
        """Write a small file completely or not at all."""
        with self._convert_errors(name):
            self._storage.put(name, data)

    def delete(self, name: str) -> None:
        """Delete a small file or a part, if it exists."""
        with self._convert_errors(name):
            self._storage.delete(name)

    def write_part(self, file: ShippedFile, part: Part, data: bytes) -> None:
        """Write a part of a file as a file of its own."""
        self.write_file(part_name(file.name, part), data)

    def has_part(self, file: ShippedFile, part: Part) -> bool:
        """Return whether a part exists with its size and, if the storage knows it, its checksum."""
        with self._convert_errors(file.name):
            found = self._storage.head(part_name(file.name, part))
        return found is not None and found.size == part.size and found.crc in {None, part.crc}

    def drop_parts(self, file: ShippedFile, parts: Iterable[Part]) -> None:
        """Delete parts that the manifest no longer names, and their folder if it is then empty."""
        for part in parts:
            self.delete(part_name(file.name, part))
        with self._convert_errors(file.name):
            self._storage.delete_empty_folder(f"{PARTS}/of-{file.name}")

    def part_names(self) -> Iterator[str]:
        """Yield the names of all parts in the target."""
        with self._convert_errors(PARTS):
            yield from self._storage.names(PARTS)

    def truncate(self, file: ShippedFile, end: int) -> None:
        """Do nothing, because the parts are deleted later, once a manifest without them is written."""

    def seal(self, file: ShippedFile) -> None:
        """Create the complete file from its parts, and check its size."""
        if not file.parts:
            self.write_file(file.name, b"")
            return
        with self._convert_errors(file.name):
            self._storage.compose(file.name, file.parts, lambda part: part_name(file.name, part))
        found = self.sealed_size(file)
        if found != file.size:
            raise ShipUnavailableError(
                f"{self.text}/{file.name}: expected an object of {file.size} bytes after its parts were combined, "
                f"found {found}"
            )

    def sealed_size(self, file: ShippedFile) -> int | None:
        """Return the size of a complete file, or None if it is missing."""
        with self._convert_errors(file.name):
            found = self._storage.head(file.name)
        return None if found is None else found.size

    @contextmanager
    def _convert_errors(self, name: str) -> Iterator[None]:
        """Convert errors of the object store or HDFS to a ShipError."""
        try:
            yield
        except ReplacedError:
            raise ShipError(
                f"{self.text}: another agent has replaced {name} or a part of it, or the copy was deleted: stop all "
                "agents but one, and start that one again",
                exit_code=ExitCode.REFUSED,
            ) from None
        except CloudNameError as error:
            raise ShipNameError(str(error)) from None
        except ObjectStoreError as error:
            kind = ShipUnavailableError if error.is_transient else ShipError
            raise kind(str(error)) from None
        except (NotADirectoryError, IsADirectoryError, FileExistsError) as error:
            raise ShipError(f"{self._storage.uri_of(name)}: {error}") from None
        except FileNotFoundError as error:
            raise ShipUnavailableError(f"{self._storage.uri_of(name)}: {error}; a second attempt failed, too") from None


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
