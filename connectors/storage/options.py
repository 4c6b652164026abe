"""Options of an object store, in a form that the driver can send to workers."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class S3Options:
    """Endpoint and region of a server. Every process finds the credentials for itself.

    Attributes:
        endpoint: URL of the server; None for Amazon's.
        region: region of the bucket.
        virtual_hosts: whether a bucket's name is part of the host name, as at Amazon, or of the path, as with most
            other servers.
    """

    endpoint: str | None = None
    region: str = DEFAULT_REGION
    virtual_hosts: bool = True
