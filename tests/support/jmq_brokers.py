"""Brokers with JMQ's format for tests, and clients' requests to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.broker_lite.stores.jmq_adapter import JmqStore
from commitlake.schemas.layouts.jmq.consume_records import Consumption, DeliveryOutcome
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.frames import Command
from tests.support.brokers import Peer, pull_fields, records, send_fields
from tests.support.journal_stores import BROKER, SMALL
from tests.support.small_stores import Clock

OPTIONS = replace(SMALL, journal_file_size_bytes=1 << 16, queue_count=4)
"""Space for a client's properties."""
SECOND = 1000


def open_jmq_broker(root: Path, clock: Clock) -> Dispatcher:
    """Open a broker on a small store, which the caller must close."""
    store = JmqStore.open(root, OPTIONS, clock=clock)
    return Dispatcher(Broker(store, BrokerOptions(address=BROKER)))


def send(peer: Peer, number: int = 0, **fields: object) -> Command:
    """Send a message whose body and keys contain its number."""
    properties = {"UNIQ_KEY": f"U{number}", "KEYS": f"order-{number}", "TAGS": f"tag{number % 3}"}
    header = send_fields("orders", properties, **fields)
    answer = peer.ask(RequestCode.SEND_MESSAGE_V2, header, f"body {number}".encode())
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


def pull(peer: Peer, topic: str, offset: int = 0, queue_id: int = 0, group: str = "consumers") -> list[Message]:
    """Return the messages that a consumer receives."""
    answer = peer.ask(RequestCode.PULL_MESSAGE, pull_fields(topic, queue_id, offset, consumerGroup=group))
    return records(answer.body)


def send_back(peer: Peer, message: Message, **fields: object) -> Command:
    """Report that a consumer has failed on a message."""
    header: dict[str, object] = {
        "offset": message.physical_offset, "group": "consumers", "delayLevel": 0, "originMsgId": message.msg_id,
        "originTopic": message.topic, "unitMode": False, "maxReconsumeTimes": 16,
    }  # fmt: skip
    return peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header | fields)


def commit(peer: Peer, topic: str, offset: int, queue_id: int = 0, group: str = "consumers") -> None:
    """Report that everything before an offset is processed."""
    header = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
    assert peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header).code == ResponseCode.SUCCESS


def advance(dispatcher: Dispatcher, clock: Clock, milliseconds: int) -> None:
    """Advance the time, and let the broker do all due work."""
    clock.now_ms += milliseconds
    dispatcher.run_periodic_work(clock.now_ms)


def consumptions(store: JmqStore) -> list[Consumption]:
    """Return the consume records that are on disk."""
    store.journal.flush()
    return store.journal.read_consumptions(0, 1 << 20)[0]


def outcomes(store: JmqStore) -> list[tuple[int, DeliveryOutcome, int]]:
    """Return queue offset, outcome and delivery number of every consumption."""
    return [(one.queue_offset, one.outcome, one.attempt) for one in consumptions(store)]
