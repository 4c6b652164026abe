"""SSL contexts for Python's ssl module from the files named in `tls.properties`."""

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
    """TLS settings of a server's port.

    Attributes:
        context: context with the certificate of the server, and requirements for clients.
        mode: permissive or enforcing.
    """

    context: ssl.SSLContext
    mode: TlsMode

    @property
    def is_enforced(self) -> bool:
        """True if plain text is refused."""
        return self.mode is TlsMode.ENFORCING


def read_tls_properties(path: Path, environment: Mapping[str, str] | None = None) -> TlsProperties:
    """Read a `tls.properties` file.

    Args:
        path: path of the file.
        environment: variables that may contain passwords of keys; by default those of this process.

    Raises:
        TlsConfigError: if it cannot be read or is invalid, or contains a password and is readable by others.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read().decode("iso-8859-1")
    except OSError as error:
        raise TlsConfigError(f"{path}: cannot read the file: {error.strerror}") from None
    try:
        settings = parse_tls_properties(text, os.environ if environment is None else environment)
    except TlsConfigError as error:
        raise TlsConfigError(f"{path}: {error}") from None
    if "keyPassword" in text and settings.has_password and mode & stat.S_IRWXO:
        found = stat.filemode(mode)
        raise TlsConfigError(f"{path}: expected a file only its owner may read (chmod 600), found {found}")
    return settings


def server_context(settings: TlsProperties) -> ssl.SSLContext:
    """Return the SSL context of a server.

    Raises:
        TlsConfigError: if a file is missing or invalid.
    """
    if settings.server is None:
        raise TlsConfigError(
            "expected tls.server.keyPath and tls.server.certPath, found neither (for tests, tls.test.mode.enable=true "
            "creates a certificate)"
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
    """Return the SSL context of a client.

    Raises:
        TlsConfigError: if a file is missing or invalid.
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
    # Otherwise a client could request new handshakes without end.
    context.options |= ssl.OP_NO_RENEGOTIATION


def _load_identity(context: ssl.SSLContext, identity: Identity) -> None:
    password = identity.key_password or ""
    try:
        # Without this callback, ssl would prompt for a password at the terminal.
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
    return getattr(error, "reason", None) or "invalid content"
