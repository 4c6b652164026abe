"""RocketMQ's client with ACL 1.0 signatures against a broker with accounts."""

from __future__ import annotations

from pathlib import Path

from commitlake.schemas.remoting.codes import ResponseCode
from tests.servers.broker_lite import SMALL_FILES, BrokerLite
from tests.servers.java_programs import run_java

ACCOUNTS = '[[accounts]]\naccess-key = "the-shop"\nsecret-key = "secret-of-the-shop"\n'


def test_only_a_client_with_the_right_secret_is_served(tmp_path: Path, client_version: str) -> None:
    accounts = tmp_path / "accounts.toml"
    accounts.write_text(ACCOUNTS)
    accounts.chmod(0o600)
    with BrokerLite(tmp_path / "broker", options=(*SMALL_FILES, "--accounts", str(accounts))) as broker:
        address = broker.name_server_address
        rows = run_java(client_version, "Signed", [address, "Signed", "the-shop", "secret-of-the-shop"])
        assert [row["event"] for row in rows] == ["sent", "read"]
        assert rows[0]["unique_key"] == rows[1]["unique_key"]
        refused = run_java(client_version, "Signed", [address, "Signed", "the-shop", "another-secret"])
        assert [(row["event"], row["code"]) for row in refused] == [("refused", ResponseCode.NO_PERMISSION)]
        assert "secret-of-the-shop" not in broker.process.output()
