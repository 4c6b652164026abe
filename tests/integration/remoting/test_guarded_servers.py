"""Source, sink and replay over TLS against servers that want signed requests: RocketMQ's two lines, and our own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from commitlake.connectors.rocketmq import Admin, ClientOptions
from commitlake.connectors.rocketmq.options import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, TLS_CONFIG_VARIABLE
from commitlake.connectors.rocketmq.sink.options import SinkOptions
from commitlake.jobs.replay.command import main as replay
from tests.servers.broker_lite import BrokerLite
from tests.servers.rocketmq import BrokerOptions, RocketMQ
from tests.support.certificates import Certificates
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.live_reading import parsed, rows
from tests.support.waiting import wait_until

NAME, SECRET = "the-shop", "secret-of-the-shop"
COUNT = 40


@contextmanager
def guarded(kind: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Start a server; its name servers, and the text of a client's tls.properties."""
    if kind == "broker_lite":
        certificates = Certificates(folder / "certificates")
        accounts = folder / "accounts.toml"
        accounts.write_text(f'[[accounts]]\naccess-key = "{NAME}"\nsecret-key = "{SECRET}"\nadmin = true\n')
        accounts.chmod(0o600)
        settings = certificates.write("tls.properties", certificates.server_properties())
        with BrokerLite(folder, options=("--accounts", str(accounts), "--tls-config", str(settings))) as server:
            yield server.name_server_address, f"tls.client.trustCertPath={certificates.path('authority')}\n"
        return
    extra: dict[str, object] = {"aclEnable": True}
    if kind == "4.9.7":
        path = folder / "home" / "conf" / "plain_acl.yml"
        path.parent.mkdir(parents=True)
        path.write_text(f"accounts:\n- accessKey: {NAME}\n  secretKey: {SECRET}\n  admin: true\n")
    else:
        provider = "org.apache.rocketmq.auth.authentication.provider"
        extra = {
            "authenticationEnabled": True,
            "authenticationProvider": f"{provider}.DefaultAuthenticationProvider",
            "authenticationMetadataProvider": f"{provider}.LocalAuthenticationMetadataProvider",
            "initAuthenticationUser": json.dumps({"username": NAME, "password": SECRET}),
            "innerClientAuthenticationCredentials": json.dumps({"accessKey": NAME, "secretKey": SECRET}),
            "authConfigPath": str(folder / "auth"),
        }
    with RocketMQ(kind, folder, options=BrokerOptions(extra=extra), has_tls=True) as rocketmq:
        yield rocketmq.name_server_address, "tls.test.mode.enable=true\n"


@pytest.mark.parametrize(
    "kind",
    [
        "broker_lite",
        pytest.param("5.5.0", marks=pytest.mark.long("it starts a broker of its own")),
        pytest.param("4.9.7", marks=pytest.mark.long("it starts a broker of its own")),
    ],
)
def test_signed_requests_over_tls_are_served_and_others_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = GrowingLake(tmp_path / "lake")
    growing.write(shop_messages(COUNT, 1))
    growing.archive()
    with guarded(kind, tmp_path / "server") as (name_servers, client_settings):
        settings = tmp_path / "tls.properties"
        settings.write_text(client_settings)
        monkeypatch.setenv(TLS_CONFIG_VARIABLE, str(settings))
        monkeypatch.setenv(ACCESS_KEY_VARIABLE, NAME)
        monkeypatch.setenv(SECRET_KEY_VARIABLE, SECRET)
        with Admin(ClientOptions(name_servers)) as admin:
            for topic in ("Written", "Replayed"):
                admin.create_topic(topic, queue_count=4)
        given = {"namesrv": name_servers, "retrySeconds": "5"}
        batch = pa.RecordBatch.from_pydict({"body": [b"signed"] * COUNT, "topic": ["Written"] * COUNT})
        with SinkOptions.parse(given).open_sender() as sender:
            assert set(sender.send(batch).column("status").to_pylist()) == {"sent"}
        chosen = parsed({**given, "topics": "Written", "body": "stored"})
        wait_until(lambda: [row["body"] for row in rows(chosen)] == [b"signed"] * COUNT, 30)

        command = ["--lake", growing.lake.root, "--namesrv", name_servers, "--to-topic", "Replayed", "--quiet"]
        assert replay([*command, "--where", "true", "--yes", "--verify"]) == 0
        assert len(rows(parsed({**given, "topics": "Replayed"}))) == COUNT

        monkeypatch.setenv(SECRET_KEY_VARIABLE, "another-secret")
        with SinkOptions.parse(given).open_sender() as sender:
            assert set(sender.send(batch).column("status").to_pylist()) == {"refused"}
        capsys.readouterr()
        assert replay([*command, "--where", "true", "--yes", "--again"]) != 0
        assert "answered" in capsys.readouterr().err
    monkeypatch.delenv(TLS_CONFIG_VARIABLE)
