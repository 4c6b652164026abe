"""TLS between broker_lite and RocketMQ's own clients and name server, and this project's client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.connectors.rocketmq import (
    Admin,
    ClientOptions,
    OutgoingMessage,
    Producer,
    Puller,
    RefusedError,
    UnreachableError,
)
from commitlake.connectors.rocketmq.options import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, TLS_CONFIG_VARIABLE
from commitlake.schemas.remoting.signing import Credentials
from tests.servers.broker_lite import SMALL_FILES, BrokerLite
from tests.servers.java_programs import JVM, JavaProgramError, run_java
from tests.servers.mqadmin import mqadmin
from tests.servers.process import ServerProcess, free_ports
from tests.servers.remoting import knows_broker
from tests.servers.rocketmq import VERSIONS, RocketMQ
from tests.support.certificates import Certificates
from tests.support.replicas import MemberLite, log_files, master_lite
from tests.support.topic_reading import make_topic, read_all
from tests.support.waiting import wait_until

SHOP, ADMIN = Credentials("the-shop", "secret-of-the-shop"), Credentials("the-admin", "secret-of-the-admin")
BROKER = Credentials("the-broker", "secret-of-the-broker")
ACCOUNTS = "".join(
    f'[[accounts]]\naccess-key = "{one.access_key}"\nsecret-key = "{one.secret_key}"\n{role}\n'
    for one, role in ((SHOP, ""), (ADMIN, "admin = true"), (BROKER, "broker = true"))
)
NO_TLS = [*JVM, "-Dtls.enable=false"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of this run."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def java_tls(certificates: Certificates) -> list[str]:
    """A Java client that verifies the server and shows its own certificate."""
    text = certificates.server_properties(*certificates.client_lines())
    return [*JVM, "-Dtls.enable=true", f"-Dtls.config.file={certificates.write('java.properties', text)}"]


@pytest.fixture(scope="module")
def client_file(certificates: Certificates) -> str:
    """The settings of this project's client, with a certificate."""
    return str(certificates.write("client.properties", certificates.server_properties(*certificates.client_lines())))


@pytest.fixture(scope="module")
def enforcing(
    certificates: Certificates, client_file: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerLite]:
    """A broker and a name server that want TLS, a certificate, and signatures."""
    folder = tmp_path_factory.mktemp("enforcing")
    lines = ("tls.server.need.client.auth=require", "tls.server.authClient=true")
    tls = certificates.write("enforcing.properties", certificates.server_properties(*lines))
    accounts = certificates.write("accounts.toml", ACCOUNTS)
    options = ("--tls-config", str(tls), "--tls-mode", "enforcing", "--accounts", str(accounts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TLS_CONFIG_VARIABLE, client_file)  # to check that it is running
        with master_lite(folder, *options) as broker:
            patch.undo()
            yield broker


@pytest.mark.parametrize("version", VERSIONS)
def test_rocketmqs_client_is_served_only_with_tls_and_a_certificate(
    enforcing: BrokerLite, java_tls: list[str], version: str
) -> None:
    arguments = [enforcing.name_server_address, f"Tls{version[0]}", SHOP.access_key, SHOP.secret_key]
    sent, read = run_java(version, "Signed", arguments, jvm=java_tls)
    assert (sent["event"], read["event"]) == ("sent", "read")
    assert sent["unique_key"] == read["unique_key"]
    if version == VERSIONS[0]:
        # It finds no route.
        with pytest.raises(JavaProgramError):
            run_java(version, "Signed", arguments, jvm=NO_TLS)


@pytest.mark.long("this project's client administers over TLS each time")
def test_mqadmin_administers_over_tls(enforcing: BrokerLite, java_tls: list[str], tmp_path: Path) -> None:
    account = (ADMIN.access_key, ADMIN.secret_key)
    arguments = ("updateTopic", "-t", "ByCommand", "-b", enforcing.broker_address, "-n", enforcing.name_server_address)
    (printed,) = mqadmin("5.5.0", tmp_path, arguments, jvm=java_tls, account=account)
    assert "success" in printed


def test_this_projects_client_is_served(enforcing: BrokerLite, client_file: str) -> None:
    options = ClientOptions(enforcing.name_server_address, tls_config=client_file)
    with Admin(options, ADMIN) as admin:
        make_topic(admin, "OwnClient", 1)
        with Producer("own-producer", options, credentials=SHOP) as producer:
            producer.send(OutgoingMessage("OwnClient", b"encrypted"))
        with Puller("own-puller", options, credentials=SHOP) as puller:
            assert [message.body for message in read_all(puller, "OwnClient", 1)] == [b"encrypted"]
        admin.delete_topic("OwnClient")
    with Admin(options, SHOP) as shop, pytest.raises(RefusedError, match="is allowed only for an administrator"):
        shop.delete_topic("OwnClient")


@pytest.mark.parametrize(
    ("files", "line", "expected"),
    [
        # A request that is on its way meanwhile can meet a closed connection before the reason is read.
        ({}, "", "CERTIFICATE_REQUIRED|reset|pipe"),
        ({"trustCertPath": "stranger"}, "", "self-signed certificate"),
        ({"keyPath": "stranger.key", "certPath": "stranger"}, "", "UNKNOWN_CA|reset|pipe"),
        ({}, "tls.enable=false", "closed"),
    ],
)
def test_a_client_with_wrong_tls_settings_gets_the_reason(
    enforcing: BrokerLite, certificates: Certificates, files: dict[str, str], line: str, expected: str
) -> None:
    lines = [f"tls.client.{key}={certificates.path(name)}" for key, name in files.items()]
    path = certificates.write("misfit.properties", certificates.server_properties(*lines, line))
    with (
        Admin(ClientOptions(enforcing.name_server_address, tls_config=str(path))) as admin,
        pytest.raises(UnreachableError, match=f"(?i)({expected})"),
    ):
        admin.clusters()


def test_a_slave_registers_and_replicates_over_tls_with_a_broker_account(
    enforcing: BrokerLite, certificates: Certificates, client_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ("tls.enable=true", "tls.server.mode=disabled", *certificates.client_lines())
    tls = certificates.write("slave.properties", certificates.server_properties(*lines))
    monkeypatch.setenv(TLS_CONFIG_VARIABLE, client_file)
    monkeypatch.setenv(ACCESS_KEY_VARIABLE, BROKER.access_key)
    monkeypatch.setenv(SECRET_KEY_VARIABLE, BROKER.secret_key)
    with Admin(ClientOptions(enforcing.name_server_address), ADMIN) as admin:
        admin.create_topic("Copied", queue_count=1)
    name_server = enforcing.name_server_address
    with MemberLite(tmp_path, "--role", "SLAVE", "--tls-config", str(tls), name_server=name_server) as slave:
        wait_until(lambda: log_files(slave.store) == log_files(enforcing.store))
        topics = slave.store / "config" / "topics.json"
        wait_until(lambda: topics.exists() and "Copied" in topics.read_text())
        assert "refused to register" not in slave.process.output()


@pytest.mark.long("TLS and plain text are served by a server of their own each time")
def test_a_permissive_server_serves_both(tmp_path: Path, certificates: Certificates, java_tls: list[str]) -> None:
    tls = certificates.write("permissive.properties", certificates.server_properties())
    with BrokerLite(tmp_path / "broker", options=(*SMALL_FILES, "--tls-config", str(tls))) as broker:
        rows = run_java("5.5.0", "Signed", [broker.name_server_address, "Both", "an-account", "a-secret"], jvm=java_tls)
        assert [row["event"] for row in rows] == ["sent", "read"]
        with Producer("in-plain-text", ClientOptions(broker.name_server_address)) as producer:
            producer.send(OutgoingMessage("Both", b"readable by everybody"))


@pytest.mark.long("it registers at a real one in plain text, and a slave at ours over TLS, each time")
def test_the_broker_registers_over_tls_at_a_real_name_server(tmp_path: Path, certificates: Certificates) -> None:
    tls = certificates.write("register.properties", "tls.test.mode.enable=true\ntls.enable=true\n")
    real = RocketMQ("5.5.0", tmp_path / "real", name_server_jvm=("-Dtls.server.mode=enforcing",), has_tls=True)
    real.start_name_server()
    try:
        options = ("--register", real.name_server_address, "--tls-config", str(tls))
        broker = BrokerLite(tmp_path / "broker", options=(*SMALL_FILES, *options), broker_port=free_ports(1))
        with broker, pytest.MonkeyPatch.context() as patch:
            patch.setenv(TLS_CONFIG_VARIABLE, str(tls))
            process: ServerProcess = broker.process
            process.wait_until(lambda: knows_broker(real.name_server_address, broker.broker_address), 60)
    finally:
        real.kill()
