"""Clients of object stores other than S3, from the package obstore: one for each container and process.

obstore is the client that deltalake uses, with the same names of settings. Credentials come from the environment
(`AZURE_STORAGE_ACCOUNT_KEY`, `AZURE_STORAGE_SAS_TOKEN`, `AZURE_CLIENT_ID` with a secret or a federated token, …), else
from the managed identity of the machine. obstore retries requests.
"""

from __future__ import annotations

import datetime
import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import AzureStore

from commitlake.connectors.plain_connections import warn_of_plain
from commitlake.connectors.storage.cloud_errors import cloud_error
from commitlake.connectors.storage.cloud_uris import CloudUri
from commitlake.connectors.storage.errors import CloudError

if TYPE_CHECKING:
    from obstore.store import AzureConfig, BackoffConfig

MAX_ATTEMPTS = 8
FEW_ATTEMPTS = 2  # while a user waits, and a wrong endpoint is more likely than an overloaded server
_BACKOFF: BackoffConfig = {
    "init_backoff": datetime.timedelta(seconds=1),
    "max_backoff": datetime.timedelta(seconds=20),
}
_RETRY_TIMEOUT = datetime.timedelta(minutes=3)
_REQUEST_TIMEOUT = datetime.timedelta(minutes=2)
_ENDPOINT_VARIABLES = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
_PUBLIC_CLOUD = "core.windows.net"


def cloud_client(uri: CloudUri, attempts: int = MAX_ATTEMPTS) -> Any:
    """Return this process's client for the container of a URI.

    Args:
        uri: any place in the container.
        attempts: maximum number of attempts for a request.

    Raises:
        CloudError: if the settings in the environment are wrong.
    """
    return _client(CloudUri(uri.scheme, uri.authority, ""), attempts)


@lru_cache(maxsize=64)
def _client(uri: CloudUri, attempts: int) -> Any:
    endpoint = next(filter(None, map(os.environ.get, _ENDPOINT_VARIABLES)), None)
    if endpoint is None and uri.suffix != _PUBLIC_CLOUD:
        endpoint = f"https://{uri.account}.blob.{uri.suffix}"
    config: AzureConfig = {"account_name": uri.account}
    if endpoint is not None:
        config["endpoint"] = endpoint
    try:
        return AzureStore(
            uri.container,
            config=config,
            client_options={"allow_http": _is_plain(endpoint), "timeout": _REQUEST_TIMEOUT},
            retry_config={"max_retries": attempts - 1, "retry_timeout": _RETRY_TIMEOUT, "backoff": _BACKOFF},
        )
    except BaseError as error:
        raise cloud_error(error, uri, f"{uri}: ") from None


def _is_plain(endpoint: str | None) -> bool:
    """Return whether an endpoint has no TLS, and warn if it is not on this machine."""
    if endpoint is None:
        return False
    try:
        parts = urlsplit(endpoint)
    except ValueError:
        parts = urlsplit("")
    if "@" in endpoint or "?" in endpoint or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise CloudError(
            "AZURE_STORAGE_ENDPOINT: expected https://HOST, without credentials", "Correct it, or leave it out"
        )
    if parts.scheme == "http":
        warn_of_plain(f"the object store {endpoint}", parts.hostname, "Give its https:// endpoint")
    return parts.scheme == "http"


def forget_clients() -> None:
    """Let the next requests create clients from the environment again."""
    _client.cache_clear()


os.register_at_fork(after_in_child=forget_clients)
