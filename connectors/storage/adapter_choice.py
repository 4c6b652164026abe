"""Choice of the adapter of a place by its URI; the package of an adapter is imported when it is first used."""

from __future__ import annotations

import os

from commitlake.connectors.storage.bandwidth_limit import BandwidthLimit
from commitlake.connectors.storage.folder_storage import FolderStorage
from commitlake.connectors.storage.s3_options import S3Options
from commitlake.connectors.storage.storage import LakeStorage, ReadableStorage, Storage
from commitlake.connectors.storage.uris import check_scheme, is_azure_or_google, is_google, is_hdfs, is_s3


def open_storage(uri: str, pace: BandwidthLimit | None = None) -> Storage:
    """Return access to the files below a URI in an object store or HDFS; no request is made.

    Args:
        uri: `s3://…`, `gs://…`, `abfss://…` or `hdfs://…`; the endpoint of S3 comes from the environment.
        pace: limit of the bytes per second.

    Raises:
        ObjectStoreError: if it has not the form of a URI of its scheme.
    """
    if not is_s3(uri):
        return open_readable_storage(uri, pace)
    from commitlake.connectors.storage.s3_storage import S3Storage  # noqa: PLC0415 (takes long to import)

    return S3Storage(uri, pace=pace)


def open_lake_storage(path_or_uri: str, s3: S3Options | None = None) -> LakeStorage:
    """Return access to the files of a lake below a folder or URI; no request is made.

    Args:
        path_or_uri: path of a folder, which must not be a link, or `s3://bucket/prefix`.
        s3: the object store, if the place is in one; by default that of the environment.

    Raises:
        S3Error: if the URI names no bucket.
    """
    if not is_s3(path_or_uri):
        return FolderStorage(path_or_uri)
    from commitlake.connectors.storage.s3_storage import S3Storage  # noqa: PLC0415 (likewise)

    return S3Storage(path_or_uri, s3)


def open_for_arrow(uri: str, s3_endpoint: str | None = None, s3_region: str | None = None) -> Storage | None:
    """Return access to the files at a URI that Arrow will read next; None for a folder; no request is made.

    Arrow finds the endpoint of S3 in the environment alone, so it is set there, also if it is that of a profile.

    Args:
        uri: URI of the place; also `file:///…`.
        s3_endpoint: URL of S3; by default that of the environment or the profile.
        s3_region: region of S3; likewise.

    Raises:
        ObjectStoreError: if Arrow cannot read such a place, or the URI has not the form of its scheme.
    """
    check_scheme(uri)
    if is_read_by_adapter(uri):
        return open_readable_storage(uri)
    if not is_s3(uri):
        return None
    from commitlake.connectors.storage.s3_clients import s3_options  # noqa: PLC0415 (likewise)
    from commitlake.connectors.storage.s3_storage import S3Storage  # noqa: PLC0415 (likewise)

    options = s3_options(s3_endpoint, s3_region)
    if options.endpoint is not None:
        os.environ["AWS_ENDPOINT_URL_S3"] = options.endpoint
    return S3Storage(uri, options)


def is_storage_uri(path_or_uri: str) -> bool:
    """Return whether a text is a URI in an object store or HDFS, rather than the path of a folder."""
    return is_s3(path_or_uri) or is_read_by_adapter(path_or_uri)


def is_read_by_adapter(path_or_uri: str) -> bool:
    """Return whether Arrow reads a URI through an adapter of this package, because it has no client of its own."""
    return is_azure_or_google(path_or_uri) or is_hdfs(path_or_uri)


def open_readable_storage(uri: str, pace: BandwidthLimit | None = None) -> ReadableStorage:
    """Return access to the files below a URI that Arrow reads through an adapter of this package; no request is made.

    Raises:
        CloudError: if it has not the form of a URI of its scheme.
    """
    if is_hdfs(uri):
        from commitlake.connectors.storage.hdfs_storage import HdfsStorage  # noqa: PLC0415 (likewise)

        return HdfsStorage(uri, pace)
    if is_google(uri):
        from commitlake.connectors.storage.gcs_storage import GcsStorage  # noqa: PLC0415 (likewise)

        return GcsStorage(uri, pace)
    from commitlake.connectors.storage.azure_storage import AzureStorage  # noqa: PLC0415 (likewise)

    return AzureStorage(uri, pace)
