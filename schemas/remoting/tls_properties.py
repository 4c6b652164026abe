"""Settings of TLS in the format of RocketMQ's `tls.properties`.

    tls.server.mode               disabled, permissive (default: plain text is accepted, too) or enforcing
    tls.server.keyPath            private key of the server, PKCS#8 in PEM
    tls.server.keyPassword        password of the key, if it has one
    tls.server.certPath           certificate chain of the server, PEM
    tls.server.need.client.auth   none (default), optional or require: certificates of clients
    tls.server.authClient         whether these certificates are verified
    tls.server.trustCertPath      CA certificates for clients' certificates, PEM
    tls.enable                    whether this program's connections to other servers use TLS
    tls.client.keyPath, tls.client.keyPassword, tls.client.certPath    same for a client
    tls.client.authServer         whether servers' certificates are verified
    tls.client.trustCertPath      CA certificates for servers' certificates, PEM
    tls.client.checkHostName      whether a server's certificate must match its address; not a key of RocketMQ
    tls.test.mode.enable          a server creates a certificate for itself, and a client accepts any certificate

The syntax is that of Java's properties. RocketMQ's defaults accept any certificate; the defaults here do not: test mode
is off unless the file enables it, a client verifies unless `tls.client.authServer=false`, and a required certificate is
also verified. RocketMQ reads `tls.server.mode` and `tls.enable` from the JVM's properties, not from the file.

Source: TlsSystemConfig, TlsHelper (5.5.0).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from commitlake.schemas.errors import CommitLakeError
from commitlake.schemas.layouts.rocketmq.broker_conf import parse_properties

SERVER_PASSWORD_VARIABLE = "COMMITLAKE_TLS_SERVER_KEY_PASSWORD"  # noqa: S105 (the name of a variable)
CLIENT_PASSWORD_VARIABLE = "COMMITLAKE_TLS_CLIENT_KEY_PASSWORD"  # noqa: S105
"""Passwords of private keys; they take precedence over those in the file."""

E = TypeVar("E", bound=StrEnum)

_KEYS = (
    "tls.test.mode.enable", "tls.enable", "tls.server.mode", "tls.server.need.client.auth", "tls.server.keyPath",
    "tls.server.keyPassword", "tls.server.certPath", "tls.server.authClient", "tls.server.trustCertPath",
    "tls.client.keyPath", "tls.client.keyPassword", "tls.client.certPath", "tls.client.authServer",
    "tls.client.trustCertPath", "tls.client.checkHostName",
)  # fmt: skip


class TlsConfigError(CommitLakeError, ValueError):
    """Error for unusable settings of TLS; its message contains no password."""


class TlsMode(StrEnum):
    """Mode of a server's port: plain text, TLS or both."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(StrEnum):
    """Choice of a server to request or to require certificates from its clients."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@dataclass(frozen=True, slots=True)
class TlsIdentity:
    """Private key with its certificate.

    Attributes:
        key_path: file of the key, PEM.
        cert_path: file of the certificate chain, PEM.
        key_password: password of the key; None if it has none.
    """

    key_path: str
    cert_path: str
    key_password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TlsProperties:
    """Settings of a `tls.properties` file.

    Attributes:
        test_mode: whether a server creates its own certificate, and a client accepts any.
        server_mode: use of plain text and TLS on a server's port.
        server: key and certificate of a server.
        client_auth: whether a server asks clients for certificates, which are then verified.
        server_trust_path: CA certificates for clients' certificates; None for those of the system.
        is_client_enabled: whether this program's own connections use TLS; None if the file does not set it.
        client: key and certificate of a client; None for none.
        verifies_servers: whether a client verifies certificates of servers.
        client_trust_path: CA certificates for servers' certificates; None for those of the system.
        checks_host_names: whether a server's certificate must match the address of the connection.
    """

    test_mode: bool = False
    server_mode: TlsMode = TlsMode.PERMISSIVE
    server: TlsIdentity | None = None
    client_auth: ClientAuth = ClientAuth.NONE
    server_trust_path: str | None = None
    is_client_enabled: bool | None = None
    client: TlsIdentity | None = None
    verifies_servers: bool = True
    client_trust_path: str | None = None
    checks_host_names: bool = False

    @property
    def has_password(self) -> bool:
        """True if the settings contain a password."""
        return any(one is not None and one.key_password is not None for one in (self.server, self.client))


def parse_tls_properties(text: str, environment: Mapping[str, str]) -> TlsProperties:
    """Parse the settings of a `tls.properties` file.

    Args:
        text: content of the file.
        environment: variables that may contain passwords of keys.

    Raises:
        TlsConfigError: if a key is unknown, a value is invalid, or settings contradict each other.
    """
    given = {key: value.strip() for key, value in parse_properties(text).items()}
    for key in given:
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise TlsConfigError(f"{key[:100]} is not a known TLS setting{hint}")
    test_mode = _parse_boolean(given, "tls.test.mode.enable") or False
    client_trust_path = given.get("tls.client.trustCertPath") or None
    verifies_servers = _parse_boolean(given, "tls.client.authServer")
    return TlsProperties(
        test_mode=test_mode,
        server_mode=_parse_choice(given, "tls.server.mode", TlsMode, TlsMode.PERMISSIVE),
        server=_read_identity(given, "tls.server", environment.get(SERVER_PASSWORD_VARIABLE)),
        client_auth=_read_client_auth(given, test_mode=test_mode),
        server_trust_path=given.get("tls.server.trustCertPath") or None,
        is_client_enabled=_parse_boolean(given, "tls.enable"),
        client=_read_identity(given, "tls.client", environment.get(CLIENT_PASSWORD_VARIABLE)),
        verifies_servers=not test_mode and verifies_servers is not False,
        client_trust_path=client_trust_path,
        # A certificate by one of the system's many CAs proves nothing unless its name is checked.
        checks_host_names=_parse_boolean(given, "tls.client.checkHostName") or client_trust_path is None,
    )


def _read_client_auth(settings: Mapping[str, str], *, test_mode: bool) -> ClientAuth:
    wanted = _parse_choice(settings, "tls.server.need.client.auth", ClientAuth, ClientAuth.NONE)
    if test_mode or _parse_boolean(settings, "tls.server.authClient"):
        return ClientAuth.NONE if test_mode else wanted
    if wanted is ClientAuth.REQUIRE:
        raise TlsConfigError(
            "tls.server.need.client.auth=require also needs tls.server.authClient=true, because a certificate that is "
            "not verified proves nothing"
        )
    return ClientAuth.NONE


def _read_identity(settings: Mapping[str, str], prefix: str, password: str | None) -> TlsIdentity | None:
    key_path, cert_path = settings.get(f"{prefix}.keyPath"), settings.get(f"{prefix}.certPath")
    if not key_path and not cert_path:
        return None
    if not key_path or not cert_path:
        raise TlsConfigError(f"expected both {prefix}.keyPath and {prefix}.certPath, found only one of them; set both")
    return TlsIdentity(key_path, cert_path, password or settings.get(f"{prefix}.keyPassword") or None)


def _parse_boolean(settings: Mapping[str, str], key: str) -> bool | None:
    text = settings.get(key)
    if text is None:
        return None
    if text.lower() not in {"true", "false"}:
        raise TlsConfigError(f"{key}: expected true or false, found {text[:100]!r}")
    return text.lower() == "true"


def _parse_choice(settings: Mapping[str, str], key: str, enum_class: type[E], default: E) -> E:
    text = settings.get(key, "").lower()
    if not text:
        return default
    try:
        return enum_class(text)
    except ValueError:
        raise TlsConfigError(f"{key}: expected one of {', '.join(enum_class)}, found {text[:100]!r}") from None
