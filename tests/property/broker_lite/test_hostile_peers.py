"""The broker answers any peer or disconnects it, does nothing else, and its store stays sound."""

from __future__ import annotations

import logging
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.handlers.dispatcher import HANDLERS, Dispatcher
from commitlake.broker_lite.handlers.forwarded_requests import parse_member_offsets
from commitlake.broker_lite.nameserver import NameServer
from commitlake.broker_lite.protocol import Channel, FrameReader
from commitlake.broker_lite.server.connection_transport import ConnectionCodec, ConnectionCodecError
from commitlake.broker_lite.stores.jmq_adapter import JmqStore
from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.fastjson import parse_fastjson
from commitlake.schemas.remoting.frames import FLAG_RESPONSE, Command, SerializeType, serialize_command
from commitlake.schemas.remoting.sql92 import SqlError, compile_sql92
from commitlake.schemas.remoting.tls import ServerTls, TlsStream, client_context, server_context
from commitlake.schemas.remoting.tls_properties import TlsMode, parse_tls_properties
from tests.support.brokers import answer_of, pull_fields, send_fields
from tests.support.certificates import Certificates
from tests.support.hypothesis_profiles import load
from tests.support.jmq_brokers import OPTIONS as JMQ_OPTIONS
from tests.support.message_stores import SMALL
from tests.support.small_stores import Clock

load()

PEER = Host.of("127.0.0.1", 50123)
NAMES = sorted(
    {
        *send_fields("x"),
        *pull_fields("x"),
        "group",
        "consumerGroup",
        "offset",
        "key",
        "maxNum",
        "beginTimestamp",
        "endTimestamp",
        "commitLogOffset",
        "tranStateTableOffset",
        "commitOrRollback",
        "producerGroup",
        "clientID",
        "timestamp",
        "delayLevel",
        "isForce",
        "perm",
        "readQueueNums",
        "writeQueueNums",
        "defaultTopic",
        "cluster",
        "namespace",
        "value",
        "brokerName",
        "brokerAddr",
        "clusterName",
        "haServerAddr",
        "brokerId",
        "groupName",
        "statsName",
        "statsKey",
        "index",
        "count",
        "attributes",
        "commitOffset",
    }
)
numbers = st.integers(-(1 << 64), 1 << 64) | st.integers(-2, 5)
values = st.one_of(
    st.sampled_from(
        ["orders", "TBW102", "SCHEDULE_TOPIC_XXXX", "%RETRY%g", "g", "*", "TAG", "SQL92", "true", "8", "0", "1"]
    ),
    numbers.map(str),
    st.text(max_size=20),
)
documents = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["clientID", "consumerDataSet", "groupName", "mqSet", "topic"]) | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
codes = (
    st.sampled_from(sorted(HANDLERS))
    | st.sampled_from([int(code) for code in RequestCode if code < 32768])
    | st.integers(0, 32767)
)


@st.composite
def commands(draw: st.DrawFn) -> Command:
    """Draw mutated requests."""
    code = draw(codes)
    base = draw(st.sampled_from([{}, send_fields("orders"), pull_fields("orders")]))
    fields = {key: str(value) for key, value in base.items()}
    fields |= draw(st.dictionaries(st.sampled_from(NAMES), values, max_size=8))
    body = draw(
        st.binary(max_size=60) | documents.map(lambda value: repr(value).replace("'", '"').encode("utf-8", "replace"))
    )
    return Command(
        code,
        fields,
        body,
        opaque=draw(st.integers(0, 1 << 31 - 1)),
        flag=draw(st.sampled_from([0, 0, 0, 2])),
        serialize_type=draw(st.sampled_from(SerializeType)),
    )


class Unexpected(logging.Handler):
    """Unexpected errors of handlers: they are answered, too, but each is a bug."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep an unexpected error."""
        self.records.append(record)


@contextmanager
def no_unexpected_errors() -> Iterator[None]:
    """Fail if a handler raises an unexpected error."""
    logger, seen = logging.getLogger("commitlake.broker_lite.handlers.dispatcher"), Unexpected()
    logger.addHandler(seen)
    try:
        yield
    finally:
        logger.removeHandler(seen)
    for record in seen.records:
        raise AssertionError(record.getMessage()) from (record.exc_info[1] if record.exc_info else None)


def open_rocketmq(folder: Path, clock: Clock) -> MessageStore:
    """Open a small store in RocketMQ's layout."""
    return MessageStore.open(folder, SMALL, clock=clock)


def open_jmq(folder: Path, clock: Clock) -> JmqStore:
    """Open a small store in JMQ's layout."""
    return JmqStore.open(folder, JMQ_OPTIONS, clock=clock)


@pytest.mark.parametrize("open_store", [open_rocketmq, open_jmq])
@given(requests=st.lists(commands(), max_size=12))
def test_any_requests_are_answered_once_and_the_store_recovers(
    open_store: Callable[[Path, Clock], MessageStore | JmqStore], requests: list[Command]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        clock, sent = Clock(), list[bytes]()
        with open_store(Path(folder), clock) as store:
            dispatcher = Dispatcher(Broker(store, BrokerOptions()))
            channel = Channel(PEER, sent.append, lambda: None)
            with no_unexpected_errors():
                for request in requests:
                    dispatcher.handle(channel, request)
                    while dispatcher.run_long_requests():
                        pass
                    clock.now_ms += 40_000
                    dispatcher.run_periodic_work(clock.now_ms)
            assert (store.journal if isinstance(store, JmqStore) else store)._writer.failure is None
            end = store.log_end
        answers = FrameReader().feed(b"".join(sent))
        for request in requests:
            if request.is_one_way:
                continue
            found = [answer for answer in answers if answer.flag & FLAG_RESPONSE and answer.opaque == request.opaque]
            same = sum(other.opaque == request.opaque and not other.is_one_way for other in requests)
            # A question that is handed on to a consumer is answered when that answers.
            assert len(found) <= same
            assert found or request.code in {223, 307, 309}
        with open_store(Path(folder), clock) as again:
            assert again.log_end == end


@given(st.lists(commands(), max_size=6))
def test_any_requests_to_a_name_server_are_answered(requests: list[Command]) -> None:
    server = NameServer(Clock())
    channel = Channel(PEER, lambda _: None, lambda: None)
    for request in requests:
        serialize_command(answer_of(server, channel, request))
    server.run_periodic_work()
    server.on_connection_lost(channel)


@given(st.binary(max_size=200), st.lists(commands(), max_size=3), st.integers(0, 400), st.binary(max_size=4))
def test_any_bytes_are_commands_or_no_frames(
    noise: bytes, requests: list[Command], position: int, change: bytes
) -> None:
    data = bytearray(b"".join(map(serialize_command, requests)) + noise)
    data[position : position + len(change)] = change
    reader = FrameReader(1 << 16)
    try:
        for start in range(0, len(data), 50):
            reader.feed(bytes(data[start : start + 50]))
    except LayoutError:
        return
    assert reader.incomplete_frame_size <= 1 << 16


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS contexts of a server and of a client."""
    text = Certificates(tmp_path_factory.mktemp("certificates")).server_properties()
    settings = parse_tls_properties(text, {})
    return server_context(settings), client_context(settings)


@given(
    st.sampled_from([TlsMode.PERMISSIVE, TlsMode.ENFORCING]),
    st.binary(max_size=300),
    st.integers(0, 2000),
    st.sampled_from([1, 7, 100, 5000]),
    st.booleans(),
)
def test_any_bytes_are_a_handshake_plain_text_or_an_error(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
    mode: TlsMode,
    change: bytes,
    position: int,
    size: int,
    is_established: bool,
) -> None:
    sent: list[bytes] = []
    wire = ConnectionCodec(ServerTls(contexts[0], mode), sent.append)
    client = TlsStream(contexts[1], is_server=False, server_name="127.0.0.1")
    while is_established and not client.is_established:
        wire.receive(client.take_output())
        client.receive(b"".join(sent))
        sent.clear()
    if is_established:
        wire.receive(client.take_output())
        client.send(b"plain text" * 100)
        client.end_session()
    data = bytearray(client.take_output())
    data[position : position + len(change)] = change
    try:
        for start in range(0, len(data), size):
            wire.receive(bytes(data[start : start + size]))
        if wire.is_encrypted:
            wire.send(b"an answer")
        wire.end_tls()
    except ConnectionCodecError:
        assert change


@given(
    st.text(alphabet="ab()=<>'., \n5-NOTANDRBETWEENISULINFASE", max_size=60),
    st.dictionaries(st.sampled_from("ab"), st.text(max_size=4)),
)
def test_any_text_is_an_expression_or_none(text: str, properties: dict[str, str]) -> None:
    try:
        condition = compile_sql92(text)
    except SqlError:
        return
    assert condition(properties) in (True, False)


@given(
    st.lists(
        st.sampled_from(["{", "}", ",", ":", '"a"', '"', "1", "-", "0", "[]", "\\", " ", '{"a":1}:', '"a":1,', '"ü'])
    )
)
def test_a_member_reports_a_table_of_offsets_or_nothing(pieces: list[str]) -> None:
    table = parse_member_offsets(f'{{"messageQueueTable":{{{"".join(pieces)}}}}}'.encode())
    offsets = parse_fastjson(table)
    assert isinstance(offsets, dict)
    assert all(isinstance(offset, int) for offset in offsets.values())
