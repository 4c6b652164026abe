"""Targets of random bytes: each case must give a value or a documented error."""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path

from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.handlers.dispatcher import HANDLERS, Dispatcher
from commitlake.broker_lite.nameserver import NameServer
from commitlake.broker_lite.protocol import Channel, FrameReader
from commitlake.broker_lite.stores.rocketmq import MAX_QUEUES, MessageStore
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.topics import is_system_group
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.frames import (
    FLAG_ONE_WAY,
    FLAG_RESPONSE,
    Command,
    SerializeType,
    parse_command,
    serialize_command,
)
from tests.fuzz.mutation import Mutator
from tests.support.brokers import answer_of, pull_fields, send_fields
from tests.support.message_stores import SMALL
from tests.support.small_stores import Clock

PEER = Host.of("127.0.0.1", 50123)
FRAME_LIMIT = 1 << 16
_CASES_OF_A_STORE = 20_000
_ANSWERED_LATER = {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}
_HANDED_ON = {
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
}
_WORDS = (
    "orders", "TBW102", "SCHEDULE_TOPIC_XXXX", "%RETRY%g", "g", "*", "TAG", "SQL92", "true", "", "0", "1", "8", "-1",
    "4294967296", "9223372036854775808", "a > 5 and b in ('x')", "../../etc", "\x00", "字", "\ud800", "x" * 300,
    "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "CID_RMQ_SYS_TIMER", "CID_RMQ_SYS_TRANS", "2147483647",
    "TIMER_DELAY_SEC\x012\x02REAL_TOPIC\x01RMQ_SYS_TRANS_OP_HALF_TOPIC\x02REAL_QID\x012147483647\x02",
    "DELAY\x011\x02REAL_TOPIC\x01rmq_sys_wheel_timer\x02REAL_QID\x01-1\x02", " OR ".join(["a CONTAINS 'x'"] * 300),
    "KEYS\x01a b c\x02TAGS\x01t\x02", "DELAY\x013\x02", "TRAN_MSG\x01true\x02PGROUP\x01g\x02", "\x01\x02\x01",
)  # fmt: skip
_BODIES = (
    b"", b"body", b"{}", b"[]", b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[]}]}',
    b'{"offsetTable":{{"topic":"orders","queueId":0}:1}}', b'{"topicConfigTable":{}}', b"a=b\n", b"\xff" * 40,
    b"[" * 300,
    b'{"clientID":"c","consumerDataSet":[{"groupName":"CID_RMQ_SYS_TIMER","subscriptionDataSet":[]}]}',
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"orders","codeSet":[1]}]}]}',
    b'{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"orders","brokerName":"b","queueId":0}]}',
    b'{"groupName":"g","retryQueueNums":2147483647}',
    b'{"topicConfigList":[{"topicName":"rmq_sys_wheel_timer","readQueueNums":1,"writeQueueNums":1}]}',
)  # fmt: skip


class Target(ABC):
    """Code that is tested with random cases."""

    @abstractmethod
    def try_one(self) -> None:
        """Try one case; raise an error for forbidden behaviour."""

    def finish(self) -> None:  # noqa: B027 (most targets have nothing left to try)
        """Try the data collected by the cases so far; raise an error for forbidden behaviour."""

    def close(self) -> None:  # noqa: B027 (most targets hold nothing)
        """Clean up after the last case."""


class Frames(Target):
    """Streams of frames, in pieces."""

    def __init__(self, chance: random.Random) -> None:
        fields = {key: str(value) for key, value in send_fields("orders", {"KEYS": "a b"}).items()}
        commands = [
            Command(code, some, body, remark, opaque, flag, serialize_type=kind)
            for kind in SerializeType
            for code, some, body, remark, opaque, flag in (
                (310, fields, b"body" * 20, None, 7, 0),
                (0, {}, b"", "no\tproblem", 1 << 30, FLAG_RESPONSE),
                (34, {}, _BODIES[4], None, 0, FLAG_ONE_WAY),
            )
        ]
        samples = [serialize_command(command) for command in commands]
        self._mutator = Mutator(
            chance, [*samples, samples[0] + samples[1]], (b'"', b"{", b"\\u", b"extFields", b"\xff")
        )

    def try_one(self) -> None:
        """Parse commands, or no frames; parsed commands can be serialized again."""
        data = self._mutator.next()
        reader = FrameReader(FRAME_LIMIT)
        middle = len(data) // 2
        try:
            commands = reader.feed(data[:middle])
            commands += reader.feed(data[middle:])
        except LayoutError:
            return
        assert reader.incomplete_frame_size <= len(data)
        for command in commands:
            if command.serialize_type == SerializeType.JSON:
                again = parse_command(serialize_command(command))
                assert again is not None
                assert again[0] == command


class Requests(Target):
    """Mutated requests to a broker and to a name server, which answer each once."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._codes = [*HANDLERS, *(int(code) for code in RequestCode)]
        self._names = sorted({*send_fields("x"), *pull_fields("x"), "group", "offset", "key", "clientID", "timestamp"})
        self._bodies = Mutator(chance, _BODIES)
        self._unexpected = UnexpectedErrors()
        self._folder: Path | None = None
        self._cases = 0

    def _open(self) -> None:
        """Open a new store: filling a store with many messages is not tested here."""
        self._close_store()
        self._folder, self._clock = Path(tempfile.mkdtemp(prefix="fuzz-")), Clock()
        self._store = MessageStore.open(self._folder, SMALL, clock=self._clock)
        self._dispatcher, self._name_server = Dispatcher(Broker(self._store, BrokerOptions())), NameServer(self._clock)
        self._sent: list[bytes] = []
        self._channel = Channel(PEER, self._sent.append, lambda: None)

    def try_one(self) -> None:
        """Check for an answer, or for none to a one-way request."""
        if self._cases % _CASES_OF_A_STORE == 0:
            self._open()
        self._cases += 1
        request = self._request()
        self._sent.clear()
        self._dispatcher.handle(self._channel, request)
        while self._dispatcher.run_long_requests():
            pass
        answers = [each for each in FrameReader().feed(b"".join(self._sent)) if each.flag & FLAG_RESPONSE]
        if request.is_one_way:
            assert not answers
        elif request.code not in _ANSWERED_LATER | _HANDED_ON:
            assert [answer.opaque for answer in answers] == [request.opaque], request
        assert self._store._writer.failure is None
        self._unexpected.check()
        serialize_command(answer_of(self._name_server, self._channel, request))
        if self._chance.random() < 0.1:
            self._clock.now_ms += 40_000
            self._dispatcher.run_periodic_work(self._clock.now_ms)
            self._name_server.run_periodic_work()

    def _request(self) -> Command:
        chance = self._chance
        base = chance.choice(({}, send_fields("orders"), pull_fields("orders")))
        fields = {key: str(value) for key, value in base.items()}
        for _ in range(int(chance.random() * 5)):
            fields[chance.choice(self._names)] = chance.choice(_WORDS)
        if fields and chance.random() < 0.2:
            del fields[chance.choice(list(fields))]
        body = self._bodies.next() if chance.random() < 0.5 else chance.choice(_BODIES)
        flag = FLAG_ONE_WAY if chance.random() < 0.2 else 0
        return Command(chance.choice(self._codes), fields, body, opaque=self._cases & 0x7FFFFFFF, flag=flag)

    def _check_broker(self) -> None:
        """Check that no request has changed the broker's own topics, and that counters agree with the store."""
        broker = self._dispatcher.broker
        config = self._store.config
        assert all(config.topics.queue_count(topic) <= MAX_QUEUES for topic in config.topics.entries)
        assert len(broker.topics.all_configs().topic_config_table) == len(config.topics.entries)
        assert not any(is_system_group(group) for group in config.groups.entries)
        assert config.consumer_offsets.count == sum(map(len, config.consumer_offsets.entries.values()))
        own = [(topic, group) for topic, _, group in (key.partition("@") for key in config.consumer_offsets.entries)]
        for topic, group in own:
            offset = config.consumer_offsets.get(topic, group, 0) or 0
            assert not is_system_group(group) or offset <= self._store.max_offset(topic, 0)
        assert broker.slices.is_empty
        assert broker.clients._quotas.total == sum(map(len, broker.clients._memberships.values()))

    def _close_store(self) -> None:
        if self._folder is not None:
            self._check_broker()
            self._store.close()
            shutil.rmtree(self._folder)
            self._folder = None

    def close(self) -> None:
        """Close the store, and remove it."""
        self._unexpected.stop()
        self._close_store()


class UnexpectedErrors(logging.Handler):
    """Unexpected errors of handlers: they are answered, too, but each is a bug."""

    def __init__(self, *, with_exception: bool = False) -> None:
        """Listen to the dispatcher; with `with_exception`, only to errors logged with an exception."""
        super().__init__(logging.ERROR)
        self._with_exception = with_exception
        self._found: logging.LogRecord | None = None
        self._logger = logging.getLogger("commitlake.broker_lite.handlers.dispatcher")
        self._logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep an error for `check`."""
        if record.exc_info is not None or not self._with_exception:
            self._found = record

    def check(self) -> None:
        """Raise the errors that were found."""
        found, self._found = self._found, None
        if found is not None:
            raise AssertionError(found.getMessage()) from (found.exc_info[1] if found.exc_info else None)

    def stop(self) -> None:
        """Stop listening."""
        self._logger.removeHandler(self)
