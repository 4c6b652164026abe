"""A broker without a network, for the tests of its handlers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from commitlake.broker_lite.broker.accounts import Accounts
from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.broker_lite.nameserver import NameServer
from commitlake.broker_lite.protocol import Channel, FrameReader
from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.schemas.layouts.rocketmq.commitlog import Message, parse_message
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.frames import FLAG_ONE_WAY, Command
from commitlake.schemas.remoting.heartbeats import ConsumerData, Heartbeat, SubscriptionData
from commitlake.schemas.remoting.json_fields import serialize_body
from tests.support.message_stores import BORN_MS, SMALL
from tests.support.small_stores import Clock

PRODUCER_HOST = Host.of("127.0.0.1", 50123)


@dataclass
class Peer:
    """A client without a network, which stores all received commands."""

    dispatcher: Dispatcher
    sent: list[Command] = field(default_factory=list)
    last_opaque: int = -1

    def __post_init__(self) -> None:
        reader = FrameReader()
        self.channel = Channel(PRODUCER_HOST, lambda frame: self.sent.extend(reader.feed(frame)), lambda: None)

    def ask(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"", version: int = 513
    ) -> Command:
        """Send a request, and return the answer, which must be immediate."""
        found = self.ask_later(code, fields, body, version)
        answers = [command for command in found if command.is_response]
        assert len(answers) == 1, answers
        return answers[0]

    def ask_later(
        self,
        code: int,
        fields: Mapping[str, object] | None = None,
        body: bytes = b"",
        version: int = 513,
        flag: int = 0,
    ) -> list[Command]:
        """Send a request, and return all answers, even if it takes several slices."""
        before = len(self.sent)
        self.ask_once(code, fields, body, version, flag)
        while self.dispatcher.run_long_requests():
            pass
        return self.sent[before:]

    def ask_once(
        self,
        code: int,
        fields: Mapping[str, object] | None = None,
        body: bytes = b"",
        version: int = 513,
        flag: int = 0,
    ) -> list[Command]:
        """Send a request, and return the answers after its first slice."""
        before = self.last_opaque = len(self.sent)
        text = {
            key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (fields or {}).items()
        }
        self.dispatcher.handle(self.channel, Command(code, text, body, opaque=before, version=version, flag=flag))
        self.dispatcher.answer_held_pulls()
        return self.sent[before:]

    def tell(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> list[Command]:
        """Send a one-way request."""
        return self.ask_later(code, fields, body, flag=FLAG_ONE_WAY)

    def heartbeat(self, client_id: str, group: str, topic: str, expression: str = "*", kind: str = "TAG") -> Command:
        """Send a heartbeat of a consumer."""
        subscription = SubscriptionData(topic, expression, sub_version=1, expression_type=kind)
        data = ConsumerData(group, subscription_data_set=(subscription,))
        return self.ask(RequestCode.HEART_BEAT, body=serialize_body(Heartbeat(client_id, (), (data,))))


def send_fields(topic: str, properties: Mapping[str, str] | None = None, **others: object) -> dict[str, object]:
    """Return the header of a send V2."""
    text = "".join(f"{key}\x01{value}\x02" for key, value in (properties or {}).items())
    letters = {"a": "producers", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": BORN_MS, "h": 0, "i": text,
               "j": 0, "k": False, "m": False}  # fmt: skip
    return letters | others


def pull_fields(topic: str, queue_id: int = 0, offset: int = 0, **others: object) -> dict[str, object]:
    """Return the header of a pull that does not wait, with its own subscription."""
    fields: dict[str, object] = {
        "consumerGroup": "consumers", "topic": topic, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": 4, "commitOffset": -1, "suspendTimeoutMillis": 15_000, "subscription": "*", "subVersion": 1,
    }  # fmt: skip
    return fields | others


def records(body: bytes | memoryview) -> list[Message]:
    """Return the records of an answer."""
    found, position = [], 0
    while position < len(body):
        parsed = parse_message(bytes(body), position)
        assert parsed is not None
        found.append(parsed[0])
        position += parsed[1]
    return found


def message_store(dispatcher: Dispatcher) -> MessageStore:
    """Return the store of a broker with files in RocketMQ's format."""
    store = dispatcher.broker.store
    assert isinstance(store, MessageStore)
    return store


def open_broker(
    root: Path, clock: Clock, options: BrokerOptions | None = None, accounts: Accounts | None = None
) -> Dispatcher:
    """Open a broker on a new small store, which the caller must close."""
    store = MessageStore.open(root, SMALL, clock=clock)
    return Dispatcher(Broker(store, options or BrokerOptions()), accounts)


def answer_of(server: NameServer, channel: Channel, request: Command) -> Command:
    """Return a name server's answer to a request, even if it takes several slices."""
    answer = server.handle(channel, request)
    while not isinstance(answer, Command):
        try:
            next(answer)
        except StopIteration as end:
            answer = end.value
    return answer
