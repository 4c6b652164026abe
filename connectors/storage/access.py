"""Credentials of this process for libraries other than boto3, and a look at a place.

Credentials of roles expire: use these results soon, and create them again for the next use.
"""

from __future__ import annotations

import boto3
from botocore import exceptions

from commitlake.connectors.storage.clients import FEW_ATTEMPTS, s3_client
from commitlake.connectors.storage.errors import S3Error
from commitlake.connectors.storage.options import S3Options
from commitlake.connectors.storage.s3_errors import ERRORS, NO_LISTING, s3_error
from commitlake.connectors.storage.uris import parse_s3_uri

_FEW_NAMES = 3


def delta_options(options: S3Options) -> dict[str, str]:
    """Return the storage options of the deltalake package for a server, with the credentials that boto3 finds.

    Delta commits with a conditional put: the server refuses it if the file already exists.

    Raises:
        S3Error: if there are no credentials.
    """
    try:
        credentials = boto3.session.Session().get_credentials()
        if credentials is None:
            raise exceptions.NoCredentialsError
        frozen = credentials.get_frozen_credentials()
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
        found["aws_allow_http"] = str(options.endpoint.startswith("http://")).lower()
    return found


def first_names(options: S3Options, uri: str, prefix: str) -> list[str]:
    """List a few names below a place, which shows whether objects exist and may be listed.

    Args:
        uri: the folder.
        prefix: prefix of the names.

    Raises:
        S3Error: if the server cannot be reached, or refuses the listing.
    """
    place = parse_s3_uri(uri)
    folder = place.key("")
    try:
        answer = s3_client(options, FEW_ATTEMPTS).list_objects_v2(
            Bucket=place.bucket, Prefix=folder + prefix, MaxKeys=_FEW_NAMES
        )
    except ERRORS as error:
        raise s3_error(error, place.bucket, f"{place} cannot be listed: ") from None
    if "Name" not in answer:  # as of a proxy's page, which is read as an empty answer
        raise S3Error(*NO_LISTING, f"{place} cannot be listed: ")
    names = (found["Key"].removeprefix(folder) for found in answer.get("Contents", ()))
    return [name for name in names if name]  # without the folder itself, which some tools create as an object
