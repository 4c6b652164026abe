"""The options `--s3-endpoint` and `--s3-region`, for jobs with a place in an object store."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol

from commitlake.jobs.cli.options import Options, option


@dataclass(frozen=True, kw_only=True)
class S3Arguments(Options):
    """Options of an object store."""

    s3_endpoint: str | None = option(
        "URL of an object store other than Amazon's (default: AWS_ENDPOINT_URL_S3); credentials as for any AWS tool",
        metavar="URL",
    )
    s3_region: str | None = option("region of the bucket (default: AWS_REGION, or that of the profile)", metavar="NAME")


class NamesObjectStore(Protocol):
    """Interface of options for an object store; see `S3Arguments`."""

    @property
    def s3_endpoint(self) -> str | None:
        """URL of the object store."""

    @property
    def s3_region(self) -> str | None:
        """Region of the bucket."""


def set_s3_environment(arguments: NamesObjectStore) -> None:
    """Set the S3 options as environment variables of this process, which all code for object stores reads."""
    for variable, value in (("AWS_ENDPOINT_URL_S3", arguments.s3_endpoint), ("AWS_REGION", arguments.s3_region)):
        if value:
            os.environ[variable] = value
