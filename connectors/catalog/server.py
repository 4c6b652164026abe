"""The catalog's server and its token, which come from the environment only.

UNITY_CATALOG_URL, UNITY_CATALOG_TOKEN      the open source server, or any other; the token only if the server needs one
DATABRICKS_HOST, DATABRICKS_TOKEN           a workspace of Databricks, as for all of Databricks' tools

The first address that is set is used, with its own token: no token is ever sent to the other address.
"""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from commitlake.connectors.catalog.names import ADDRESS_VARIABLES, CatalogError
from commitlake.connectors.storage.uris import is_uri
from commitlake.connectors.unencrypted_connections import warn_unencrypted

_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}")


@dataclass(frozen=True, slots=True)
class CatalogServer:
    """The URL and the token of a catalog server.

    Attributes:
        url: its URL, without a path.
        token: its token, or empty.
    """

    url: str
    token: str = field(default="", repr=False)

    @property
    def is_local(self) -> bool:
        """Return True if the server is on this machine."""
        host = urlsplit(self.url).hostname or ""
        try:
            return host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False


def configured_catalog_server() -> CatalogServer | None:
    """Return the catalog server that the environment variables set; None if they are not set.

    Raises:
        CatalogError: if its address is not that of a server, or its token is missing or malformed.
    """
    for address, secret in zip(ADDRESS_VARIABLES, ("UNITY_CATALOG_TOKEN", "DATABRICKS_TOKEN"), strict=True):
        given = os.environ.get(address, "").strip()
        if given:
            token = os.environ.get(secret, "").strip()
            if token and _TOKEN.fullmatch(token) is None:
                raise CatalogError(f"{secret}: expected a token of printable ASCII characters, found other characters")
            if not token and address == "DATABRICKS_HOST":
                raise CatalogError(
                    f"{secret} is not set: expected a personal access token, or a service principal's OAuth token"
                )
            return CatalogServer(_parse_server_url(given, address), token)
    return None


def _parse_server_url(text: str, variable: str) -> str:
    """Check a server's URL, and return it without a path; DATABRICKS_HOST may also be a host name alone."""
    url = text if is_uri(text) or variable != "DATABRICKS_HOST" else f"https://{text}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if "@" in url:  # the error does not repeat what may be a secret
        raise CatalogError(f"{variable} contains credentials: leave them out, and put the token into its own variable")
    host = parts.hostname or ""
    if parts.scheme not in {"http", "https"} or not re.fullmatch(r"[0-9a-z.:_-]+", host) or parts.path.strip("/"):
        raise CatalogError(f"{variable} is {text[:200]!a}: expected https://HOST, or http://HOST:PORT")
    if parts.scheme == "http":
        warn_unencrypted(f"the catalog {parts.scheme}://{parts.netloc}", host, "Give its https:// address")
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + ("" if port is None else f":{port}")
