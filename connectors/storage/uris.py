"""URIs of places for files: object stores and HDFS.

    s3://bucket/prefix                                       S3 (also s3a://, as Hadoop writes it)
    abfss://container@account.dfs.core.windows.net/prefix    Azure's, as Hadoop writes it
    gs://bucket/prefix                                       Google Cloud Storage
    hdfs://host:port/folder                                  HDFS; or hdfs://nameservice/folder with Hadoop's settings

Each scheme has one form, which all tools of that cloud know and which is enough to make a request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from commitlake.connectors.storage.errors import CloudError, S3Error

_S3_SCHEME = re.compile(r"s3[an]?://", re.IGNORECASE)
_ANY_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
# Characters that boto3, deltalake and Spark all write and read under one key. With '%41' and ':' their keys differ, and
# other characters make deltalake panic: a lake there would be in two places, or lose its log.
_UNSAFE = re.compile(r"[^\w !$&'()+,\-./;=@~]")


@dataclass(frozen=True, slots=True)
class S3Uri:
    """Bucket and prefix of an `s3://` URI; the prefix has no slash at its ends, and is empty for the whole bucket."""

    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"s3://{self.path}"

    @property
    def path(self) -> str:
        """Bucket and prefix, in the form that Arrow uses."""
        return f"{self.bucket}/{self.prefix}".rstrip("/")

    def key(self, name: str) -> str:
        """Return the key of an object, given its name relative to the prefix."""
        return f"{self.prefix}/{name}".lstrip("/")


def is_s3(uri: str) -> bool:
    """Return whether a path or URI is an S3 URI."""
    return _S3_SCHEME.match(uri) is not None


def is_uri(path_or_uri: str) -> bool:
    """Return whether a text is a URI with `://`, and not the path of a folder.

    >>> is_uri("s3://bucket/lake"), is_uri("/data/lake")
    (True, False)
    """
    return "://" in path_or_uri


def scheme_prefix(path_or_uri: str) -> str:
    """Return the scheme of a URI as it is written, with `://`; an empty text for the path of a folder.

    >>> scheme_prefix("S3://bucket/lake"), scheme_prefix("/data/lake")
    ('S3://', '')
    """
    return path_or_uri.partition("://")[0] + "://" if is_uri(path_or_uri) else ""


def absolute_path_or_uri(path_or_uri: str) -> str:
    """Return a path as an absolute path; return a URI unchanged."""
    return path_or_uri if is_uri(path_or_uri) else str(Path(path_or_uri).absolute())


def has_scheme(path_or_uri: str) -> bool:
    """Return whether a text is a URI such as `gs://bucket/lake` or `dbfs:/lake`, and not the path of a folder."""
    return _ANY_SCHEME.match(path_or_uri) is not None


def parse_s3_uri(uri: str) -> S3Uri:
    """Parse an `s3://` URI into bucket and prefix, and refuse credentials in it.

    Raises:
        S3Error: if it names no bucket, has more than bucket and prefix, or a character that tools treat differently.
    """
    bucket, _, prefix = _S3_SCHEME.sub("", uri, count=1).partition("/")
    if "@" in bucket:  # the error does not repeat what may be a secret
        raise S3Error(
            "expected the URI of an object store without credentials, found one that holds credentials",
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
    """Container and prefix of a URI in Azure or Google; the prefix is empty for the whole container.

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
        """Name of the Azure account."""
        return self.authority.partition("@")[2].partition(".")[0]

    @property
    def suffix(self) -> str:
        """Domain of the cloud: `core.windows.net`, or that of one of Azure's national clouds."""
        return self.authority.partition("@")[2].split(".", 2)[2]

    def key(self, name: str) -> str:
        """Return the key of an object, given its name relative to the prefix."""
        return f"{self.prefix}/{name}".strip("/")


def scheme_of(path_or_uri: str) -> str | None:
    """Return the scheme of a URI in lower case, or None for a path.

    >>> scheme_of("GS://logs/a"), scheme_of("/data/store")
    ('gs', None)
    """
    found = _SCHEME.match(path_or_uri)
    return found[1].lower() if found else None


def is_azure_or_google(path_or_uri: str) -> bool:
    """Return whether a URI is in Azure or Google Cloud Storage."""
    return scheme_of(path_or_uri) in AZURE | GOOGLE


def is_google(path_or_uri: str) -> bool:
    """Return whether a URI is in Google Cloud Storage."""
    return scheme_of(path_or_uri) in GOOGLE


def parse_cloud_uri(uri: str) -> CloudUri:
    """Parse a URI of Azure or Google into container and prefix, and refuse credentials in it.

    Raises:
        CloudError: if it has another form, or contains credentials.
    """
    # First, because all later errors repeat the URI.
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
            "expected the URI of an object store without credentials, found one that holds credentials",
            "Leave them out: they come from the environment or from the identity of the machine",
        )


def check_scheme(path_or_uri: str) -> None:
    """Refuse a URI with a scheme that jobs cannot read, or with credentials.

    Raises:
        CloudError: if the scheme is not known, or the URI contains credentials.
    """
    check_no_secret(path_or_uri)
    scheme = scheme_of(path_or_uri)
    if scheme is None or scheme in _OTHERS | AZURE | GOOGLE:
        return
    raise CloudError(
        f"{path_or_uri!r}: {scheme}:// is not supported here: expected a folder, s3://bucket/prefix, "
        f"{_GOOGLE_EXPECTED}, hdfs://host:port/folder, or {_EXPECTED}",
        "Mount other file systems as a folder, or copy the store with 'commitlake ship'",
    )


EXPECTED = "hdfs://host:port/folder or hdfs://nameservice/folder"
_MAX_PORT = 65535
_AUTHORITY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class HdfsUri:
    """Server and folder of an `hdfs://` URI; the folder has no slash at its ends, and is empty for the root.

    Attributes:
        authority: host and port of a NameNode, or name of a nameservice.
        folder: path of the folder.
    """

    authority: str
    folder: str

    def __str__(self) -> str:
        return f"hdfs://{self.path}"

    @property
    def path(self) -> str:
        """The URI without its scheme."""
        return f"{self.authority}/{self.folder}".rstrip("/")

    def key(self, name: str) -> str:
        """Return the absolute path of a file, given its name relative to the folder."""
        return "/" + f"{self.folder}/{name}".strip("/")


def is_hdfs(path_or_uri: str) -> bool:
    """Return whether a path or URI is in HDFS.

    >>> is_hdfs("HDFS://host:8020/a"), is_hdfs("/hdfs://a")
    (True, False)
    """
    return scheme_of(path_or_uri) == "hdfs"


def parse_hdfs_uri(uri: str) -> HdfsUri:
    """Parse a URI of HDFS into server and folder; nothing in it is decoded, as in Hadoop's own commands.

    Raises:
        CloudError: if it has another form, contains credentials, or a name that HDFS does not have.
    """
    check_no_secret(uri)
    authority, _, path = uri.partition("://")[2].partition("/")
    folder = path.strip("/")
    port = authority.partition(":")[2]
    if not is_hdfs(uri) or _AUTHORITY.fullmatch(authority) is None or (port and not 0 < int(port) <= _MAX_PORT):
        raise CloudError(f"{uri!r}: expected {EXPECTED}", "Name the NameNode and its port, or a nameservice")
    if folder and any(part in {"", ".", ".."} or not is_valid_hdfs_name(part) for part in folder.split("/")):
        raise CloudError(
            f"{uri!r}: expected {EXPECTED}", "A folder has no empty part, no '.', no '..', and no ':' in its name"
        )
    return HdfsUri(authority, folder)


def is_valid_hdfs_name(name: str) -> bool:
    r"""Return whether HDFS allows a path: the NameNode refuses some names that other filesystems have.

    >>> [is_valid_hdfs_name(name) for name in ("commitlog/0", "config/a:b", ".snapshot/a", "a\ud800")]
    [True, False, False, False]
    """
    parts = name.split("/")
    return ":" not in name and "\0" not in name and ".snapshot" not in parts and _is_encodable(name)


def _is_encodable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
