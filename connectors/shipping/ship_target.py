"""Interface of a target to which an agent copies a broker's store, and its errors.

An agent writes the parts of a file in order, then a manifest that names them, then deletes parts that no manifest needs
any more. If it is killed between two steps, it leaves bytes that no manifest names, and the next run writes the same
bytes again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from commitlake.schemas.errors import CommitLakeError, ExitCode
from commitlake.schemas.shipped_manifest import Part, ShippedFile


class ShipError(CommitLakeError):
    """A target of `commitlake ship` cannot be used."""

    exit_code = ExitCode.USAGE


class ShipUnavailableError(ShipError):
    """A target cannot be written now; a later attempt may succeed."""

    exit_code = ExitCode.FAILED
    is_transient = True


class ShipNameError(ShipError):
    """The target cannot store a file of that name, so the file is skipped."""


class ShipTarget(ABC):
    """Folder or object store to which an agent copies a broker's store; every method may raise a `ShipError`.

    Names are paths relative to the store's folder.

    Attributes:
        text: the target as the user wrote it.
        has_parts: whether parts are separate objects, of which there should be few.
    """

    text: str
    has_parts: bool

    @abstractmethod
    def claim(self) -> None:
        """Check that the target may be written, and lock it for this process if the target supports locks.

        Raises:
            ShipError: if another process has locked it.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the lock."""

    @abstractmethod
    def list_names(self, folder: str, limit: int) -> list[str]:
        """Return the names of at most `limit` files in a folder of the target."""

    @abstractmethod
    def read_manifest(self, name: str) -> bytes | None:
        """Return a manifest, or None if there is none.

        A later `replace_manifest` replaces only the version returned here.
        """

    @abstractmethod
    def replace_manifest(self, name: str, data: bytes) -> None:
        """Replace a manifest completely or not at all.

        Raises:
            ShipError: if it is neither the one that this process has read or written last, nor a later one that
                it sent and whose answer was lost.
        """

    @abstractmethod
    def write_file(self, name: str, data: bytes, modified_ms: int = 0) -> None:
        """Write a small file completely or not at all; an existing one is replaced.

        Args:
            name: path in the store.
            data: content.
            modified_ms: time at which the broker wrote the file, ms; a folder gives it to the copy.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a small file or a part, if it exists."""

    @abstractmethod
    def write_part(self, file: ShippedFile, part: Part, data: bytes) -> None:
        """Write a part of a file.

        Args:
            file: the file, to whose parts the new one will be added.
            part: range and checksum of the part.
            data: bytes of the part.
        """

    @abstractmethod
    def has_part(self, file: ShippedFile, part: Part) -> bool:
        """Return whether a part exists with its size, and with its checksum if the target can compute one."""

    @abstractmethod
    def drop_parts(self, file: ShippedFile, parts: Iterable[Part]) -> None:
        """Delete parts that the manifest no longer names."""

    @abstractmethod
    def part_names(self) -> Iterator[str]:
        """Yield the names of all parts that are stored as separate objects."""

    @abstractmethod
    def truncate(self, file: ShippedFile, end: int) -> None:
        """Remove the bytes of a file from position `end` on, because the broker has changed them."""

    @abstractmethod
    def seal(self, file: ShippedFile) -> None:
        """Create the complete file, under its own name, from its parts, which cover all of it."""

    @abstractmethod
    def sealed_size(self, file: ShippedFile) -> int | None:
        """Return the size of a file that was completed by `seal`; None if it is missing."""
