"""Tests of the answers of a slave: pulls without redirections, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.delivery import Delivery
from commitlake.broker_lite.replication.role import SlaveDispatcher
from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.schemas.layouts.rocketmq.properties import DELAY
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from tests.support.brokers import Peer, pull_fields, records, send_fields
from tests.support.message_stores import SMALL, fill, message
from tests.support.small_stores import Clock


@pytest.fixture
def peer(root: Path, clock: Clock) -> Iterator[Peer]:
    """A client of a slave whose log has messages."""
    with MessageStore.open(root, SMALL, clock=clock) as store:
        broker = Broker(store, BrokerOptions())
        fill(store, 6)
        Delivery(store).send(message(9, properties=((DELAY, "1"), ("UNIQ_KEY", "D" * 32))))
        store.take_queues_with_new_messages()
        yield Peer(SlaveDispatcher(broker))


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (RequestCode.SEND_MESSAGE, ResponseCode.SYSTEM_BUSY),
        (RequestCode.SEND_MESSAGE_V2, ResponseCode.SYSTEM_BUSY),
        (RequestCode.SEND_BATCH_MESSAGE, ResponseCode.SYSTEM_BUSY),
        (RequestCode.CONSUMER_SEND_MSG_BACK, ResponseCode.SYSTEM_BUSY),
        (RequestCode.SEND_REPLY_MESSAGE, ResponseCode.SYSTEM_BUSY),
        (RequestCode.END_TRANSACTION, ResponseCode.SLAVE_NOT_AVAILABLE),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, ResponseCode.SYSTEM_ERROR),
        (RequestCode.DELETE_TOPIC_IN_BROKER, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_a_slave_refuses_writes(peer: Peer, code: RequestCode, answer: ResponseCode) -> None:
    end = peer.dispatcher.broker.store.log_end
    assert peer.ask(code, send_fields("orders"), b"body").code == answer
    assert peer.dispatcher.broker.store.log_end == end


def test_a_pull_returns_copied_messages(peer: Peer) -> None:
    answer = peer.ask(RequestCode.PULL_MESSAGE, pull_fields("orders"))
    assert answer.code == ResponseCode.SUCCESS
    assert [one.body for one in records(answer.body)] == [b"body 0", b"body 2", b"body 4"]


def test_a_consumer_ahead_of_the_slave_keeps_its_offset(peer: Peer) -> None:
    answer = peer.ask(RequestCode.PULL_MESSAGE, pull_fields("orders", offset=50))
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert answer.ext_fields["nextBeginOffset"] == "50"
    assert answer.ext_fields["maxOffset"] == "3"


def test_a_slave_does_not_deliver_delayed_messages(peer: Peer, clock: Clock) -> None:
    end = peer.dispatcher.broker.store.log_end
    assert not peer.dispatcher.run_periodic_work(clock.now_ms + 3_600_000)
    assert peer.dispatcher.broker.store.log_end == end


def test_a_waiting_pull_is_answered_after_its_timeout(peer: Peer, clock: Clock) -> None:
    assert peer.ask_later(RequestCode.PULL_MESSAGE, pull_fields("orders", offset=3, sysFlag=6)) == []
    clock.now_ms += 20_000
    peer.dispatcher.run_periodic_work(clock.now_ms)
    assert [answer.code for answer in peer.sent] == [ResponseCode.PULL_NOT_FOUND]
