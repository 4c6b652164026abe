"""The options `--s3-endpoint` and `--s3-region`, for jobs with a place in an object store."""

from __future__ import annotations

import argparse
import os

_ENDPOINT = "URL of an object store other than Amazon's (default: AWS_ENDPOINT_URL_S3); credentials as for any AWS tool"
_REGION = "region of the bucket (default: AWS_REGION, or that of the profile)"


def add_s3_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--s3-endpoint` and `--s3-region`, which `set_s3_environment` reads."""
    parser.add_argument("--s3-endpoint", metavar="URL", help=_ENDPOINT)
    parser.add_argument("--s3-region", metavar="NAME", help=_REGION)


def set_s3_environment(arguments: argparse.Namespace) -> None:
    """Set the options in this process's environment, from which all code that opens an object store reads them."""
    for variable, value in (("AWS_ENDPOINT_URL_S3", arguments.s3_endpoint), ("AWS_REGION", arguments.s3_region)):
        if value:
            os.environ[variable] = value
