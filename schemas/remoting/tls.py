"""TLS as configured in a `tls.properties` file: SSL contexts, and TLS connections independent of sockets."""

from __future__ import annotations

import contextlib
import datetime
import importlib.util
import os
import ssl
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from commitlake.schemas.remoting.tls_properties import (
    ClientAuth,
    TlsConfigError,
    TlsIdentity,
    TlsMode,
    TlsProperties,
    parse_tls_properties,
)

HANDSHAKE_BYTE = 0x16
"""First byte of a TLS client; RocketMQ's frames cannot begin with it, because they would be too long."""
_READ_BYTES = 256 * 1024
_VALIDITY = datetime.timedelta(days=365)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS settings of a server's port.

    Attributes:
        context: SSL context with the server's certificate, and the requirements for clients' certificates.
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
        raise TlsConfigError(
            f"{path}: expected a file that only its owner may read, because it contains a password, found {found}: run "
            "chmod 600"
        )
    return settings


def server_context(settings: TlsProperties) -> ssl.SSLContext:
    """Return the SSL context of a server.

    Raises:
        TlsConfigError: if a file is missing or invalid.
    """
    if settings.server is None:
        raise TlsConfigError(
            "tls.server.keyPath and tls.server.certPath are not set: a server needs a key and a certificate (for "
            "tests, tls.test.mode.enable=true creates both)"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_protocol_options(context)
    _load_identity(context, settings.server)
    if settings.client_auth is not ClientAuth.NONE:
        is_required = settings.client_auth is ClientAuth.REQUIRE
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
        _load_trusted_certificates(
            context, "tls.server.trustCertPath", settings.server_trust_path, ssl.Purpose.CLIENT_AUTH
        )
    return context


def client_context(settings: TlsProperties) -> ssl.SSLContext:
    """Return the SSL context of a client.

    Raises:
        TlsConfigError: if a file is missing or invalid.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _set_protocol_options(context)
    context.check_hostname = settings.verifies_servers and settings.checks_host_names
    if settings.verifies_servers:
        _load_trusted_certificates(
            context, "tls.client.trustCertPath", settings.client_trust_path, ssl.Purpose.SERVER_AUTH
        )
    else:
        context.verify_mode = ssl.CERT_NONE
    if settings.client is not None and not settings.test_mode:
        _load_identity(context, settings.client)
    return context


def _set_protocol_options(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Otherwise a client could request new handshakes without end.
    context.options |= ssl.OP_NO_RENEGOTIATION


def _load_identity(context: ssl.SSLContext, identity: TlsIdentity) -> None:
    password = identity.key_password or ""
    try:
        # Without this callback, ssl would prompt for a password at the terminal.
        context.load_cert_chain(identity.cert_path, identity.key_path, lambda: password)
    except OSError as error:
        found = error.strerror if error.errno and not isinstance(error, ssl.SSLError) else _ssl_error_reason(error)
        raise TlsConfigError(
            f"expected the certificate {identity.cert_path} and the key {identity.key_path} as PEM files that belong "
            f"together{' and the password of the key' if identity.key_password else ''}, found {found}"
        ) from None


def _load_trusted_certificates(context: ssl.SSLContext, key: str, path: str | None, purpose: ssl.Purpose) -> None:
    if path is None:
        context.load_default_certs(purpose)
        return
    try:
        context.load_verify_locations(path)
    except OSError as error:
        found = error.strerror if error.errno and not isinstance(error, ssl.SSLError) else _ssl_error_reason(error)
        raise TlsConfigError(f"{key}={path}: expected a file of certificates in PEM, found {found}") from None


def _ssl_error_reason(error: OSError) -> str:
    return getattr(error, "reason", None) or "invalid content"


class TlsStream:
    """TLS endpoint that converts between plain text and encrypted bytes without a socket; not thread-safe.

    The caller passes bytes from its socket to `receive`, and sends the bytes that `take_output` returns.

    Attributes:
        is_established: True after the handshake.
        is_ended: True after the peer has ended the session.
    """

    def __init__(self, context: ssl.SSLContext, *, is_server: bool, server_name: str | None = None) -> None:
        """Begin a TLS connection; a client's first bytes are available from `take_output` at once.

        Args:
            context: context with the certificates.
            is_server: whether this is the server's end.
            server_name: host name that a client connects to.

        Raises:
            ssl.SSLError: if the handshake cannot start.
        """
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, is_server, server_name)
        self.is_established = False
        self.is_ended = False
        if not is_server:
            self._perform_handshake()

    def receive(self, data: bytes | memoryview) -> bytes:
        """Decrypt received bytes, and return the plain text that is complete.

        Raises:
            ssl.SSLError: if the peer violates the protocol or is refused; `take_output` may contain an alert for it.
        """
        self._incoming.write(data)
        if not self.is_established:
            self._perform_handshake()
            if not self.is_established:
                return b""
        parts = []
        with contextlib.suppress(ssl.SSLWantReadError):
            while part := self._object.read(_READ_BYTES):
                parts.append(part)
            self.is_ended = True
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _perform_handshake(self) -> None:
        with contextlib.suppress(ssl.SSLWantReadError):
            self._object.do_handshake()
            self.is_established = True

    def send(self, data: bytes) -> None:
        """Encrypt plain text after the handshake; `take_output` returns the encrypted bytes."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._object.write(rest) :]

    def take_output(self) -> bytes:
        """Return the encrypted bytes that are ready to be sent, and remove them from the buffer."""
        return self._outgoing.read()

    def end_session(self) -> None:
        """Send the alert that ends the TLS session, if its handshake is complete."""
        if self.is_established:
            with contextlib.suppress(ssl.SSLError):  # the peer has not ended it yet
                self._object.unwrap()


def server_tls(settings: TlsProperties) -> ServerTls | None:
    """Return the TLS settings of a server's ports; None if they accept only plain text.

    Raises:
        TlsConfigError: if the settings or files are not valid for a server.
    """
    if settings.server_mode is TlsMode.DISABLED:
        return None
    if not settings.test_mode:
        return ServerTls(server_context(settings), settings.server_mode)
    with tempfile.TemporaryDirectory(prefix="commitlake-tls-") as folder:
        identity = _write_test_identity(Path(folder))
        return ServerTls(server_context(replace(settings, server=identity)), settings.server_mode)


def _write_test_identity(folder: Path) -> TlsIdentity:
    """Write a new private key and a self-signed certificate."""
    if importlib.util.find_spec("cryptography") is None:
        raise TlsConfigError("tls.test.mode.enable=true needs the package cryptography; install it, or set it to false")
    from cryptography import x509  # noqa: PLC0415 (only needed here)
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "commitlake-test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + _VALIDITY)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key_text = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    identity = TlsIdentity(str(folder / "key.pem"), str(folder / "certificate.pem"))
    with os.fdopen(os.open(identity.key_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key_text)
    Path(identity.cert_path).write_bytes(certificate.public_bytes(pem))
    return identity
