"""Keys and certificates for tests, generated for each run.

authority.pem                   signs the others
server.pem, server.key.pem      for 127.0.0.1
client.pem, client.key.pem      for a client; client.key.locked.pem is the same key with PASSWORD
stranger.pem, stranger.key.pem  for a client, signed by itself
"""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

PASSWORD = "password-of-the-key"
_PEM = serialization.Encoding.PEM


class Certificates:
    """A folder of certificates.

    Attributes:
        folder: folder of the files.
    """

    def __init__(self, folder: Path) -> None:
        """Create the certificates."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        authority_key, authority = self._make("authority", None, None, is_authority=True)
        self._make("server", authority_key, authority)
        client_key, _ = self._make("client", authority_key, authority)
        self._make("stranger", None, None)
        locked = serialization.BestAvailableEncryption(PASSWORD.encode())
        self.path("client.key.locked").write_bytes(
            client_key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, locked)
        )

    def path(self, name: str) -> Path:
        """Return the file of a certificate or a key."""
        return self.folder / f"{name}.pem"

    def server_properties(self, *others: str, test_mode: str = "tls.test.mode.enable=false") -> str:
        """Return the text of a `tls.properties` for a server, and for clients that trust it."""
        lines = (
            test_mode,
            f"tls.server.keyPath={self.path('server.key')}",
            f"tls.server.certPath={self.path('server')}",
            f"tls.server.trustCertPath={self.path('authority')}",
            f"tls.client.trustCertPath={self.path('authority')}",
            "tls.client.authServer=true",
            *others,
        )
        return "\n".join(lines) + "\n"

    def client_lines(self, name: str = "client") -> tuple[str, str]:
        """Return the settings that let a client show a certificate."""
        return f"tls.client.keyPath={self.path(f'{name}.key')}", f"tls.client.certPath={self.path(name)}"

    def write(self, name: str, text: str) -> Path:
        """Write a `tls.properties` file into the folder."""
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    def _make(
        self,
        name: str,
        signer_key: rsa.RSAPrivateKey | None,
        signer: x509.Certificate | None,
        *,
        is_authority: bool = False,
    ) -> tuple[rsa.RSAPrivateKey, x509.Certificate]:
        key = rsa.generate_private_key(65537, 2048)  # supported by every Java
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(signer.subject if signer is not None else subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=2))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(x509.SubjectAlternativeName([address]), critical=False)
            .sign(signer_key or key, hashes.SHA256())
        )
        clear = serialization.NoEncryption()
        self.path(f"{name}.key").write_bytes(key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, clear))
        self.path(name).write_bytes(certificate.public_bytes(_PEM))
        return key, certificate
