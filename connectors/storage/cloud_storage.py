"""Common parts of the adapters for Azure and Google: folders as key prefixes, and reads of ranges of objects."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from commitlake.connectors.storage.errors import CloudError, CloudUnavailableError
from commitlake.connectors.storage.pace import Pace
from commitlake.connectors.storage.storage import Entry, FoundFile, RangeFile, ReadableStorage, ReplacedError, checked
from commitlake.connectors.storage.uris import parse_cloud_uri
from commitlake.schemas.errors import CommitLakeError

_MAX_LOOKS = 5
"""Attempts to begin to read an object that is being replaced."""


class CloudStorage(ReadableStorage):
    """Objects under a prefix of a container.

    Args:
        uri: URI of the prefix.
        pace: limit of the bytes per second.

    Attributes:
        root: the prefix.
        known_errors: errors of the client that `explain` can explain.
    """

    known_errors: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, uri: str, pace: Pace | None = None) -> None:
        self.root = parse_cloud_uri(uri)
        super().__init__(str(self.root), pace)

    @abstractmethod
    def has_objects(self, folder: str, *, is_waited_for: bool = False) -> bool:
        """Return whether a folder contains any object.

        Args:
            folder: the folder.
            is_waited_for: whether a user waits; then there are only a few attempts.
        """

    @abstractmethod
    def read(self, name: str, start: int, end: int, found: FoundFile) -> bytes | None:
        """Return a range of one version of an object; None if the server shows that it was deleted.

        Raises:
            ReplacedError: if the object has another version by now.
        """

    @abstractmethod
    def explain(self, error: Any, what: str) -> CloudError:
        """Return the error to raise instead of one of `known_errors`.

        Args:
            error: the error.
            what: beginning of the message: what was attempted.
        """

    @contextmanager
    def errors(self, name: str, verb: str) -> Iterator[None]:
        """Convert the client's errors inside the block; `verb` names the operation in their messages."""
        try:
            yield
        except CommitLakeError:  # UnsafeFileError is also an OSError
            raise
        except self.known_errors as error:
            raise self.explain(error, f"{self.place_of(name)} cannot be {verb}: ") from None

    def check(self) -> None:
        """See Storage."""
        self.has_objects("", is_waited_for=True)

    def check_readable(self) -> None:
        """See ReadableStorage."""
        self.has_objects("", is_waited_for=True)

    def delete_unfinished(self) -> None:
        """See Storage; nothing that is unfinished can be seen, and the server deletes it."""

    def get_range(self, name: str, start: int, size: int) -> bytes | None:
        """See Storage."""
        found = self.head(name)
        if found is None:
            return None
        end = min(start + size, found.size)
        if start >= end:
            return b""
        try:
            data = self.read(name, start, end, found)
        except ReplacedError:
            raise replaced_while_read(self.place_of(name)) from None
        if data is not None:
            self.pace.take(len(data))
        return data

    def entry(self, name: str) -> Entry | None:
        """See ReadableStorage; a folder exists if an object is in it."""
        if self.has_objects(name) or not self.key(name):
            return Entry(name)
        found = self.head(name)
        return None if found is None else Entry(name, found)

    def open(self, name: str) -> RangeFile:
        """See ReadableStorage."""
        return _CloudFile(self, name)

    def key(self, name: str) -> str:
        """Return the key of an object or folder, including the prefix."""
        return self.root.key(checked(name))


class _CloudFile(RangeFile):
    """An object opened for reads of ranges.

    Raises:
        FileNotFoundError: if it does not exist.
    """

    def __init__(self, storage: CloudStorage, name: str) -> None:
        super().__init__()
        self._storage, self._name = storage, name
        self._found = self._find_file()

    def _find_file(self) -> FoundFile:
        found = self._storage.head(self._name)
        if found is None:
            raise self._missing_error()
        return found

    def size(self) -> int:
        """Return the number of bytes."""
        return self._found.size

    def read_at(self, size: int, start: int) -> bytes:
        """Read from a position; see RangeFile."""
        is_first = self.is_first_read()
        for _ in range(_MAX_LOOKS):
            found = self._found
            end = min(found.size, start + size)
            if start >= end:
                return b""
            try:
                # In a newer object, the range could end anywhere.
                data = self._storage.read(self._name, start, end, found)
            except ReplacedError:
                if start or not is_first:
                    break
                self._found = self._find_file()
                continue
            if data is None:
                raise self._missing_error()
            return data
        raise replaced_while_read(self._storage.place_of(self._name))

    def _missing_error(self) -> FileNotFoundError:
        return FileNotFoundError(f"{self._storage.place_of(self._name)} does not exist")


def replaced_while_read(place: str) -> CloudUnavailableError:
    """Return the error for an object that was replaced or deleted during a read."""
    return CloudUnavailableError(f"{place} was replaced while it was read", "Run it again")
