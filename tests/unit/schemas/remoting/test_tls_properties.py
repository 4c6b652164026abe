"""Tests of TLS settings: RocketMQ's keys, and secure defaults."""

from __future__ import annotations

import re

import pytest

from commitlake.schemas.remoting.tls_properties import (
    CLIENT_PASSWORD_VARIABLE,
    SERVER_PASSWORD_VARIABLE,
    ClientAuth,
    TlsConfigError,
    TlsIdentity,
    TlsMode,
    TlsProperties,
    parse_tls_properties,
)

WHOLE = """
# As RocketMQ's documentation has it.
tls.test.mode.enable=false
tls.server.mode = enforcing
tls.server.need.client.auth=require
tls.server.keyPath=/etc/rocketmq/server.key
tls.server.keyPassword=of the server
tls.server.certPath=/etc/rocketmq/server.pem
tls.server.authClient=true
tls.server.trustCertPath=/etc/rocketmq/ca.pem
tls.enable=true
tls.client.keyPath=/etc/rocketmq/client.key
tls.client.keyPassword=of the client
tls.client.certPath=/etc/rocketmq/client.pem
tls.client.authServer=true
tls.client.trustCertPath=/etc/rocketmq/ca.pem
"""


def test_every_key_of_rocketmqs_is_read() -> None:
    assert parse_tls_properties(WHOLE, {}) == TlsProperties(
        test_mode=False,
        server_mode=TlsMode.ENFORCING,
        server=TlsIdentity("/etc/rocketmq/server.key", "/etc/rocketmq/server.pem", "of the server"),
        client_auth=ClientAuth.REQUIRE,
        server_trust_path="/etc/rocketmq/ca.pem",
        is_client_enabled=True,
        client=TlsIdentity("/etc/rocketmq/client.key", "/etc/rocketmq/client.pem", "of the client"),
        verifies_servers=True,
        client_trust_path="/etc/rocketmq/ca.pem",
        checks_host_names=False,
    )


def test_passwords_in_the_environment_take_precedence_and_are_never_shown() -> None:
    environment = {SERVER_PASSWORD_VARIABLE: "secret-one", CLIENT_PASSWORD_VARIABLE: "secret-two"}
    found = parse_tls_properties(WHOLE, environment)
    assert found.server is not None
    assert found.client is not None
    assert (found.server.key_password, found.client.key_password) == ("secret-one", "secret-two")
    assert "secret" not in repr(found)
    assert "of the server" not in repr(parse_tls_properties(WHOLE, {}))


def test_defaults_verify_certificates_and_host_names() -> None:
    found = parse_tls_properties("", {})
    assert not found.test_mode
    assert found.server_mode is TlsMode.PERMISSIVE
    assert found.verifies_servers
    # The system's CAs sign for everybody: only the name identifies the server.
    assert found.checks_host_names


@pytest.mark.parametrize("line", ["tls.client.authServer=false", "tls.test.mode.enable=true"])
def test_verification_is_turned_off_only_by_a_setting(line: str) -> None:
    assert not parse_tls_properties(f"tls.client.trustCertPath=/ca.pem\n{line}", {}).verifies_servers


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("tls.server.need.client.auth=optional", ClientAuth.NONE),
        ("tls.server.need.client.auth=optional\ntls.server.authClient=true", ClientAuth.OPTIONAL),
        ("tls.server.need.client.auth=REQUIRE\ntls.server.authClient=TRUE", ClientAuth.REQUIRE),
        ("tls.server.need.client.auth=require\ntls.test.mode.enable=true", ClientAuth.NONE),
        ("tls.server.authClient=true", ClientAuth.NONE),
    ],
)
def test_certificates_of_clients_are_requested_if_they_are_verified(lines: str, expected: ClientAuth) -> None:
    assert parse_tls_properties(lines, {}).client_auth is expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tls.server.need.client.auth=require", "also needs tls.server.authClient=true"),
        ("tls.server.mode=strict", "tls.server.mode: expected one of disabled, permissive, enforcing, found 'strict'"),
        ("tls.server.need.client.auth=yes", "expected one of none, optional, require, found 'yes'"),
        ("tls.client.authServer=yes", "tls.client.authServer: expected true or false, found 'yes'"),
        ("tls.server.keypath=/key", "tls.server.keypath is not a known TLS setting; did you mean tls.server.keyPath?"),
        ("brokerName=broker-a", "brokerName is not a known TLS setting"),
        ("tls.server.keyPath=/key", "expected both tls.server.keyPath and tls.server.certPath, found only one"),
        ("tls.client.certPath=/cert", "expected both tls.client.keyPath and tls.client.certPath, found only one"),
    ],
)
def test_contradictory_or_invalid_settings_are_refused(line: str, expected: str) -> None:
    with pytest.raises(TlsConfigError, match=re.escape(expected)):
        parse_tls_properties(line, {})
