"""Accounts: where secrets come from, and whose requests are done."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_lite.broker.accounts import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, Accounts, AccountsError
from schemas.layouts.remoting import Command
from schemas.remoting.codes import RequestCode, ResponseCode
from schemas.remoting.signing import Credentials, signed
from tests.unit.broker_lite.broker_builders import Peer, open_broker, send_fields
from tests.unit.broker_lite.builders import Clock

FILE = """
[[accounts]]
access-key = "the-shop"
secret-key = "secret-of-the-shop"

[[accounts]]
access-key = "the-admin"
secret-key = "secret-of-the-admin"
admin = true
"""


def write(path: Path, text: str = FILE, mode: int = 0o600) -> Path:
    """A file of accounts."""
    path.write_text(text)
    path.chmod(mode)
    return path


def test_only_signed_requests_are_done(root: Path, clock: Clock, tmp_path: Path) -> None:
    accounts = Accounts.of_file(write(tmp_path / "accounts.toml"))
    dispatcher = open_broker(root, clock, accounts=accounts)
    with dispatcher.broker.store:
        peer = Peer(dispatcher)
        fields = {key: str(value) for key, value in send_fields("orders").items()}

        def send(credentials: Credentials, code: int = RequestCode.SEND_MESSAGE_V2) -> int:
            return peer.ask(code, signed(fields, b"x", credentials), b"x").code

        assert peer.ask(RequestCode.SEND_MESSAGE_V2, fields, b"x").code == ResponseCode.NO_PERMISSION
        assert send(Credentials("the-shop", "wrong-secret")) == ResponseCode.NO_PERMISSION
        assert send(Credentials("a-stranger", "secret-of-the-shop")) == ResponseCode.NO_PERMISSION
        assert dispatcher.broker.store.log_end == 0
        assert send(Credentials("the-shop", "secret-of-the-shop")) == ResponseCode.SUCCESS
        shop, admin = Credentials("the-shop", "secret-of-the-shop"), Credentials("the-admin", "secret-of-the-admin")
        assert send(shop, RequestCode.DELETE_TOPIC_IN_BROKER) == ResponseCode.NO_PERMISSION
        # It has no topic, but may ask.
        assert send(admin, RequestCode.DELETE_TOPIC_IN_BROKER) == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(AccountsError, match="only its owner"):
        Accounts.of_file(write(tmp_path / "accounts.toml", mode=mode))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no toml",
        "accounts = 5",
        '[[accounts]]\naccess-key = "the-shop"',
        '[[accounts]]\naccess-key = "the-shop"\nsecret-key = "x"',
    ],
)
def test_a_file_without_accounts_is_refused_and_no_secret_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(AccountsError, match="expected"):
        Accounts.of_file(write(tmp_path / "accounts.toml", text))


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(AccountsError, match="cannot be read"):
        Accounts.of_file(tmp_path / "none.toml")


def test_the_environment_names_one_account() -> None:
    assert Accounts.of_environment({}) is None
    accounts = Accounts.of_environment({ACCESS_KEY_VARIABLE: "the-shop", SECRET_KEY_VARIABLE: "secret-of-the-shop"})
    assert accounts is not None
    request = Command(
        RequestCode.UPDATE_AND_CREATE_TOPIC, signed({}, b"", Credentials("the-shop", "secret-of-the-shop"))
    )
    accounts.check(request)
    with pytest.raises(AccountsError, match="both"):
        Accounts.of_environment({ACCESS_KEY_VARIABLE: "the-shop"})
