"""The client of Google Cloud Storage, from the package google-cloud-storage: one for each process.

Credentials are the application default ones: the file named in `GOOGLE_APPLICATION_CREDENTIALS` (a service account's
key, or a federated workload identity), else those of `gcloud auth application-default login`, else the service account
of the machine or the pod. `COMMITLAKE_GCS_ENDPOINT` names another server, such as one of Private Service Connect. The
package retries requests. Its messages repeat URLs and answers, which may contain credentials, so only classes, statuses
and the reasons of answers are taken from them.
"""

from __future__ import annotations

import http.client
import os
from functools import lru_cache
from typing import Any

import requests
import urllib3.exceptions
from google.api_core import exceptions as api
from google.auth import exceptions as auth
from google.cloud.storage import Client
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
from google.cloud.storage.retry import DEFAULT_RETRY
from requests.adapters import HTTPAdapter

from commitlake.connectors.storage.cloud_storage import BUSY, explain_status, find_endpoint
from commitlake.connectors.storage.errors import LATER, CloudError, CloudUnavailableError
from commitlake.connectors.storage.uris import CloudUri

_CREDENTIALS = (
    "Name the key file of a service account in GOOGLE_APPLICATION_CREDENTIALS, run 'gcloud auth application-default "
    "login', or give the machine a service account"
)
_ROLE = (
    "Give the service account the role Storage Object User on the bucket, or Storage Object Viewer if it only reads; "
    "or choose another one by GOOGLE_APPLICATION_CREDENTIALS"
)
_BUCKET = "Create the bucket, or correct its name or COMMITLAKE_GCS_ENDPOINT"
_NETWORK = "Is COMMITLAKE_GCS_ENDPOINT right, if it is set, and does the network reach it? If so, run it again later"
_CERTIFICATE = "Name the file of its authority in REQUESTS_CA_BUNDLE"
ERRORS = (
    api.GoogleAPIError, auth.GoogleAuthError, DataCorruption, InvalidResponse, requests.RequestException,
    urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError,
)  # fmt: skip
"""OSError and ValueError: the package raises them also for key files that it cannot read or use."""
_OF_NETWORK = (
    requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError, urllib3.exceptions.HTTPError,
    http.client.HTTPException, ConnectionError, TimeoutError,
)  # fmt: skip


def gcs_error(error: Exception, uri: CloudUri, message_start: str) -> CloudError:
    """Return the error to raise for a failed request to Google, given the one that its client raised.

    Args:
        error: the error that the package raised.
        uri: a place in the bucket of the request.
        message_start: beginning of the message: what was attempted.
    """
    if isinstance(error, CloudError):
        return error
    # This error only says that the time for retries is over; its cause is what the user has to know.
    if isinstance(error, api.RetryError) and isinstance(error.cause, Exception):
        error = error.cause
    if isinstance(error, auth.GoogleAuthError):
        return _credentials_error(error, message_start)
    status = http_status_of(error)
    if status is not None:
        found, advice = _explain_status(status, error, uri)
    elif isinstance(error, DataCorruption):
        found, advice = "bytes whose checksum is wrong, which were changed on their way", LATER
    elif isinstance(error, (requests.exceptions.SSLError, urllib3.exceptions.SSLError)):
        found, advice = "a certificate that is not trusted", _CERTIFICATE
    elif isinstance(error, _OF_NETWORK):
        found, advice = "no server at the endpoint, or a connection that broke off, also when tried again", _NETWORK
    else:
        found, advice = f"wrong settings ({type(error).__name__})", _CREDENTIALS
    kind = CloudUnavailableError if advice in {LATER, _NETWORK} else CloudError
    return kind(found, advice, message_start)


def http_status_of(error: BaseException) -> int | None:
    """Return the HTTP status in an error, or None if the server did not answer."""
    if isinstance(error, api.GoogleAPICallError) and error.code is not None:
        return int(error.code)
    if isinstance(error, InvalidResponse):
        return int(error.response.status_code)
    return None


def is_token_server_unavailable(error: BaseException) -> bool:
    """Return whether an error means that the token server could not answer, so that a retry may succeed.

    The package wraps errors of the metadata server, and includes its answer if there was one.
    """
    cause: Any = error
    if isinstance(error, auth.RefreshError):
        cause = error.__cause__ or (error.args[0] if error.args else None)
    if isinstance(cause, auth.TransportError):
        status = getattr(cause.args[1], "status", None) if len(cause.args) > 1 else None
        return status is None or status in BUSY
    return isinstance(error, auth.GoogleAuthError) and bool(getattr(error, "retryable", False))


def _credentials_error(error: auth.GoogleAuthError, message_start: str) -> CloudError:
    found = "no credentials that can be used"
    if is_token_server_unavailable(error):
        # The server of tokens may be back soon; on a machine without an identity, it never is.
        return CloudUnavailableError(f"{found}, because their server cannot be reached", _CREDENTIALS, message_start)
    if isinstance(error, auth.RefreshError):
        return CloudError(f"{found}, because their server refuses them", _CREDENTIALS, message_start)
    return CloudError(f"{found} ({type(error).__name__})", _CREDENTIALS, message_start)


def _explain_status(status: int, error: Exception, uri: CloudUri) -> tuple[str, str]:
    code = _error_reason(error) or str(status)
    # A request for an object that may be missing handles this status itself, so here the bucket is missing.
    if status == http.HTTPStatus.NOT_FOUND:
        return f"no bucket {uri.container!r}", _BUCKET
    return explain_status(status, code, _ROLE)


def _error_reason(error: Exception) -> str | None:
    """Return the reason in a server's answer if it consists of letters and digits; otherwise None."""
    errors: Any = getattr(error, "errors", None)
    first = errors[0] if errors else None
    reason = first.get("reason") if isinstance(first, dict) else None
    return reason if isinstance(reason, str) and reason.isascii() and reason.isalnum() and len(reason) < 65 else None


def _should_retry(error: Exception) -> bool:
    """Return whether to retry after an error: if the package would, or if no token could be fetched."""
    return is_token_server_unavailable(error) or bool(DEFAULT_RETRY._predicate(error))  # noqa: SLF001 (it has no other name)


_RETRIES = DEFAULT_RETRY.with_predicate(_should_retry).with_delay(initial=1.0, maximum=20.0, multiplier=2.0)
TIMEOUTS: dict[str, Any] = {"timeout": (10, 60), "retry": _RETRIES.with_timeout(180.0)}
"""Arguments of a request: limits for a connection and for each answer, and retries for three minutes."""
SHORT_TIMEOUTS: dict[str, Any] = {"timeout": (5, 30), "retry": _RETRIES.with_timeout(3.0)}
"""The same if a user waits, and a wrong endpoint is more likely than an overloaded server."""
_CONNECTIONS = 64
"""More than the threads that read at the same time; the client warns of each connection that it cannot keep."""
_ENDPOINT_VARIABLES = ("COMMITLAKE_GCS_ENDPOINT", "STORAGE_EMULATOR_HOST")
"""With the second one, which all of Google's clients know, no credentials are sent."""


def gcs_bucket(uri: CloudUri) -> Any:
    """Return the bucket in a URI, for use with this process's client; no request is made.

    Raises:
        CloudError: if there are no credentials, or the settings in the environment are wrong.
    """
    try:
        return _client().bucket(uri.container)
    except ERRORS as error:
        raise gcs_error(error, uri, f"{uri}: ") from None


@lru_cache(maxsize=1)
def _client() -> Any:
    endpoint = find_endpoint(_ENDPOINT_VARIABLES, ", or ".join(_ENDPOINT_VARIABLES))
    # No request needs a project, and the search for one may take long.
    client = Client(project=None, client_options={"api_endpoint": endpoint} if endpoint else None)
    session = client._http  # noqa: SLF001 (the package has no other way to the size of its pool)
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=_CONNECTIONS))
    session.configure_mtls_channel()  # with the machine's client certificate, if it has one, and as many connections
    return client


def forget_client() -> None:
    """Discard this process's client, so that the next request reads the environment again."""
    _client.cache_clear()


os.register_at_fork(after_in_child=forget_client)
