"""TLS of a server from the settings of a `tls.properties` file; test mode creates a certificate for this process."""

from __future__ import annotations

import datetime
import importlib.util
import os
import tempfile
from dataclasses import replace
from pathlib import Path

from commitlake.schemas.remoting.tls_contexts import ServerTls, server_context
from commitlake.schemas.remoting.tls_properties import Identity, TlsConfigError, TlsMode, TlsProperties

_VALIDITY = datetime.timedelta(days=365)


def server_tls(settings: TlsProperties) -> ServerTls | None:
    """Return the TLS of a server's ports, or None for plain text only.

    Raises:
        TlsConfigError: if the settings or files are not valid for a server.
    """
    if settings.server_mode is TlsMode.DISABLED:
        return None
    if not settings.test_mode:
        return ServerTls(server_context(settings), settings.server_mode)
    with tempfile.TemporaryDirectory(prefix="commitlake-tls-") as folder:
        identity = _make_identity(Path(folder))
        return ServerTls(server_context(replace(settings, server=identity)), settings.server_mode)


def _make_identity(folder: Path) -> Identity:
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
    identity = Identity(str(folder / "key.pem"), str(folder / "certificate.pem"))
    with os.fdopen(os.open(identity.key_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key_text)
    Path(identity.cert_path).write_bytes(certificate.public_bytes(pem))
    return identity
