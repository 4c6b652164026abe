"""The options `--s3-endpoint` and `--s3-region`, for jobs with a place in an object store."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Protocol

from commitlake.connectors.storage.uris import is_uri
from commitlake.jobs.cli.options import Options, option


@dataclass(frozen=True, kw_only=True)
class S3Arguments(Options):
    """Options for the endpoint and the region of an S3 object store."""

    s3_endpoint: str | None = option(
        "URL of an object store other than Amazon's (default: AWS_ENDPOINT_URL_S3); credentials as for any AWS tool",
        metavar="URL",
    )
    s3_region: str | None = option("region of the bucket (default: AWS_REGION, or that of the profile)", metavar="NAME")


class HasS3Options(Protocol):
    """Interface of options that may set the endpoint and the region of an S3 object store."""

    @property
    def s3_endpoint(self) -> str | None:
        """URL of the object store."""

    @property
    def s3_region(self) -> str | None:
        """Region of the bucket."""


def set_s3_environment(arguments: HasS3Options) -> None:
    """Set the S3 options as environment variables of this process, which all code for object stores reads."""
    for variable, value in (("AWS_ENDPOINT_URL_S3", arguments.s3_endpoint), ("AWS_REGION", arguments.s3_region)):
        if value:
            os.environ[variable] = value


def check_stores_at_uris(stores: str, endpoint: str | None = None, region: str | None = None) -> None:
    """Check that stores in object stores or HDFS can be listed, to report problems more clearly than Arrow does.

    Args:
        stores: places of stores with commas between, as of `--store`; paths of folders are not checked.
        endpoint: value of `--s3-endpoint`.
        region: value of `--s3-region`.

    Raises:
        ObjectStoreError: if a place cannot be listed, or its URI is not one that jobs can read.
    """
    uris = [place.strip() for place in stores.split(",") if is_uri(place)]
    if not uris:
        return
    from commitlake.connectors.storage.adapter_choice import open_for_arrow
    from commitlake.connectors.storage.uris import check_scheme

    for uri in uris:
        check_scheme(uri)  # the whole URI: a signature behind a question mark would look like a wildcard
        folder = _folder_above_wildcards(uri)
        if (storage := open_for_arrow(folder, endpoint, region)) is not None:
            storage.check_readable()


def _folder_above_wildcards(uri: str) -> str:
    """Return the part of a URI before the first path component with a wildcard."""
    return re.split(r"/[^/]*[*?\[{]", uri, maxsplit=1)[0]
