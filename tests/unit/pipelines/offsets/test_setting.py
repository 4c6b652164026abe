"""Setting of offsets at a broker whose answers are lost, wrong or false."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.connectors.rocketmq import ClientOptions
from commitlake.connectors.rocketmq.admin import Admin
from commitlake.pipelines.offsets.setting import set_offsets
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.configs import SubscriptionGroupConfig
from commitlake.schemas.remoting.frames import Command, serialize_command
from commitlake.schemas.remoting.routes import MessageQueue
from tests.support.lies import Lie, refusal
from tests.support.live_brokers import LiveBroker, LiveCluster
from tests.support.live_reading import create_topic, put

GROUP, QUEUE = "billing", MessageQueue("orders", "broker-a", 0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LiveBroker]:
    """A broker with a group that has consumed nothing of five messages."""
    with LiveCluster(tmp_path) as cluster:
        running = cluster.brokers["broker-a"]
        create_topic(running)
        put(running, 10)
        running.dispatcher.broker.groups.put(SubscriptionGroupConfig(GROUP))
        yield running


@pytest.fixture
def admin(broker: LiveBroker) -> Iterator[Admin]:
    with Admin(ClientOptions(broker.peer.address, request_seconds=2)) as client:
        yield client


def closed(_request: Command, _answer: Command) -> None:
    """Return no answer, which ends the connection."""


def garbage(_request: Command, _answer: Command) -> bytes:
    return b"x" * 100


def error_of(admin: Admin) -> str:
    (one,) = set_offsets(admin, GROUP, {QUEUE: 3})
    return one.error


@pytest.mark.parametrize("lie", [closed, garbage])
def test_an_offset_that_was_set_without_an_answer_is_read_back(broker: LiveBroker, admin: Admin, lie: Lie) -> None:
    broker.lies[RequestCode.UPDATE_CONSUMER_OFFSET] = lie
    assert error_of(admin) == ""
    assert broker.store.config.consumer_offsets.get("orders", GROUP, 0) == 3


def test_an_offset_that_was_not_set_and_has_no_answer_is_an_error(broker: LiveBroker, admin: Admin) -> None:
    broker.interfere = lambda request: b"x" * 100 if request.code == RequestCode.UPDATE_CONSUMER_OFFSET else None
    assert error_of(admin).endswith("; the offset was not set, it is None")


def test_an_offset_that_cannot_be_read_back_is_unknown(broker: LiveBroker, admin: Admin) -> None:
    asked: list[Command] = []

    def closed_the_second_time(request: Command, answer: Command) -> Command | None:
        asked.append(request)
        return answer if len(asked) == 1 else None

    broker.lies[RequestCode.UPDATE_CONSUMER_OFFSET] = closed
    broker.lies[RequestCode.QUERY_CONSUMER_OFFSET] = closed_the_second_time
    assert error_of(admin).endswith("; it is not known whether the offset was set")


def test_a_refusal_by_the_broker_is_the_error(broker: LiveBroker, admin: Admin) -> None:
    broker.lies[RequestCode.UPDATE_CONSUMER_OFFSET] = refusal(ResponseCode.NO_PERMISSION, "no")
    assert "NO_PERMISSION" in error_of(admin)


@pytest.mark.parametrize("code", [ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR])
def test_an_offset_that_was_reset_before_is_set(broker: LiveBroker, admin: Admin, code: ResponseCode) -> None:
    def ignore_commits(request: Command) -> bytes | None:
        is_commit = request.code == RequestCode.UPDATE_CONSUMER_OFFSET
        return serialize_command(request.reply(code, remark="Offset has been previously reset")) if is_commit else None

    broker.interfere = ignore_commits  # as brokers 5.x do between a reset, as by mqadmin, and the next pull
    assert error_of(admin) == ""
    assert broker.store.config.consumer_offsets.get("orders", GROUP, 0) == 3
