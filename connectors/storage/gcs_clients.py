"""The client of Google Cloud Storage, from the package google-cloud-storage: one for each process.

Credentials are the application default ones: the file named in `GOOGLE_APPLICATION_CREDENTIALS` (a service account's
key, or a federated workload identity), else those of `gcloud auth application-default login`, else the service account
of the machine or the pod. `COMMITLAKE_GCS_ENDPOINT` names another server, such as one of Private Service Connect. The
package retries requests.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from google.cloud.storage import Client
from google.cloud.storage.retry import DEFAULT_RETRY
from requests.adapters import HTTPAdapter

from commitlake.connectors.plain_connections import warn_of_plain
from commitlake.connectors.storage.cloud_uris import CloudUri
from commitlake.connectors.storage.errors import CloudError
from commitlake.connectors.storage.gcs_errors import ERRORS, gcs_error, is_token_server_away


def _is_retried(error: Exception) -> bool:
    """Return whether a request is retried: in the package's own cases, and if no token could be fetched for it."""
    return is_token_server_away(error) or bool(DEFAULT_RETRY._predicate(error))  # noqa: SLF001 (it has no other name)


_RETRIES = DEFAULT_RETRY.with_predicate(_is_retried).with_delay(initial=1.0, maximum=20.0, multiplier=2.0)
TIMEOUTS: dict[str, Any] = {"timeout": (10, 60), "retry": _RETRIES.with_timeout(180.0)}
"""Arguments of a request: limits for a connection and for each answer, and retries for three minutes."""
SHORT_TIMEOUTS: dict[str, Any] = {"timeout": (5, 30), "retry": _RETRIES.with_timeout(3.0)}
"""The same if a user waits, and a wrong endpoint is more likely than an overloaded server."""
_CONNECTIONS = 64
"""More than the threads that read at the same time; the client warns of each connection that it cannot keep."""
_ENDPOINT_VARIABLES = ("COMMITLAKE_GCS_ENDPOINT", "STORAGE_EMULATOR_HOST")
"""With the second one, which all of Google's clients know, no credentials are sent."""


def gcs_bucket(uri: CloudUri) -> Any:
    """Return the bucket of a URI, with this process's client; no request is made.

    Raises:
        CloudError: if there are no credentials, or the settings in the environment are wrong.
    """
    try:
        return _client().bucket(uri.container)
    except ERRORS as error:
        raise gcs_error(error, uri, f"{uri}: ") from None


@lru_cache(maxsize=1)
def _client() -> Any:
    endpoint = next(filter(None, map(os.environ.get, _ENDPOINT_VARIABLES)), None)
    if endpoint is not None:
        _check_endpoint(endpoint)
    # No request needs a project, and the search for one may take long.
    client = Client(project=None, client_options={"api_endpoint": endpoint} if endpoint else None)
    session = client._http  # noqa: SLF001 (the package has no other way to the size of its pool)
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=_CONNECTIONS))
    session.configure_mtls_channel()  # with the machine's client certificate, if it has one, and as many connections
    return client


def _check_endpoint(endpoint: str) -> None:
    """Refuse an endpoint that is not a URL, and warn if it has no TLS and is not on this machine."""
    try:
        parts = urlsplit(endpoint)
    except ValueError:
        parts = urlsplit("")
    if "@" in endpoint or "?" in endpoint or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise CloudError(
            "COMMITLAKE_GCS_ENDPOINT, or STORAGE_EMULATOR_HOST: expected https://HOST, without credentials",
            "Correct it, or leave it out",
        )
    if parts.scheme == "http":
        warn_of_plain(f"the object store {endpoint}", parts.hostname, "Give its https:// endpoint")


def forget_client() -> None:
    """Let the next request create a client from the environment again."""
    _client.cache_clear()


os.register_at_fork(after_in_child=forget_client)
