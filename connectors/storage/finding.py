"""Choice of the object store: from a job's options or its environment, once for all workers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.exceptions import BotoCoreError

from commitlake.connectors.plain_connections import warn_of_plain
from commitlake.connectors.storage.errors import S3Error
from commitlake.connectors.storage.options import DEFAULT_REGION, S3Options
from commitlake.connectors.storage.s3_errors import s3_error

_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_STYLES = ("path", "virtual")


def s3_options(endpoint: str | None = None, region: str | None = None) -> S3Options:
    """Return the given options, completed from the environment and profiles that boto3 reads.

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
    except BotoCoreError as error:
        raise s3_error(error, "", "the settings for AWS: ") from None
    region = region or os.environ.get("AWS_REGION") or session.region_name or DEFAULT_REGION
    endpoint = endpoint or _configured_endpoint(session, profile, region)
    if endpoint is not None:
        _check_endpoint(endpoint)
    style = dict(profile.get("s3") or {}).get("addressing_style")
    return S3Options(
        endpoint,
        region,
        virtual_hosts=style == "virtual" if style in _STYLES else endpoint is None,
    )


def _configured_endpoint(session: boto3.session.Session, profile: Mapping[str, Any], region: str) -> str | None:
    """Return the endpoint of the environment or the profile, in boto3's order: each client must have the same one."""
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
            "the endpoint of the object store holds credentials",
            "Leave them out: they come from the environment, a profile or a role",
        )
    try:
        parts = urlsplit(endpoint)
    except ValueError as error:
        raise S3Error(f"endpoint {endpoint!r}: {error}", "Correct it, or leave it out") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise S3Error(
            f"endpoint {endpoint!r}: expected http://HOST:PORT or https://HOST", "Correct it, or leave it out"
        )
    if parts.scheme == "http":
        warn_of_plain(f"the object store {endpoint}", parts.hostname, "Give its https:// endpoint")
