"""URIs of places in object stores: `s3://bucket/prefix`, or `s3a://`, as Hadoop writes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from commitlake.connectors.storage.errors import S3Error

_SCHEME = re.compile(r"s3[an]?://", re.IGNORECASE)
_ANY_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
# Characters that boto3, deltalake and Spark all write and read under one key. With '%41' and ':' their keys differ, and
# other characters make deltalake panic: a lake there would be in two places, or lose its log.
_UNSAFE = re.compile(r"[^\w !$&'()+,\-./;=@~]")


@dataclass(frozen=True, slots=True)
class S3Uri:
    """A place in a bucket; `prefix` neither begins nor ends in a slash, and is empty for the whole bucket."""

    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"s3://{self.path}"

    @property
    def path(self) -> str:
        """Bucket and prefix, in the form that Arrow uses."""
        return f"{self.bucket}/{self.prefix}".rstrip("/")

    def key(self, name: str) -> str:
        """Return the key of an object below this place."""
        return f"{self.prefix}/{name}".lstrip("/")


def is_s3(uri: str) -> bool:
    """Return whether a path or URI points to an object store."""
    return _SCHEME.match(uri) is not None


def is_uri(place: str) -> bool:
    """Return whether a text is a URI, and not the path of a folder; see `has_scheme` for forms with one slash.

    >>> is_uri("s3://bucket/lake"), is_uri("/data/lake")
    (True, False)
    """
    return "://" in place


def absolute_place(place: str) -> str:
    """Return a URI as it is, and a path as an absolute one."""
    return place if is_uri(place) else str(Path(place).absolute())


def has_scheme(place: str) -> bool:
    """Return whether a text is a URI such as `gs://bucket/lake` or `dbfs:/lake`, and not the path of a folder."""
    return _ANY_SCHEME.match(place) is not None


def parse_s3_uri(uri: str) -> S3Uri:
    """Parse a URI.

    Raises:
        S3Error: if it names no bucket, has more than bucket and prefix, or a character that tools treat differently.
    """
    bucket, _, prefix = _SCHEME.sub("", uri, count=1).partition("/")
    if "@" in bucket:  # the error does not repeat what may be a secret
        raise S3Error(
            "the URI of an object store holds credentials",
            "Leave them out: they come from the environment, a profile or a role",
        )
    if not is_s3(uri) or _BUCKET.fullmatch(bucket) is None:
        raise S3Error(f"{uri!r}: expected s3://bucket/prefix", "A bucket's name has 3 to 63 letters, digits, '-', '.'")
    parts = prefix.strip("/").split("/")
    if any(part in {"", ".", ".."} for part in parts if prefix.strip("/")):
        raise S3Error(f"{uri!r}: expected s3://bucket/prefix", "A prefix has no empty part, no '.' and no '..'")
    unsafe = "".join(sorted(set(_UNSAFE.findall(prefix))))
    if unsafe:
        raise S3Error(
            f"{uri!r}: expected s3://bucket/prefix, found {unsafe!r} in the prefix",
            "A prefix has letters, digits, spaces and !$&'()+,-./;=@_~ as they are, not encoded: its tools make "
            "different names of others",
        )
    return S3Uri(bucket, "/".join(parts))
