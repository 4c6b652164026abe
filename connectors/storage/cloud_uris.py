"""URIs of places in object stores other than S3.

    abfss://container@account.dfs.core.windows.net/prefix    Azure's, as Hadoop writes it
    gs://bucket/prefix                                       Google Cloud Storage

Each scheme has one form, which all tools of that cloud know and which is enough to make a request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from commitlake.connectors.storage.errors import CloudError

AZURE = frozenset({"abfs", "abfss"})
GOOGLE = frozenset({"gs"})
_OTHERS = frozenset({"file", "s3", "hdfs"})
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_AZURE_AUTHORITY = re.compile(
    r"(?P<container>[$a-z0-9][a-z0-9-]{1,62})@(?P<account>[a-z0-9]{3,24})\.(?:dfs|blob)\.(?P<suffix>[a-z0-9.-]{3,100})"
)
_GOOGLE_AUTHORITY = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_SECRET = re.compile(r"[?&]sig=|://[^/@]*:[^/@]*@", re.IGNORECASE)
_EXPECTED = "abfss://container@account.dfs.core.windows.net/prefix"
_GOOGLE_EXPECTED = "gs://bucket/prefix"


@dataclass(frozen=True, slots=True)
class CloudUri:
    """A place in a container; `prefix` neither begins nor ends in a slash, and is empty for the whole container.

    Attributes:
        scheme: scheme, in lower case.
        authority: container, account and server; the bucket, at Google.
        prefix: path in the container.
    """

    scheme: str
    authority: str
    prefix: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.path}"

    @property
    def path(self) -> str:
        """The URI without its scheme."""
        return f"{self.authority}/{self.prefix}".rstrip("/")

    @property
    def container(self) -> str:
        """Name of the container or bucket."""
        return self.authority.partition("@")[0]

    @property
    def account(self) -> str:
        """Name of the account."""
        return self.authority.partition("@")[2].partition(".")[0]

    @property
    def suffix(self) -> str:
        """Domain of the cloud: `core.windows.net`, or that of a national cloud."""
        return self.authority.partition("@")[2].split(".", 2)[2]

    def key(self, name: str) -> str:
        """Return the key of an object below this place."""
        return f"{self.prefix}/{name}".strip("/")


def scheme_of(place: str) -> str | None:
    """Return the scheme of a URI in lower case, or None for a path.

    >>> scheme_of("GS://logs/a"), scheme_of("/data/store")
    ('gs', None)
    """
    found = _SCHEME.match(place)
    return found[1].lower() if found else None


def is_cloud(place: str) -> bool:
    """Return whether a place is in an object store that is not S3, and can be read."""
    return scheme_of(place) in AZURE | GOOGLE


def is_google(place: str) -> bool:
    """Return whether a place is in Google Cloud Storage."""
    return scheme_of(place) in GOOGLE


def parse_cloud_uri(uri: str) -> CloudUri:
    """Parse a URI.

    Raises:
        CloudError: if it has another form, or contains credentials.
    """
    check_no_secret(uri)
    scheme = scheme_of(uri) or ""
    authority, _, path = uri.partition("://")[2].partition("/")
    prefix = path.strip("/")
    if scheme in GOOGLE:
        expected, form, names = _GOOGLE_EXPECTED, _GOOGLE_AUTHORITY, "Name the bucket, in lower case, and no server"
    else:
        expected, form, names = _EXPECTED, _AZURE_AUTHORITY, "Name the container, the account and its server"
    if scheme not in AZURE | GOOGLE or form.fullmatch(authority) is None:
        raise CloudError(f"{uri!r}: expected {expected}", names)
    if prefix and not {"", ".", ".."}.isdisjoint(prefix.split("/")):
        raise CloudError(f"{uri!r}: expected {expected}", "A prefix has no empty part, no '.' and no '..'")
    return CloudUri(scheme, authority, prefix)


def check_no_secret(uri: str) -> None:
    """Refuse a URI with a password or a signature, without repeating it.

    Raises:
        CloudError: if it contains one.
    """
    if _SECRET.search(uri):
        raise CloudError(
            "the URI of an object store holds credentials",
            "Leave them out: they come from the environment or from the identity of the machine",
        )


def check_scheme(place: str) -> None:
    """Refuse a store at a URI that no job can read.

    Raises:
        CloudError: if the scheme is not known, or the URI contains credentials.
    """
    check_no_secret(place)
    scheme = scheme_of(place)
    if scheme is None or scheme in _OTHERS | AZURE | GOOGLE:
        return
    raise CloudError(
        f"{place!r}: stores at {scheme}:// cannot be read: expected a folder, s3://bucket/prefix, "
        f"{_GOOGLE_EXPECTED}, hdfs://host:port/folder, or {_EXPECTED}",
        "Mount other file systems as a folder, or copy the store with 'commitlake ship'",
    )
