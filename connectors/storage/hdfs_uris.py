"""URIs of places in HDFS: `hdfs://host:port/folder`, or `hdfs://nameservice/folder` with settings of Hadoop."""

from __future__ import annotations

import re
from dataclasses import dataclass

from commitlake.connectors.storage.cloud_uris import check_no_secret, scheme_of
from commitlake.connectors.storage.errors import CloudError

EXPECTED = "hdfs://host:port/folder or hdfs://nameservice/folder"
_MAX_PORT = 65535
_AUTHORITY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class HdfsUri:
    """A place in HDFS; `folder` neither begins nor ends in a slash, and is empty for the root.

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
        """Return the absolute path of a file below this place."""
        return "/" + f"{self.folder}/{name}".strip("/")


def is_hdfs(place: str) -> bool:
    """Return whether a place is in HDFS.

    >>> is_hdfs("HDFS://host:8020/a"), is_hdfs("/hdfs://a")
    (True, False)
    """
    return scheme_of(place) == "hdfs"


def parse_hdfs_uri(uri: str) -> HdfsUri:
    """Parse a URI; nothing in it is decoded, as in Hadoop's own commands.

    Raises:
        CloudError: if it has another form, contains credentials, or a name that HDFS does not have.
    """
    check_no_secret(uri)
    authority, _, path = uri.partition("://")[2].partition("/")
    folder = path.strip("/")
    port = authority.partition(":")[2]
    if not is_hdfs(uri) or _AUTHORITY.fullmatch(authority) is None or (port and not 0 < int(port) <= _MAX_PORT):
        raise CloudError(f"{uri!r}: expected {EXPECTED}", "Name the NameNode and its port, or a nameservice")
    if folder and any(part in {"", ".", ".."} or not is_possible(part) for part in folder.split("/")):
        raise CloudError(
            f"{uri!r}: expected {EXPECTED}", "A folder has no empty part, no '.', no '..', and no ':' in its name"
        )
    return HdfsUri(authority, folder)


def is_possible(name: str) -> bool:
    r"""Return whether a file in HDFS can have a path: the NameNode refuses some names that other filesystems have.

    >>> [is_possible(name) for name in ("commitlog/0", "config/a:b", ".snapshot/a", "a\ud800")]
    [True, False, False, False]
    """
    parts = name.split("/")
    return ":" not in name and "\0" not in name and ".snapshot" not in parts and _is_text(name)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
