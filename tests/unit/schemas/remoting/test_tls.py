"""Tests of TLS without a connection, and of the certificates that its contexts accept."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import pytest

from commitlake.schemas.remoting.tls import (
    HANDSHAKE_BYTE,
    TlsStream,
    client_context,
    read_tls_properties,
    server_context,
)
from commitlake.schemas.remoting.tls_properties import TlsConfigError, TlsProperties, parse_tls_properties
from tests.support.certificates import PASSWORD, Certificates

MESSAGE = bytes(range(256)) * 300
"""More than a TLS record, and more than one read."""


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of this run."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


def settings(certificates: Certificates, *lines: str) -> TlsProperties:
    """Return a server's and a client's settings."""
    return parse_tls_properties(certificates.server_properties(*lines), {})


def connect(server: TlsProperties, client: TlsProperties, name: str = "127.0.0.1") -> tuple[TlsStream, TlsStream]:
    """Return two ends after their handshake."""
    one = TlsStream(server_context(server), is_server=True)
    other = TlsStream(client_context(client), is_server=False, server_name=name)
    while not (one.is_established and other.is_established):
        data = other.take_output()
        assert one.receive(data) == b""
        data = one.take_output()
        assert data or other.is_established
        assert other.receive(data) == b""
    return one, other


def test_messages_are_read_from_pieces_of_any_size_in_both_directions(certificates: Certificates) -> None:
    server, client = connect(settings(certificates), settings(certificates))
    for sender, receiver in ((server, client), (client, server)):
        for size in (1, 7, 1000, 1 << 20):
            sender.send(MESSAGE)
            data = sender.take_output()
            assert MESSAGE[:100] not in data
            pieces = [data[start : start + size] for start in range(0, len(data), size)]
            assert b"".join(map(receiver.receive, pieces)) == MESSAGE
    client.end_session()
    assert server.receive(client.take_output()) == b""
    assert server.is_ended


def test_a_client_begins_with_the_handshake_byte(certificates: Certificates) -> None:
    stream = TlsStream(client_context(settings(certificates)), is_server=False, server_name="127.0.0.1")
    assert stream.take_output()[0] == HANDSHAKE_BYTE


def test_changed_bytes_are_an_error(certificates: Certificates) -> None:
    server, client = connect(settings(certificates), settings(certificates))
    client.send(MESSAGE)
    data = bytearray(client.take_output())
    data[100] ^= 1
    with pytest.raises(ssl.SSLError):
        server.receive(bytes(data))


def test_a_server_of_an_untrusted_signer_is_refused_unless_verification_is_off(
    certificates: Certificates,
) -> None:
    trust = f"tls.client.trustCertPath={certificates.path('stranger')}"
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(settings(certificates), settings(certificates, trust))
    connect(settings(certificates), settings(certificates, trust, "tls.client.authServer=false"))


def test_the_address_in_a_certificate_is_checked_if_the_option_is_set(certificates: Certificates) -> None:
    connect(settings(certificates), settings(certificates), "127.0.0.2")
    strict = settings(certificates, "tls.client.checkHostName=true")
    connect(settings(certificates), strict)
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(settings(certificates), strict, "127.0.0.2")


def test_a_required_certificate_of_a_client_must_be_of_a_trusted_signer(certificates: Certificates) -> None:
    server = settings(certificates, "tls.server.need.client.auth=require", "tls.server.authClient=true")
    connect(server, settings(certificates, *certificates.client_lines()))
    for client in (settings(certificates), settings(certificates, *certificates.client_lines("stranger"))):
        with pytest.raises(ssl.SSLError):
            connect(server, client)


def test_an_optional_client_certificate_is_verified_if_it_is_present(certificates: Certificates) -> None:
    server = settings(certificates, "tls.server.need.client.auth=optional", "tls.server.authClient=true")
    connect(server, settings(certificates))
    connect(server, settings(certificates, *certificates.client_lines()))
    with pytest.raises(ssl.SSLError):
        connect(server, settings(certificates, *certificates.client_lines("stranger")))


def test_an_encrypted_key_is_opened_by_its_password_without_a_prompt(certificates: Certificates) -> None:
    key, certificate = certificates.path("client.key.locked"), certificates.path("client")
    lines = (f"tls.client.keyPath={key}", f"tls.client.certPath={certificate}")
    client_context(settings(certificates, *lines, f"tls.client.keyPassword={PASSWORD}"))
    for password in ("", "another-password"):
        with pytest.raises(TlsConfigError, match="belong together") as raised:
            client_context(settings(certificates, *lines, f"tls.client.keyPassword={password}"))
        assert "another-password" not in str(raised.value)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tls.server.keyPath=/no/key.pem", "found No such file or directory"),
        ("tls.server.keyPath={client.key}", "belong together, found KEY_VALUES_MISMATCH"),
        ("tls.server.certPath={server.key}", "as PEM files that belong together"),
    ],
)
def test_missing_and_invalid_files_are_reported(certificates: Certificates, line: str, expected: str) -> None:
    text = re.sub(r"\{(.*)\}", lambda found: str(certificates.path(found[1])), line)
    with pytest.raises(TlsConfigError, match=expected):
        server_context(settings(certificates, text))


def test_a_server_needs_a_certificate(certificates: Certificates) -> None:
    with pytest.raises(TlsConfigError, match=r"tls\.server\.keyPath and tls\.server\.certPath are not set"):
        server_context(parse_tls_properties("", {}))


@pytest.mark.parametrize(("mode", "is_read"), [(0o600, True), (0o640, True), (0o644, False)])
def test_a_file_with_a_password_that_others_may_read_is_refused(tmp_path: Path, mode: int, is_read: bool) -> None:
    path = tmp_path / "tls.properties"
    path.write_text("tls.client.keyPath=/k\ntls.client.certPath=/c\ntls.client.keyPassword=secret-of-the-key\n")
    path.chmod(mode)
    if is_read:
        read_tls_properties(path, {})
        return
    with pytest.raises(TlsConfigError, match="only its owner may read") as raised:
        read_tls_properties(path, {})
    assert "secret-of-the-key" not in str(raised.value)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TlsConfigError, match="cannot read the file: No such file"):
        read_tls_properties(tmp_path / "none", {})
