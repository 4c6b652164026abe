"""Settings of connections to RocketMQ, which can be sent from a driver to workers; secrets are not included.

| variable | meaning |
| --- | --- |
| COMMITLAKE_ROCKETMQ_ACCESS_KEY | access key for signing requests (ACL 1.0); without it, requests are not signed |
| COMMITLAKE_ROCKETMQ_SECRET_KEY | secret key for signing |
| COMMITLAKE_ROCKETMQ_SECURITY_TOKEN | a cloud's security token, if there is one |
| COMMITLAKE_ROCKETMQ_TLS_CONFIG | a `tls.properties` file, see `schemas.remoting.tls_properties`; none: plain text |

Every process that connects reads the variables and the file itself. With a file, all connections use TLS, unless it has
`tls.enable=false`. Server certificates are verified, unless it has `tls.client.authServer=false` or
`tls.test.mode.enable=true`. As in RocketMQ, a certificate of a trusted authority may be for another address than the
server's; `tls.client.checkHostName=true` refuses that, and so does a file without `tls.client.trustCertPath`.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from commitlake.connectors.rocketmq.errors import ClientOptionError
from commitlake.schemas.layouts.integer_parsing import parse_int
from commitlake.schemas.remoting.frames import MAX_FRAME_BYTES, SerializeType
from commitlake.schemas.remoting.signing import Credentials
from commitlake.schemas.remoting.tls import client_context, read_tls_properties
from commitlake.schemas.remoting.tls_properties import TlsConfigError

_log = logging.getLogger(__name__)

ACCESS_KEY_VARIABLE = "COMMITLAKE_ROCKETMQ_ACCESS_KEY"
SECRET_KEY_VARIABLE = "COMMITLAKE_ROCKETMQ_SECRET_KEY"  # noqa: S105 (the name of a variable)
SECURITY_TOKEN_VARIABLE = "COMMITLAKE_ROCKETMQ_SECURITY_TOKEN"  # noqa: S105
TLS_CONFIG_VARIABLE = "COMMITLAKE_ROCKETMQ_TLS_CONFIG"
_MAX_HOST = 255


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Addresses, time limits and other settings of a client; the defaults are the Java client's.

    Attributes:
        name_servers: `host:port` of each, separated by semicolons or commas; an IPv6 address without brackets.
        connect_seconds: time limit for a connection.
        request_seconds: time limit for an answer of a broker or name server.
        route_seconds: maximum age of a topic's route.
        max_pending: maximum number of a client's requests without an answer; further requests wait.
        frame_limit_bytes: size of the largest frame that is accepted from a peer.
        serialize_type: format of headers.
        instance: name that distinguishes the clients of one process in a broker's lists.
        tls_config: a `tls.properties` file; by default the one that the environment names.
        brokers: `host:port` of each broker, instead of name servers.
    """

    name_servers: str
    connect_seconds: float = 3.0
    request_seconds: float = 3.0
    route_seconds: float = 30.0
    max_pending: int = 10_000
    frame_limit_bytes: int = MAX_FRAME_BYTES
    serialize_type: SerializeType = SerializeType.JSON
    instance: str = "commitlake"
    tls_config: str | None = None
    brokers: str = ""

    def __post_init__(self) -> None:
        for name in ("connect_seconds", "request_seconds", "route_seconds", "max_pending"):
            if getattr(self, name) <= 0:
                raise ClientOptionError(f"{name}: expected a number above 0, found {getattr(self, name)}")
        for address in self.first_addresses:
            split_address(address)

    @property
    def name_server_addresses(self) -> list[str]:
        """Return the name servers, each as `host:port`; empty if brokers are given.

        Raises:
            ClientOptionError: if neither is given.
        """
        addresses = _split_addresses(self.name_servers)
        if not addresses and not self.broker_addresses:
            raise ClientOptionError("name_servers: expected at least one address as host:port, found none")
        return addresses

    @property
    def broker_addresses(self) -> list[str]:
        """Return the given brokers, each as `host:port`; empty if name servers are used."""
        return _split_addresses(self.brokers)

    @property
    def first_addresses(self) -> list[str]:
        """Return the addresses to ask first: the given brokers, otherwise the name servers."""
        return self.broker_addresses or self.name_server_addresses


def _split_addresses(text: str) -> list[str]:
    return [address for part in text.replace(",", ";").split(";") if (address := part.strip())]


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port` into host and port.

    Raises:
        ClientOptionError: if it is not of that form.
    """
    host, _, port = address.rpartition(":")
    number = parse_int(port, 1, 0xFFFF)
    if not host or number is None or not host.isprintable() or len(host) > _MAX_HOST:
        raise ClientOptionError(f"expected an address as host:port, found {address[:100]!r}")
    return host.removeprefix("[").removesuffix("]"), number


def tls_context(options: ClientOptions, environment: Mapping[str, str] | None = None) -> ssl.SSLContext | None:
    """Return the TLS settings of connections, or None for plain text.

    Raises:
        ClientOptionError: if the settings or the files that they name cannot be used.
    """
    given = os.environ if environment is None else environment
    path = options.tls_config or given.get(TLS_CONFIG_VARIABLE)
    if not path:
        return None
    try:
        settings = read_tls_properties(Path(path), given)
        if settings.is_client_enabled is False:
            return None
        if not settings.verifies_servers:
            _warn_of_unverified_servers(path)
        return client_context(settings)
    except TlsConfigError as error:
        raise ClientOptionError(str(error)) from None


@cache
def _warn_of_unverified_servers(tls_config_path: str) -> None:
    """Log a warning that servers' certificates are not verified, once for each TLS configuration file."""
    _log.warning("%s: certificates of servers are not verified", tls_config_path)


def environment_credentials(environment: Mapping[str, str] | None = None) -> Credentials | None:
    """Return the credentials in the environment; None if there are none.

    Raises:
        ClientOptionError: if only one of access key and secret key is set.
    """
    given = os.environ if environment is None else environment
    access_key, secret_key = given.get(ACCESS_KEY_VARIABLE), given.get(SECRET_KEY_VARIABLE)
    if not access_key and not secret_key:
        return None
    if not access_key or not secret_key:
        missing = SECRET_KEY_VARIABLE if access_key else ACCESS_KEY_VARIABLE
        raise ClientOptionError(f"{missing} is not set, although the other of the two keys is: set both or none")
    return Credentials(access_key, secret_key, given.get(SECURITY_TOKEN_VARIABLE) or None)
