"""Delta tables by path or URI, for the deltalake package: those in object stores with credentials."""

from __future__ import annotations

from deltalake import DeltaTable

from connectors.s3.options import S3Options
from connectors.s3.uris import is_s3


def delta_table(uri: str, s3: S3Options | None = None) -> DeltaTable:
    """A table as it is now.

    Args:
        uri: path or URI of the table.
        s3: the object store; by default that of the environment.

    Raises:
        TableNotFoundError: if there is none.
        S3Error: if an object store wants credentials, and there are none.
        OSError: if an object store cannot be reached.
    """
    return DeltaTable(uri, storage_options=storage_options(uri, s3))


def storage_options(uri: str, s3: S3Options | None = None) -> dict[str, str] | None:
    """What deltalake's functions are to be told of a table: nothing, where it lies in a folder.

    They hold credentials as they are now, which may expire: a long run asks again.

    Args:
        uri: path or URI of the table.
        s3: the object store; by default that of the environment.

    Raises:
        S3Error: if an object store wants credentials, and there are none.
    """
    if not is_s3(uri):
        return None
    from connectors.s3.access import delta_options  # noqa: PLC0415 (boto3, only where it is wanted)
    from connectors.s3.finding import s3_options  # noqa: PLC0415

    return delta_options(s3 or s3_options())
