"""Clients of boto3, one for each server in each process, and their settings.

The calls of a client may come from many threads. A forked process creates its own clients, because it cannot use the
connections and locks of its parent.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore import exceptions
from botocore.config import Config
from botocore.credentials import Credentials, RefreshableCredentials

from commitlake.connectors.storage.errors import S3Error
from commitlake.connectors.storage.s3_errors import s3_error
from commitlake.connectors.storage.s3_options import DEFAULT_REGION, S3Options
from commitlake.connectors.unencrypted_connections import warn_unencrypted

MAX_ATTEMPTS = 8  # waits between them are random, up to 1, 2, 4, 8, 16, 20 and 20 s: enough for a server to restart
FEW_ATTEMPTS = 2  # while a user waits, and a wrong endpoint is more likely than an overloaded server
_CONNECT_SECONDS = 10
_READ_SECONDS = 60
_CONNECTIONS = 16

_clients: dict[tuple[S3Options, int], Any] = {}
_expiring: dict[tuple[tuple[str, str], ...], RefreshableCredentials] = {}
"""Credentials that renew themselves, by the variables of the environment by which they were found."""
_lock = threading.Lock()


def s3_client(options: S3Options, attempts: int = MAX_ATTEMPTS) -> Any:
    """Return this process's client for a server; create it if there is none.

    Args:
        attempts: maximum number of attempts for a request.
    """
    with _lock:
        if (options, attempts) not in _clients:
            _clients[options, attempts] = _new_client(options, attempts)
        return _clients[options, attempts]


def _new_client(options: S3Options, attempts: int) -> Any:
    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        max_pool_connections=_CONNECTIONS,
        retries={"mode": "standard", "total_max_attempts": attempts},
        signature_version="s3v4",
        s3={"addressing_style": "virtual" if options.virtual_hosts else "path"},
        # The upload code computes and sends checksums itself; some servers support no others.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    session = boto3.session.Session()  # its own session: creating clients from a shared one is not thread-safe
    return session.client("s3", endpoint_url=options.endpoint, region_name=options.region, config=config)


def _forget_clients() -> None:
    global _lock  # noqa: PLW0603 (the parent may have held it when it forked)
    _lock = threading.Lock()
    _clients.clear()
    _expiring.clear()


os.register_at_fork(after_in_child=_forget_clients)

_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_STYLES = ("path", "virtual")


def s3_options(endpoint: str | None = None, region: str | None = None) -> S3Options:
    """Return the given S3 options, completed from the environment and the profiles that boto3 reads.

    Args:
        endpoint: by default `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, or `endpoint_url` of the profile's services or
            of the profile. With `AWS_IGNORE_CONFIGURED_ENDPOINT_URLS`, or `ignore_configured_endpoint_urls` of the
            profile, Amazon's endpoint of the region is used instead of these.
        region: by default `AWS_REGION`, `AWS_DEFAULT_REGION`, `region` of the profile, or us-east-1.

    Raises:
        S3Error: if the endpoint is not a URL, or the profile does not exist.
    """
    try:
        session = boto3.session.Session()
        profile = session._session.get_scoped_config()  # noqa: SLF001 (boto3 has no other way to its settings)
    except exceptions.BotoCoreError as error:
        raise s3_error(error, "", "the settings for AWS: ") from None
    # boto3 reads AWS_DEFAULT_REGION alone, but other tools, Delta's client among them, read this one.
    region = region or os.environ.get("AWS_REGION") or session.region_name or DEFAULT_REGION
    endpoint = endpoint or _configured_endpoint(session, profile, region)
    if endpoint is not None:
        _check_endpoint(endpoint)
    style = dict(profile.get("s3") or {}).get("addressing_style")
    return S3Options(
        endpoint,
        region,
        # Servers other than Amazon's seldom have a DNS name for each bucket.
        virtual_hosts=style == "virtual" if style in _STYLES else endpoint is None,
    )


def _configured_endpoint(session: boto3.session.Session, profile: Mapping[str, Any], region: str) -> str | None:
    """Return the endpoint that environment variables or the profile set, in the order in which boto3 looks for it."""
    core = session._session  # noqa: SLF001 (boto3 has no other way to its settings)
    services = core.full_config.get("services", {}).get(profile.get("services"), {})
    of_service = services.get("s3")
    found = [os.environ.get(name) for name in _ENDPOINT_VARIABLES]
    found += [of_service.get("endpoint_url") if isinstance(of_service, Mapping) else None, profile.get("endpoint_url")]
    configured = next(filter(None, found), None)
    if configured is not None and core.get_config_variable("ignore_configured_endpoint_urls"):
        # Amazon's URL is given explicitly: Delta's own client reads AWS_ENDPOINT_URL but does not know this variable.
        return str(session.client("s3", region_name=region).meta.endpoint_url)
    return configured


def _check_endpoint(endpoint: str) -> None:
    if "@" in endpoint:  # without http://, the parsed URL would have no netloc
        raise S3Error(
            "expected an endpoint of the object store without credentials, found one that holds credentials",
            "Leave them out: they come from the environment, a profile or a role",
        )
    try:
        parts = urlsplit(endpoint)
    except ValueError as error:
        raise S3Error(
            f"endpoint {endpoint!r}: expected http://HOST:PORT or https://HOST, found an invalid URL: {error}",
            "Correct it, or leave it out",
        ) from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise S3Error(
            f"endpoint {endpoint!r}: expected http://HOST:PORT or https://HOST", "Correct it, or leave it out"
        )
    if parts.scheme == "http":
        warn_unencrypted(f"the object store {endpoint}", parts.hostname, "Give its https:// endpoint")


def _find_credentials() -> Credentials:
    key = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_")))
    # One search for all threads: it may start a program or ask another server.
    with _lock:
        if key not in _expiring:
            found = boto3.session.Session().get_credentials()
            if found is None:
                raise exceptions.NoCredentialsError
            if not isinstance(found, RefreshableCredentials):
                return found
            _expiring[key] = found
        return _expiring[key]


def delta_options(options: S3Options) -> dict[str, str]:
    """Return the storage options of the deltalake package for a server, with the credentials that boto3 finds.

    Credentials that expire are kept, and renewed a few minutes before their end: finding them can take a request to
    another server, or start the `credential_process` of a profile. Others are read each time, as they may change.

    Delta commits with a conditional put: the server refuses it if the file already exists.

    Raises:
        S3Error: if there are no credentials.
    """
    try:
        frozen = _find_credentials().get_frozen_credentials()
    except exceptions.BotoCoreError as error:
        raise s3_error(error, "", "the object store requires credentials, ") from None
    found = {
        "aws_access_key_id": frozen.access_key,
        "aws_secret_access_key": frozen.secret_key,
        "aws_region": options.region,
        "aws_virtual_hosted_style_request": str(options.virtual_hosts).lower(),
        "aws_conditional_put": "etag",
    }
    if frozen.token:
        found["aws_session_token"] = frozen.token
    if options.endpoint is not None:
        found["aws_endpoint_url"] = options.endpoint
        found["aws_endpoint_url_s3"] = options.endpoint  # otherwise the environment's comes before the one above
        found["aws_allow_http"] = str(options.endpoint.startswith("http://")).lower()
    return found
