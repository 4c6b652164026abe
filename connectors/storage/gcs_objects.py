"""Requests that read Google Cloud Storage, through the package google-cloud-storage.

Each write of an object gives it a new generation, and a read names its generation. So a read never mixes the bytes of
two versions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from google.api_core.exceptions import NotFound, RequestRangeNotSatisfiable

from commitlake.connectors.storage.cloud_objects import FoundObject, ReplacedError
from commitlake.connectors.storage.cloud_uris import CloudUri
from commitlake.connectors.storage.errors import CloudUnavailableError
from commitlake.connectors.storage.gcs_clients import SHORT_TIMEOUTS, TIMEOUTS, gcs_bucket
from commitlake.connectors.storage.gcs_errors import ERRORS, gcs_error

_Result = TypeVar("_Result")


class GcsReader:
    """See ObjectReader."""

    def has_objects(self, folder: CloudUri, *, is_waited_for: bool = False) -> bool:
        """See ObjectReader."""
        bucket, prefix = gcs_bucket(folder), _prefix_of(folder)
        limits = SHORT_TIMEOUTS if is_waited_for else TIMEOUTS
        found = _asked(folder, "listed", lambda: list(bucket.list_blobs(prefix=prefix, max_results=1, **limits)))
        return bool(found)

    def list_folder(self, folder: CloudUri) -> tuple[dict[str, FoundObject], set[str]]:
        """See ObjectReader."""
        bucket = gcs_bucket(folder)

        def listed() -> tuple[dict[str, FoundObject], set[str]]:
            answer = bucket.list_blobs(prefix=_prefix_of(folder), delimiter="/", **TIMEOUTS)
            # Some tools create an object with the name of the folder and a slash.
            objects = {blob.name: _found(blob) for blob in answer if not blob.name.endswith("/")}
            return objects, {name.rstrip("/") for name in answer.prefixes}

        return _asked(folder, "listed", listed)

    def head(self, uri: CloudUri) -> FoundObject:
        """See ObjectReader."""
        bucket = gcs_bucket(uri)
        blob: Any = _asked(uri, "read", lambda: bucket.get_blob(uri.prefix, **TIMEOUTS))
        if blob is None:
            raise FileNotFoundError(f"{uri} does not exist")
        return _found(blob)

    def read(self, uri: CloudUri, start: int, end: int, found: FoundObject) -> bytes:
        """See ObjectReader."""
        bucket = gcs_bucket(uri)
        blob = bucket.blob(uri.prefix, generation=int(found.version or 0))
        data = _asked(uri, "read", lambda: read_range(blob, start, end))
        if data is None:
            self.head(uri)
            raise ReplacedError
        if len(data) != end - start:
            raise CloudUnavailableError(
                f"{uri} cannot be read: expected {end - start} bytes at {start}, found {len(data)}", "Run it again"
            )
        return data


def read_range(blob: Any, start: int, end: int) -> bytes | None:
    """Read a range of the generation that a blob names, as it is stored; return None if it is no longer there.

    The package compares checksums of a whole object only; ranges are protected by TLS alone.
    """
    try:
        return bytes(blob.download_as_bytes(start=start, end=end - 1, raw_download=True, checksum=None, **TIMEOUTS))
    except (NotFound, RequestRangeNotSatisfiable):
        return None


def _prefix_of(folder: CloudUri) -> str | None:
    return f"{folder.prefix}/" if folder.prefix else None


def _asked(uri: CloudUri, verb: str, request: Callable[[], _Result]) -> _Result:
    try:
        return request()
    except ERRORS as error:
        raise gcs_error(error, uri, f"{uri} cannot be {verb}: ") from None


def _found(blob: Any) -> FoundObject:
    return FoundObject(int(blob.size), blob.updated, str(blob.generation))
