"""The location of a lake's packs, in a form that can be sent from the driver to workers."""

from __future__ import annotations

from dataclasses import dataclass

from commitlake.connectors.lake.paths import local_folder_or_none
from commitlake.connectors.storage.s3_options import S3Options
from commitlake.connectors.storage.uris import parse_s3_uri


@dataclass(frozen=True, slots=True)
class PackLocation:
    """Location of a lake's packs; can be pickled, and contains no credentials.

    Attributes:
        root: a folder, as a path or a `file:` URI, or `s3://bucket/prefix`.
        s3: the object store; None if the root is a folder.
    """

    root: str
    s3: S3Options | None = None


OWN_PACKS = PackLocation("")
"""Stands for the folder `bodies` of a lake, before the lake is known."""


def pack_location(root: str, s3: S3Options | None = None) -> PackLocation:
    """Return the location of packs with the driver's S3 settings, so that a worker needs only credentials.

    Args:
        root: as in `PackLocation`.
        s3: the object store, if the root is in one: that of the lake; by default that of the environment.

    Raises:
        S3Error: if the root is in an object store and names no bucket, or the endpoint is not a URL.
    """
    if local_folder_or_none(root) is not None:
        return PackLocation(root)
    parse_s3_uri(root)
    if s3 is None:
        from commitlake.connectors.storage.s3_clients import s3_options

        s3 = s3_options()
    return PackLocation(root, s3)
