"""Endpoint and region of S3, in a form that can be sent to workers, and the matching settings of Spark.

Spark reaches an object store through Hadoop's s3a. Credentials are not among its settings: a provider finds them in the
JVM's own environment, profile or role, so no log and no page of Spark can show them.
"""

from __future__ import annotations

from dataclasses import dataclass

from commitlake.connectors.storage.uris import is_s3, parse_s3_uri

DEFAULT_REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class S3Options:
    """Endpoint and region of an S3 server, without credentials, which each process finds itself.

    Attributes:
        endpoint: URL of the server; None for Amazon's.
        region: region of the bucket.
        virtual_hosts: whether a bucket's name is part of the host name, as at Amazon, or of the path, as with most
            other servers.
    """

    endpoint: str | None = None
    region: str = DEFAULT_REGION
    virtual_hosts: bool = True


_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"
# Looks in the same places as boto3: environment, system properties, web identity, profile, container, machine.
_PROVIDER = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"


def s3a_settings(options: S3Options) -> dict[str, str]:
    """Return the Spark settings for a server, with which Spark reads `s3://` through its adapter `s3a`."""
    settings = {
        "fs.s3.impl": _S3A,
        "fs.s3a.aws.credentials.provider": _PROVIDER,
        "fs.s3a.endpoint.region": options.region,
        "fs.s3a.path.style.access": str(not options.virtual_hosts).lower(),
    }
    if options.endpoint is not None:
        settings["fs.s3a.endpoint"] = options.endpoint
        settings["fs.s3a.connection.ssl.enabled"] = str(options.endpoint.startswith("https://")).lower()
    return {f"spark.hadoop.{name}": value for name, value in settings.items()}


def spark_uri(uri: str) -> str:
    """Return a path or URI in the form for Spark, in which an S3 URI has the scheme `s3a`.

    >>> spark_uri("s3://bucket/lake/messages"), spark_uri("/data/lake/messages")
    ('s3a://bucket/lake/messages', '/data/lake/messages')
    """
    return f"s3a://{parse_s3_uri(uri).path}" if is_s3(uri) else uri
