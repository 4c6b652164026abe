"""Settings of TLS, as RocketMQ's `tls.properties` has them.

    tls.server.mode               disabled, permissive (the default: plain text is served, too) or enforcing
    tls.server.keyPath            private key of the server, PKCS#8 in PEM
    tls.server.keyPassword        its password, if it has one
    tls.server.certPath           certificate chain of the server, PEM
    tls.server.need.client.auth   none (the default), optional or require: whether clients show a certificate
    tls.server.authClient         whether such certificates are verified
    tls.server.trustCertPath      certificates of those who sign clients' certificates, PEM
    tls.enable                    whether this program's own connections to other servers use TLS
    tls.client.keyPath, tls.client.keyPassword, tls.client.certPath    likewise, of a client
    tls.client.authServer         whether servers' certificates are verified
    tls.client.trustCertPath      certificates of those who sign servers' certificates, PEM
    tls.client.checkHostName      whether a server's certificate must be for its address; not a key of RocketMQ's
    tls.test.mode.enable          a server makes itself a certificate, and a client accepts any

The syntax is that of Java's properties. RocketMQ's defaults accept any certificate; these do not: test mode is off
unless the file turns it on, a client verifies unless `tls.client.authServer=false`, and a certificate that is required
is also verified. RocketMQ reads `tls.server.mode` and `tls.enable` from the JVM's properties, not from the file.

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
"""Passwords of private keys; they take precedence over the file's."""

E = TypeVar("E", bound=StrEnum)

_KEYS = (
    "tls.test.mode.enable", "tls.enable", "tls.server.mode", "tls.server.need.client.auth", "tls.server.keyPath",
    "tls.server.keyPassword", "tls.server.certPath", "tls.server.authClient", "tls.server.trustCertPath",
    "tls.client.keyPath", "tls.client.keyPassword", "tls.client.certPath", "tls.client.authServer",
    "tls.client.trustCertPath", "tls.client.checkHostName",
)  # fmt: skip


class TlsConfigError(CommitLakeError, ValueError):
    """Settings of TLS that cannot be used; the message is for a user, and holds no password."""


class TlsMode(StrEnum):
    """What a server does with the first bytes of a connection."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(StrEnum):
    """Whether a server asks for its clients' certificates."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key and the certificate for it.

    Attributes:
        key_path: the key's file, PEM.
        cert_path: the file of the certificate and those that it is signed with, PEM.
        key_password: opens the key; None for one without a password.
    """

    key_path: str
    cert_path: str
    key_password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TlsProperties:
    """What a file says.

    Attributes:
        test_mode: a server makes itself a certificate, a client accepts any.
        server_mode: what a server does with plain text and with TLS.
        server: a server's identity.
        client_auth: whether a server asks clients for certificates; those that come are verified.
        server_trust_path: signers of clients' certificates; None for the system's.
        is_client_enabled: whether own connections use TLS; None if the file does not say.
        client: a client's identity; None for none.
        verifies_servers: whether a client verifies certificates of servers.
        client_trust_path: signers of servers' certificates; None for the system's.
        checks_host_names: whether a server's certificate must be for the address that was connected to.
    """

    test_mode: bool = False
    server_mode: TlsMode = TlsMode.PERMISSIVE
    server: Identity | None = None
    client_auth: ClientAuth = ClientAuth.NONE
    server_trust_path: str | None = None
    is_client_enabled: bool | None = None
    client: Identity | None = None
    verifies_servers: bool = True
    client_trust_path: str | None = None
    checks_host_names: bool = False

    @property
    def has_password(self) -> bool:
        """Whether a password is among the settings."""
        return any(one is not None and one.key_password is not None for one in (self.server, self.client))


def parse_tls_properties(text: str, environment: Mapping[str, str]) -> TlsProperties:
    """Return the settings of a `tls.properties` file.

    Args:
        text: the file's content.
        environment: may hold the passwords of keys.

    Raises:
        TlsConfigError: for a key that there is not, a value that a key does not take, or settings that contradict.
    """
    given = {key: value.strip() for key, value in parse_properties(text).items()}
    for key in given:
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise TlsConfigError(f"{key[:100]}: expected a setting of TLS{hint}")
    test_mode = _boolean(given, "tls.test.mode.enable") or False
    client_trust_path = given.get("tls.client.trustCertPath") or None
    verifies_servers = _boolean(given, "tls.client.authServer")
    return TlsProperties(
        test_mode=test_mode,
        server_mode=_choice(given, "tls.server.mode", TlsMode, TlsMode.PERMISSIVE),
        server=_identity(given, "tls.server", environment.get(SERVER_PASSWORD_VARIABLE)),
        client_auth=_client_auth(given, test_mode=test_mode),
        server_trust_path=given.get("tls.server.trustCertPath") or None,
        is_client_enabled=_boolean(given, "tls.enable"),
        client=_identity(given, "tls.client", environment.get(CLIENT_PASSWORD_VARIABLE)),
        verifies_servers=not test_mode and verifies_servers is not False,
        client_trust_path=client_trust_path,
        # A certificate that one of the system's many signers has signed says nothing without the name in it.
        checks_host_names=_boolean(given, "tls.client.checkHostName") or client_trust_path is None,
    )


def _client_auth(given: Mapping[str, str], *, test_mode: bool) -> ClientAuth:
    wanted = _choice(given, "tls.server.need.client.auth", ClientAuth, ClientAuth.NONE)
    if test_mode or _boolean(given, "tls.server.authClient"):
        return ClientAuth.NONE if test_mode else wanted
    if wanted is ClientAuth.REQUIRE:
        raise TlsConfigError(
            "tls.server.need.client.auth=require: expected tls.server.authClient=true beside it: a certificate that "
            "nobody verifies proves nothing"
        )
    return ClientAuth.NONE


def _identity(given: Mapping[str, str], prefix: str, password: str | None) -> Identity | None:
    key_path, cert_path = given.get(f"{prefix}.keyPath"), given.get(f"{prefix}.certPath")
    if not key_path and not cert_path:
        return None
    if not key_path or not cert_path:
        raise TlsConfigError(f"expected both {prefix}.keyPath and {prefix}.certPath, found one of them")
    return Identity(key_path, cert_path, password or given.get(f"{prefix}.keyPassword") or None)


def _boolean(given: Mapping[str, str], key: str) -> bool | None:
    text = given.get(key)
    if text is None:
        return None
    if text.lower() not in {"true", "false"}:
        raise TlsConfigError(f"{key}: expected true or false, found {text[:100]!r}")
    return text.lower() == "true"


def _choice(given: Mapping[str, str], key: str, kind: type[E], default: E) -> E:
    text = given.get(key, "").lower()
    if not text:
        return default
    try:
        return kind(text)
    except ValueError:
        raise TlsConfigError(f"{key}: expected {', '.join(kind)}, found {text[:100]!r}") from None
