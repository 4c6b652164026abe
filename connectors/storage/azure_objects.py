"""Requests that read Azure's object store, through the package obstore."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import obstore
from obstore.exceptions import PreconditionError

from commitlake.connectors.storage.cloud_clients import FEW_ATTEMPTS, MAX_ATTEMPTS, cloud_client
from commitlake.connectors.storage.cloud_errors import ERRORS, cloud_error
from commitlake.connectors.storage.cloud_objects import FoundObject, ReplacedError
from commitlake.connectors.storage.cloud_uris import CloudUri

_Result = TypeVar("_Result")


class AzureReader:
    """See ObjectReader."""

    def has_objects(self, folder: CloudUri, *, is_waited_for: bool = False) -> bool:
        """See ObjectReader."""
        client = cloud_client(folder, FEW_ATTEMPTS if is_waited_for else MAX_ATTEMPTS)
        prefix = f"{folder.prefix}/" if folder.prefix else None
        return _listed(folder, lambda: any(page for page in obstore.list(client, prefix, chunk_size=1)))

    def list_folder(self, folder: CloudUri) -> tuple[dict[str, FoundObject], set[str]]:
        """See ObjectReader."""
        client = cloud_client(folder)
        found: Any = _listed(folder, lambda: obstore.list_with_delimiter(client, folder.prefix or None))
        return {each["path"]: _found(each) for each in found["objects"]}, set(found["common_prefixes"])

    def head(self, uri: CloudUri) -> FoundObject:
        """See ObjectReader."""
        client = cloud_client(uri)
        return _found(_read(uri, lambda: obstore.head(client, uri.prefix)))

    def read(self, uri: CloudUri, start: int, end: int, found: FoundObject) -> bytes:
        """See ObjectReader."""
        client = cloud_client(uri)
        options: Any = {"range": (start, end)}
        if found.version:
            options["if_match"] = found.version
        return _read(uri, lambda: bytes(obstore.get(client, uri.prefix, options=options).bytes()))


def _listed(folder: CloudUri, request: Callable[[], _Result]) -> _Result:
    try:
        return request()
    except ERRORS as error:
        raise cloud_error(error, folder, f"{folder} cannot be listed: ") from None


def _read(uri: CloudUri, request: Callable[[], _Result]) -> _Result:
    try:
        return request()
    except PreconditionError:
        raise ReplacedError from None
    except FileNotFoundError:
        raise FileNotFoundError(f"{uri} does not exist") from None
    except ERRORS as error:
        raise cloud_error(error, uri, f"{uri} cannot be read: ") from None


def _found(meta: Any) -> FoundObject:
    return FoundObject(int(meta["size"]), meta["last_modified"], meta["e_tag"])
