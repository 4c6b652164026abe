"""Setting of offsets at a broker whose answers are lost, wrong or false."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.connectors.rocketmq import ClientOptions
from commitlake.connectors.rocketmq.admin import Admin
from commitlake.pipelines.offsets.broker_offset_update import TopicOffsets, make_mqadmin_commands, set_offsets
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.frames import Command, serialize_command
from commitlake.schemas.remoting.routes import MessageQueue
from commitlake.schemas.remoting.topic_and_group_configs import SubscriptionGroupConfig
from tests.support.lies import Lie, refusal
from tests.support.live_brokers import LiveBroker, LiveCluster
from tests.support.live_reading import create_topic, put

GROUP, QUEUE = "billing", MessageQueue("orders", "broker-a", 0)
A0, A1, B0 = (MessageQueue("orders", *place) for place in (("a", 0), ("a", 1), ("b", 0)))
ADDRESSES = {"a": "10.0.0.1:10911", "b": "10.0.0.2:10911"}
BASE = "mqadmin resetOffsetByTime -n '10.0.0.9:9876;10.0.0.8:9876' -g billing -t orders -s"


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


def commands(
    wanted: dict[MessageQueue, int],
    current: dict[MessageQueue, int | None],
    others: dict[MessageQueue, int | None],
) -> list[str]:
    offsets = TopicOffsets(wanted, current, others)
    return list(make_mqadmin_commands("10.0.0.9:9876;10.0.0.8:9876", "billing", "orders", offsets, ADDRESSES))


def test_each_queue_has_a_command_with_the_address_of_its_broker() -> None:
    assert commands({A1: 7, A0: 5}, {A0: 9, A1: 9}, {B0: 3}) == [
        f"{BASE} now -b 10.0.0.1:10911 -q 0 -o 5",
        f"{BASE} now -b 10.0.0.1:10911 -q 1 -o 7",
    ]


def test_offset_0_resets_the_whole_topic_and_restores_the_other_queues() -> None:
    assert commands({A0: 0, A1: 7}, {A0: 9, A1: 9}, {B0: 3}) == [
        "# orders: set all queues to their beginning first, because mqadmin cannot set one queue to 0",
        f"{BASE} 0",
        f"{BASE} now -b 10.0.0.1:10911 -q 1 -o 7",
        f"{BASE} now -b 10.0.0.2:10911 -q 0 -o 3",
    ]
    assert commands({A0: 0}, {A0: None}, {B0: None})[-1] == ("# queue 0 of b had no offset: it gets offset 0")


def test_a_queue_that_is_at_0_already_needs_no_command() -> None:
    assert commands({A0: 0, A1: 4}, {A0: 0, A1: 1}, {}) == [f"{BASE} now -b 10.0.0.1:10911 -q 1 -o 4"]


def test_topics_of_retries_are_quoted_for_a_shell() -> None:
    queue = MessageQueue("%RETRY%my group", "a", 0)
    offsets = TopicOffsets({queue: 1}, {queue: 2}, {})
    (line,) = make_mqadmin_commands("h:1", "my group", queue.topic, offsets, ADDRESSES)
    assert "-n h:1 -g 'my group' -t '%RETRY%my group' -s now" in line
