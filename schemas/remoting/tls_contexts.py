"""What Python's ssl module needs for a connection, made of the files that `tls.properties` names."""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from commitlake.schemas.remoting.tls_properties import (
    ClientAuth,
    Identity,
    TlsConfigError,
    TlsMode,
    TlsProperties,
    parse_tls_properties,
)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS of a server's port.

    Attributes:
        context: certificate, and what clients must show.
        mode: permissive or enforcing.
    """

    context: ssl.SSLContext
    mode: TlsMode

    @property
    def is_enforced(self) -> bool:
        """Whether plain text is refused."""
        return self.mode is TlsMode.ENFORCING


def read_tls_properties(path: Path, environment: Mapping[str, str] | None = None) -> TlsProperties:
    """Read a `tls.properties` file.

    Args:
        path: the file.
        environment: may hold the passwords of keys; by default this process's.

    Raises:
        TlsConfigError: if it cannot be read or used, or holds a password and everybody may read it.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read().decode("iso-8859-1")
    except OSError as error:
        raise TlsConfigError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        settings = parse_tls_properties(text, os.environ if environment is None else environment)
    except TlsConfigError as error:
        raise TlsConfigError(f"{path}: {error}") from None
    if "keyPassword" in text and settings.has_password and mode & stat.S_IRWXO:
        found = stat.filemode(mode)
        raise TlsConfigError(f"{path}: expected that others may not read a password (chmod 600), found {found}")
    return settings


def server_context(settings: TlsProperties) -> ssl.SSLContext:
    """Return the context of a server.

    Raises:
        TlsConfigError: if a file is missing or wrong.
    """
    if settings.server is None:
        raise TlsConfigError(
            "expected tls.server.keyPath and tls.server.certPath, found neither (tls.test.mode.enable=true makes a "
            "certificate for a try)"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_protocol(context)
    _load_identity(context, settings.server)
    if settings.client_auth is not ClientAuth.NONE:
        is_required = settings.client_auth is ClientAuth.REQUIRE
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
        _load_trust(context, "tls.server.trustCertPath", settings.server_trust_path, ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(settings: TlsProperties) -> ssl.SSLContext:
    """Return the context of a client.

    Raises:
        TlsConfigError: if a file is missing or wrong.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _set_protocol(context)
    context.check_hostname = settings.verifies_servers and settings.checks_host_names
    if settings.verifies_servers:
        _load_trust(context, "tls.client.trustCertPath", settings.client_trust_path, ssl.Purpose.SERVER_AUTH)
    else:
        context.verify_mode = ssl.CERT_NONE
    if settings.client is not None and not settings.test_mode:
        _load_identity(context, settings.client)
    return context


def _set_protocol(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client could ask for a new handshake again and again.
    context.options |= ssl.OP_NO_RENEGOTIATION


def _load_identity(context: ssl.SSLContext, identity: Identity) -> None:
    password = identity.key_password or ""
    try:
        # Without a password ssl would ask for it at the terminal.
        context.load_cert_chain(identity.cert_path, identity.key_path, lambda: password)
    except OSError as error:
        found = error.strerror if error.errno and not isinstance(error, ssl.SSLError) else _reason(error)
        raise TlsConfigError(
            f"certificate {identity.cert_path} with key {identity.key_path}: expected PEM files that belong together"
            f"{' and the password of the key' if identity.key_password else ''}, found {found}"
        ) from None


def _load_trust(context: ssl.SSLContext, key: str, path: str | None, purpose: ssl.Purpose) -> None:
    if path is None:
        context.load_default_certs(purpose)
        return
    try:
        context.load_verify_locations(path)
    except OSError as error:
        found = error.strerror if error.errno and not isinstance(error, ssl.SSLError) else _reason(error)
        raise TlsConfigError(f"{key} {path}: expected certificates in PEM, found {found}") from None


def _reason(error: OSError) -> str:
    return getattr(error, "reason", None) or "something else"
