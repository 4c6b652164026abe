"""Tests of accounts: sources of secrets, and permissions of requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.broker_lite.broker.accounts import (
    ACCESS_KEY_VARIABLE,
    ADMINISTRATION,
    REGISTRATION,
    SECRET_KEY_VARIABLE,
    Accounts,
    AccountsError,
)
from commitlake.broker_lite.handlers.dispatcher import HANDLERS
from commitlake.broker_lite.nameserver import NameServer
from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.errors import NotPermittedError
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.signing import Credentials, sign_fields
from tests.support.brokers import Peer, open_broker, send_fields
from tests.support.small_stores import Clock

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
    """Write a file of accounts."""
    path.write_text(text)
    path.chmod(mode)
    return path


def test_only_signed_requests_are_executed(root: Path, clock: Clock, tmp_path: Path) -> None:
    accounts = Accounts.from_file(write(tmp_path / "accounts.toml"))
    dispatcher = open_broker(root, clock, accounts=accounts)
    with dispatcher.broker.store:
        peer = Peer(dispatcher)
        fields = {key: str(value) for key, value in send_fields("orders").items()}

        def send(credentials: Credentials, code: int = RequestCode.SEND_MESSAGE_V2) -> int:
            return peer.ask(code, sign_fields(fields, b"x", credentials), b"x").code

        assert peer.ask(RequestCode.SEND_MESSAGE_V2, fields, b"x").code == ResponseCode.NO_PERMISSION
        assert send(Credentials("the-shop", "wrong-secret")) == ResponseCode.NO_PERMISSION
        assert send(Credentials("a-stranger", "secret-of-the-shop")) == ResponseCode.NO_PERMISSION
        assert dispatcher.broker.store.log_end == 0
        assert send(Credentials("the-shop", "secret-of-the-shop")) == ResponseCode.SUCCESS
        shop, admin = Credentials("the-shop", "secret-of-the-shop"), Credentials("the-admin", "secret-of-the-admin")
        assert send(shop, RequestCode.DELETE_TOPIC_IN_BROKER) == ResponseCode.NO_PERMISSION
        # It has no topic, but may ask.
        assert send(admin, RequestCode.DELETE_TOPIC_IN_BROKER) == ResponseCode.SYSTEM_ERROR


READING = {
    RequestCode.CHECK_CLIENT_CONFIG, RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_ALL_PRODUCER_INFO, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_BROKER_CONFIG, RequestCode.GET_BROKER_CONSUME_STATS, RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_CONSUMER_CONNECTION_LIST, RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.GET_CONSUME_STATS, RequestCode.GET_EARLIEST_MSG_STORETIME,
    RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET, RequestCode.GET_PRODUCER_CONNECTION_LIST,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TOPIC_CONFIG, RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    RequestCode.LITE_PULL_MESSAGE, RequestCode.PULL_MESSAGE, RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.QUERY_CONSUME_QUEUE, RequestCode.QUERY_CONSUME_TIME_SPAN, RequestCode.QUERY_MESSAGE,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, RequestCode.QUERY_TOPICS_BY_CONSUMER,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, RequestCode.VIEW_BROKER_STATS_DATA,
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, RequestCode.GET_TOPICS_BY_CLUSTER,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, RequestCode.GET_KV_CONFIG, RequestCode.GET_KVLIST_BY_NAMESPACE,
}  # fmt: skip
"""Codes that change nothing."""
OF_CLIENTS = {
    RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.CONSUME_MESSAGE_DIRECTLY, RequestCode.END_TRANSACTION,
    RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.UNLOCK_BATCH_MQ, RequestCode.UNREGISTER_CLIENT, RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.RECALL_MESSAGE,
}  # fmt: skip
"""Codes with which producers and consumers do their work."""


def test_every_request_code_is_in_a_permission_class() -> None:
    handled = {*HANDLERS, *NameServer(Clock())._handlers}
    assert handled <= READING | OF_CLIENTS | ADMINISTRATION | REGISTRATION
    assert not (READING | OF_CLIENTS) & (ADMINISTRATION | REGISTRATION)


@pytest.mark.parametrize("code", sorted(ADMINISTRATION))
@pytest.mark.parametrize(
    ("ip", "is_encrypted", "is_done"),
    [
        ("10.0.0.7", False, False),
        ("10.0.0.7", True, True),
        ("127.0.0.1", False, True),
        ("127.3.2.1", False, True),
        ("::1", False, True),
        ("::ffff:127.0.0.1", False, True),
        ("::ffff:10.0.0.7", False, False),
    ],
)
def test_administration_is_allowed_from_this_machine_or_over_tls(
    code: int, ip: str, is_encrypted: bool, is_done: bool
) -> None:
    accounts = Accounts({"the-admin": "secret-of-the-admin", "the-shop": "secret"}, frozenset({"the-admin"}))
    channel = Channel(Host.of(ip, 40000), lambda _: None, lambda: None, is_encrypted=is_encrypted)
    request = Command(code, sign_fields({"topic": "orders"}, b"", Credentials("the-admin", "secret-of-the-admin")))
    if is_done:
        accounts.check_request(request, channel)
    else:
        with pytest.raises(NotPermittedError, match="plain text"):
            accounts.check_request(request, channel)
    request = Command(code, sign_fields({"topic": "orders"}, b"", Credentials("the-shop", "secret")))
    with pytest.raises(NotPermittedError, match="administrator"):
        accounts.check_request(request, channel)


@pytest.mark.parametrize(("ip", "is_done"), [("127.0.0.1", True), ("::1", True), ("10.0.0.7", False)])
def test_without_accounts_administration_is_allowed_only_from_this_machine(
    root: Path, clock: Clock, ip: str, is_done: bool
) -> None:
    dispatcher = open_broker(root, clock)
    with dispatcher.broker.store:
        peer = Peer(dispatcher)
        peer.channel.peer = Host.of(ip, 40000)
        answer = peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
        assert (answer.code != ResponseCode.NO_PERMISSION) is is_done
        assert peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"x").code == ResponseCode.SUCCESS


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(AccountsError, match="only its owner"):
        Accounts.from_file(write(tmp_path / "accounts.toml", mode=mode))


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
def test_a_file_without_valid_accounts_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(AccountsError, match="expected"):
        Accounts.from_file(write(tmp_path / "accounts.toml", text))


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(AccountsError, match="cannot read"):
        Accounts.from_file(tmp_path / "none.toml")


def test_one_account_is_read_from_the_environment() -> None:
    assert Accounts.from_environment({}) is None
    accounts = Accounts.from_environment({ACCESS_KEY_VARIABLE: "the-shop", SECRET_KEY_VARIABLE: "secret-of-the-shop"})
    assert accounts is not None
    request = Command(
        RequestCode.UPDATE_AND_CREATE_TOPIC, sign_fields({}, b"", Credentials("the-shop", "secret-of-the-shop"))
    )
    accounts.check_request(request, Channel(Host.of("127.0.0.1", 40000), lambda _: None, lambda: None))
    with pytest.raises(AccountsError, match="both"):
        Accounts.from_environment({ACCESS_KEY_VARIABLE: "the-shop"})
