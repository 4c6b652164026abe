"""Common parts of the adapters for Azure and Google: folders as key prefixes, reads of ranges, endpoints, statuses."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar
from urllib.parse import urlsplit

from commitlake.connectors.storage.bandwidth_limit import BandwidthLimit
from commitlake.connectors.storage.errors import LATER, CloudError
from commitlake.connectors.storage.storage import (
    FolderEntry,
    FoundFile,
    RangeFile,
    ReadableStorage,
    ReplacedError,
    VersionedFile,
    check_name,
    replaced_while_read_error,
)
from commitlake.connectors.storage.uris import parse_cloud_uri
from commitlake.connectors.unencrypted_connections import warn_unencrypted
from commitlake.schemas.errors import CommitLakeError


class CloudStorage(ReadableStorage):
    """Files below a prefix of a container in an object store.

    Args:
        uri: URI of the prefix.
        pace: limit of the bytes per second.

    Attributes:
        root: the prefix.
        known_errors: errors of the client that `explain` can explain.
    """

    known_errors: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, uri: str, pace: BandwidthLimit | None = None) -> None:
        self.root = parse_cloud_uri(uri)
        super().__init__(str(self.root), pace)

    @abstractmethod
    def has_objects(self, folder: str, *, is_user_waiting: bool = False) -> bool:
        """Return whether a folder contains any object.

        Args:
            folder: the folder.
            is_user_waiting: whether a user waits; then there are only a few attempts.
        """

    @abstractmethod
    def read(self, name: str, start: int, end: int, found_version: FoundFile) -> bytes | None:
        """Return a range of one version of an object; None if the server shows that it was deleted.

        Raises:
            ReplacedError: if the object has another version by now.
        """

    @abstractmethod
    def convert_error(self, error: Any, message_start: str) -> CloudError:
        """Return the error to raise instead of one of `known_errors`.

        Args:
            error: the error.
            message_start: beginning of the message: what was attempted.
        """

    @contextmanager
    def convert_errors(self, name: str, verb: str) -> Iterator[None]:
        """Convert the client's errors inside the block; `verb` names the operation in their messages."""
        try:
            yield
        except CommitLakeError:  # UnsafeFileError is also an OSError
            raise
        except self.known_errors as error:
            raise self.convert_error(error, f"{self.uri_of(name)} cannot be {verb}: ") from None

    def check_access(self) -> None:
        """Check that the container is accessible, with few attempts, because a user waits."""
        self.has_objects("", is_user_waiting=True)

    def delete_unfinished_files(self) -> None:
        """Do nothing, because the server itself deletes unfinished uploads."""

    def get_range(self, name: str, start: int, size: int) -> bytes | None:
        """Return a range of a file, shortened to the end of the file; None if the file does not exist. See Storage."""
        # Servers refuse a range behind the end, so the size comes first; the version lets the second request fail if
        # the object is replaced between the two.
        found = self.head(name)
        if found is None:
            return None
        end = min(start + size, found.size)
        if start >= end:
            return b""
        try:
            data = self.read(name, start, end, found)
        except ReplacedError:
            raise replaced_while_read_error(self.uri_of(name)) from None
        if data is not None:
            self.pace.wait_for_bytes(len(data))
        return data

    def entry(self, name: str) -> FolderEntry | None:
        """Return a file, or a folder if any object is in it; None if there is neither. See ReadableStorage."""
        # The folder comes first: some tools, and hierarchical namespaces, also have an object of its name.
        if self.has_objects(name) or not self.key(name):
            return FolderEntry(name)
        found = self.head(name)
        return None if found is None else FolderEntry(name, found)

    def open(self, name: str) -> RangeFile:
        """Open a file that several threads can read; see ReadableStorage."""
        return _CloudFile(self, name)

    def key(self, name: str) -> str:
        """Return the key of an object or folder, including the prefix."""
        return self.root.key(check_name(name))


class _CloudFile(VersionedFile):
    """An object opened for reads of ranges, all from one version."""

    def __init__(self, storage: CloudStorage, name: str) -> None:
        self._storage, self._name = storage, name
        super().__init__(storage.uri_of(name))

    def newest_version(self) -> FoundFile | None:
        """Return the newest version, which has a `size` in bytes, or None if there is none."""
        return self._storage.head(self._name)

    def read_version(self, version: FoundFile, start: int, end: int) -> bytes | None:
        """Return a range of a version; None if the object was deleted."""
        return self._storage.read(self._name, start, end, version)


BUSY = frozenset({408, 429, 500, 502, 503, 504})
"""HTTP statuses after which a later request may succeed."""
_DENIED = frozenset({401, 403})


def explain_status(status: int, code: str, access_advice: str) -> tuple[str, str]:
    """Return what happened, and advice what to do, for the HTTP status of an answer.

    Args:
        status: the status.
        code: what the server calls it.
        access_advice: what to do if access is denied.
    """
    if status in _DENIED:
        return f"access denied ({code})", access_advice
    if status in BUSY:
        return f"a server that is busy or not well ({code}), also when asked again", LATER
    return f"the answer {code}", "See the server's log for its reason"


def find_endpoint(variable_names: Sequence[str], error_subject: str) -> str | None:
    """Return the endpoint in the environment, and warn if it has no TLS and is not on this machine.

    Args:
        variable_names: names of variables, of which the first that is set counts.
        error_subject: what an error calls them.

    Raises:
        CloudError: if it is not a URL, or has credentials.
    """
    endpoint = next(filter(None, map(os.environ.get, variable_names)), None)
    if endpoint is None:
        return None
    try:
        parts = urlsplit(endpoint)
    except ValueError:
        parts = urlsplit("")
    if "@" in endpoint or "?" in endpoint or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise CloudError(
            f"{error_subject}: expected https://HOST, without credentials, found something else",
            "Correct it, or leave it out",
        )
    if parts.scheme == "http":
        warn_unencrypted(f"the object store {endpoint}", parts.hostname, "Give its https:// endpoint")
    return endpoint
