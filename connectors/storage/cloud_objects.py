"""Interface of the requests that read an object store other than S3; each cloud has a client of its own."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Protocol

from commitlake.connectors.storage.cloud_uris import CloudUri


class ReplacedError(Exception):
    """An object is no longer the one that was found: it was replaced or deleted."""


@dataclass(frozen=True, slots=True)
class FoundObject:
    """One version of an object.

    Attributes:
        size: number of bytes.
        modified: time at which it was written.
        version: identifies its content at the server; None if the server gives none.
    """

    size: int
    modified: datetime.datetime
    version: str | None


class ObjectReader(Protocol):
    """Requests to an object store. Each raises a `CloudError` if the server cannot be reached or refuses it."""

    def has_objects(self, folder: CloudUri, *, is_waited_for: bool = False) -> bool:
        """Return whether there is an object in a folder.

        Args:
            is_waited_for: whether a user waits; then there are only a few attempts.
        """
        ...

    def list_folder(self, folder: CloudUri) -> tuple[dict[str, FoundObject], set[str]]:
        """Return the objects in a folder by their keys, and the paths of the folders in it."""
        ...

    def head(self, uri: CloudUri) -> FoundObject:
        """Return the newest version of an object.

        Raises:
            FileNotFoundError: if it does not exist.
        """
        ...

    def read(self, uri: CloudUri, start: int, end: int, found: FoundObject) -> bytes:
        """Read a range of one version of an object, all of it.

        Raises:
            ReplacedError: if the object has another version by now.
            FileNotFoundError: if the server can tell that it was deleted.
        """
        ...
