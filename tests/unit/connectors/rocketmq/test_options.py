"""Options, and credentials from the environment."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from commitlake.connectors.rocketmq.errors import ClientOptionError, RefusedError
from commitlake.connectors.rocketmq.network import Network
from commitlake.connectors.rocketmq.options import ClientOptions, environment_credentials, split_address
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.remoting.codes import ResponseCode
from commitlake.schemas.remoting.signing import Credentials

ACCESS, SECRET = "COMMITLAKE_ROCKETMQ_ACCESS_KEY", "COMMITLAKE_ROCKETMQ_SECRET_KEY"
TOKEN = "COMMITLAKE_ROCKETMQ_SECURITY_TOKEN"


def test_name_servers_are_a_list() -> None:
    assert ClientOptions("a:1; b:2,c:3;").name_server_addresses == ["a:1", "b:2", "c:3"]


@pytest.mark.parametrize("given", ["", ";", "a", "a:", ":1", "a:0", "a:65536", "a:1;b"])
def test_a_wrong_name_server_is_an_error(given: str) -> None:
    with pytest.raises(ClientOptionError, match="expected"):
        ClientOptions(given)


@pytest.mark.parametrize("name", ["connect_seconds", "request_seconds", "route_seconds", "max_pending"])
def test_limits_must_be_positive(name: str) -> None:
    with pytest.raises(ClientOptionError, match=f"{name}: expected a number above 0, found 0"):
        ClientOptions("a:1", **{name: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("address", "parts"),
    [("10.0.0.1:10911", ("10.0.0.1", 10911)), ("::1:10911", ("::1", 10911)), ("[::1]:10911", ("::1", 10911))],
)
def test_addresses_are_split_at_the_last_colon(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


def test_credentials_come_from_the_environment() -> None:
    assert environment_credentials({}) is None
    assert environment_credentials({ACCESS: "a", SECRET: "s"}) == Credentials("a", "s")
    assert environment_credentials({ACCESS: "a", SECRET: "s", TOKEN: "t"}) == Credentials("a", "s", "t")


@pytest.mark.parametrize(("given", "missing"), [({ACCESS: "a"}, SECRET), ({SECRET: "hush"}, ACCESS)])
def test_incomplete_credentials_are_an_error_without_the_secret(given: dict[str, str], missing: str) -> None:
    with pytest.raises(ClientOptionError, match=missing) as caught:
        environment_credentials(given)
    assert "hush" not in str(caught.value)


def test_credentials_over_a_network_without_tls_cause_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    options = ClientOptions("broker.example:9876;127.0.0.1:9876")
    for credentials in (None, Credentials("key", "secret"), Credentials("key", "secret")):
        Network(options, credentials).close()
    assert caplog.text.count("is reached without TLS") == 1
    assert "the name server broker.example:9876 is reached without TLS" in caplog.text


def test_credentials_over_tls_cause_no_warning(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    settings = tmp_path / "tls.properties"
    settings.write_text("tls.client.authServer=true\n")
    Network(ClientOptions("encrypted.example:9876", tls_config=str(settings)), Credentials("key", "secret")).close()
    assert caplog.text == ""


def test_tls_settings_without_verification_cause_one_warning(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    settings = tmp_path / "tls.properties"
    settings.write_text("tls.client.authServer=false\n")
    for _ in range(3):
        Network(ClientOptions("encrypted.example:9876", tls_config=str(settings)), Credentials("key", "secret")).close()
    assert caplog.text.count("certificates of servers are not verified") == 1


def test_a_refused_key_and_a_busy_broker_have_different_exit_codes() -> None:
    refused = RefusedError("127.0.0.1:10911", ResponseCode.NO_PERMISSION, "check signature failed")
    assert pickle.loads(pickle.dumps(refused)).exit_code == ExitCode.REFUSED
    assert RefusedError("127.0.0.1:10911", ResponseCode.SYSTEM_BUSY, "").exit_code == ExitCode.FAILED
