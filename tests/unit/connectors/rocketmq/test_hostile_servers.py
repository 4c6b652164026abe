"""Name servers and brokers with false answers: each is an error that names the server, with little time and memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from commitlake.connectors.rocketmq import Admin, ClientOptions, OutgoingMessage, Producer, Puller
from commitlake.connectors.rocketmq.errors import (
    PositionError,
    ProtocolError,
    RefusedError,
    RocketMQError,
    UnreachableError,
)
from commitlake.connectors.rocketmq.queue_reading import MAX_EMPTY_ANSWERS, QueueRange, read_range
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.routes import MessageQueue
from tests.support.lies import Lie, refusal, with_body, with_document, with_fields, without_fields
from tests.support.live_brokers import LiveBroker, LiveCluster
from tests.support.live_reading import create_topic, put

QUEUE = MessageQueue("orders", "broker-a", 0)
ROUTE, CLUSTERS = RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO
PULL = RequestCode.PULL_MESSAGE


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """A broker with the topic orders, of two queues of ten messages."""
    with LiveCluster(tmp_path_factory.mktemp("cluster")) as made:
        create_topic(made.brokers["broker-a"])
        put(made.brokers["broker-a"], 20)
        yield made


@pytest.fixture
def cluster(shared: LiveCluster) -> LiveCluster:
    """The same broker, without false answers so far."""
    shared.brokers["broker-a"].lies.clear()
    return shared


@pytest.fixture
def broker(cluster: LiveCluster) -> LiveBroker:
    """The broker, which is the name server, too."""
    return cluster.brokers["broker-a"]


def options(cluster: LiveCluster, seconds: float = 20) -> ClientOptions:
    return ClientOptions(cluster.address, connect_seconds=seconds, request_seconds=seconds)


def queue_data(name: str, count: int = 1) -> dict[str, object]:
    return {"brokerName": name, "readQueueNums": count, "writeQueueNums": count, "perm": 6}


def broker_data(name: str, address: str = "127.0.0.1:1") -> dict[str, object]:
    return {"brokerName": name, "brokerAddrs": {"0": address}}


def route_of(queues: list[dict[str, object]], brokers: list[dict[str, object]]) -> Lie:
    return with_document(lambda _: {"queueDatas": queues, "brokerDatas": brokers})


NAMES = [f"b{number}" for number in range(20_000)]
ROUTES: dict[str, tuple[Lie, str]] = {
    "many brokers": (route_of([], [broker_data(name) for name in NAMES]), "at most 1024 brokers, found 20000"),
    "many queues": (route_of([queue_data(name, 65_536) for name in NAMES[:100]], []), "at most 262144 queues"),
    "no brokers": (route_of([queue_data("broker-a")], []), "expected at least one broker, found none"),
    "no brokers and no queues": (route_of([], []), "expected at least one broker, found none"),
    "a broker twice": (route_of([queue_data("b")] * 2, []), "each broker once, found 'b' twice"),
    "a negative number": (route_of([queue_data("b", -4)], []), "expected 0 to 65536 queues on broker b, found -4"),
    "control characters": (route_of([], [broker_data("b\n\x1b[31m")]), r"printable characters, found 'b\\n\\x1b"),
    "a long name": (route_of([], [broker_data("b" * 2000)]), "the name of a broker, 1 to 1024"),
    "a fixed order": (
        with_document(lambda route: route | {"orderTopicConf": ";".join(["b:65536"] * 100_000)}),
        "at most 262144 queues",
    ),
    "deep brackets": (with_body(b"[" * 100_000), "nested too deeply"),
    "deep objects": (with_body(b'{"a":' * 100_000), "nested too deeply"),
    "5,000 digits": (with_body(b'{"queueDatas":' + b"9" * 5000 + b"}"), "expected JSON"),
    "not a number": (with_document(lambda _: {"queueDatas": [queue_data("b") | {"perm": float("nan")}]}), "found nan"),
    "no JSON": (with_body(bytes(range(256)) * 1000), "expected JSON"),
}  # fmt: skip


@pytest.mark.parametrize("name", ROUTES)
def test_a_false_route_is_refused(cluster: LiveCluster, broker: LiveBroker, name: str) -> None:
    broker.lies[ROUTE], message = ROUTES[name]
    began = time.monotonic()
    with Admin(options(cluster)) as admin, pytest.raises(ProtocolError, match=message) as caught:
        admin.route("orders")
    with Producer("group", options(cluster)) as producer, pytest.raises(ProtocolError, match=message):
        producer.queues("orders")
    assert str(caught.value).startswith(f"{cluster.address}: TopicRoute")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    assert time.monotonic() - began < 30


def test_a_false_list_of_brokers_is_refused(cluster: LiveCluster, broker: LiveBroker) -> None:
    with Admin(options(cluster)) as admin:
        table = {name: broker_data(name) for name in NAMES}
        broker.lies[CLUSTERS] = with_document(lambda _: {"brokerAddrTable": table})
        with pytest.raises(ProtocolError, match=f"{cluster.address}: ClusterInfo: expected at most 1024 brokers"):
            admin.clusters()
        broker.lies[CLUSTERS] = with_document(lambda _: {"brokerAddrTable": {"../\x1b[31m": broker_data("x")}})
        with pytest.raises(ProtocolError, match=r"ClusterInfo: expected the name of a broker, .*found '\.\./\\x1b"):
            admin.clusters()


@pytest.mark.parametrize("address", ["nowhere", "no\x1b[31m\n:80", "a..b:80", "127.0.0.1:99999", "127.0.0.1:1"])
def test_a_broker_at_no_address_is_unreachable(cluster: LiveCluster, broker: LiveBroker, address: str) -> None:
    broker.lies[CLUSTERS] = with_document(lambda _: {"brokerAddrTable": {"b": broker_data("b", address)}})
    with Admin(options(cluster)) as admin, pytest.raises(UnreachableError) as caught:
        admin.runtime_info("b")
    assert str(caught.value).isprintable()


def test_half_a_surrogate_pair_in_an_answer_becomes_a_question_mark(cluster: LiveCluster, broker: LiveBroker) -> None:
    broker.lies[RequestCode.GET_ALL_CONSUMER_OFFSET] = with_body(b'{"offsetTable":{"t\\ud800@g\\udfff":{0:1}}}')
    broker.lies[RequestCode.GET_BROKER_RUNTIME_INFO] = lambda request, _: frame_with(
        rb'{"code":1,"flag":1,"opaque":%d,"remark":"\ud800x\ud83d\ude00"}' % request.opaque
    )
    with Admin(options(cluster)) as admin:
        assert admin.all_group_offsets("broker-a").offset_table == {"t?@g?": {0: 1}}
        with pytest.raises(RefusedError, match=r"\?x😀$"):
            admin.runtime_info("broker-a")


def frame_with(header: bytes) -> bytes:
    return (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header


@pytest.mark.parametrize(
    "lie",
    [
        with_fields(queueId="1"),
        with_fields(queueId="-1"),
        with_fields(queueOffset="-1"),
        with_fields(queueOffset=str(2**63 - 1)),
        with_fields(queueOffset=str(2**63)),
        with_fields(queueOffset="9" * 5000),
        with_fields(queueOffset="NaN"),
        without_fields("queueOffset"),
        without_fields("queueId"),
    ],
)
def test_a_send_with_an_impossible_place_in_its_answer_fails(
    cluster: LiveCluster, broker: LiveBroker, lie: Lie
) -> None:
    broker.lies[RequestCode.SEND_MESSAGE_V2] = broker.lies[RequestCode.SEND_BATCH_MESSAGE] = lie
    message = OutgoingMessage("orders", b"x")
    with Producer("group", options(cluster)) as producer:
        with pytest.raises(PositionError, match=cluster.address) as caught:
            producer.send(message, queue=QUEUE)
        with pytest.raises(PositionError):
            producer.send_batch([message] * 2, queue=QUEUE)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "offset", ["-2", str(2**56 + 1), str(2**63 - 1), str(2**63), "9" * 5000, "", "1e3", "Infinity"]
)
def test_impossible_offsets_of_queues_are_refused(cluster: LiveCluster, broker: LiveBroker, offset: str) -> None:
    for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP):
        broker.lies[code] = with_fields(offset=offset)
    with Puller("group", options(cluster)) as puller:
        puller.queues("orders")
        for ask in (puller.min_offset, puller.max_offset, lambda queue: puller.offsets.search_by_time(queue, 0)):
            with pytest.raises(ProtocolError, match=cluster.address) as caught:
                ask(QUEUE)
            assert len(str(caught.value)) < 300


def answering(code: int, following: Callable[[int], int], end: int) -> Lie:
    """Return an answer to each pull without records, with an offset to continue at."""

    def lie(request: Command, _: Command) -> Command:
        offset = int(request.ext_fields["queueOffset"])
        fields = {"suggestWhichBrokerId": "0", "minOffset": "0"}
        return request.reply(code, fields | {"nextBeginOffset": str(following(offset)), "maxOffset": str(end)})

    return lie


def test_reading_a_queue_without_records_ends_with_an_error(cluster: LiveCluster, broker: LiveBroker) -> None:
    broker.lies[PULL] = answering(ResponseCode.PULL_RETRY_IMMEDIATELY, lambda offset: offset + 1, 1 << 55)
    with Puller("group", options(cluster)) as puller:
        puller.queues("orders")
        lost: list[QueueRange] = []
        with pytest.raises(
            ProtocolError, match=f"{cluster.address}: .*expected messages, found 1001 answers in a row without"
        ):
            list(read_range(puller, QueueRange(QUEUE, 0, 1 << 55), lambda part, _: lost.append(part)))
    assert len(lost) == MAX_EMPTY_ANSWERS


@pytest.mark.parametrize(
    ("lie", "error", "message"),
    [
        (answering(ResponseCode.PULL_NOT_FOUND, lambda offset: offset, 1000), UnreachableError, "the next at 0"),
        (answering(ResponseCode.PULL_RETRY_IMMEDIATELY, lambda _: -5, 1000), UnreachableError, "the next at -5"),
        (answering(ResponseCode.SUCCESS, lambda _: 5, 1000), ProtocolError, "0 bytes of records"),
        (with_fields(nextBeginOffset=str(2**63 - 1)), ProtocolError, "offsets up to"),
        (with_fields(minOffset=str(2**60)), ProtocolError, "offsets up to"),
        (with_fields(maxOffset="9" * 5000), ProtocolError, "maxOffset: expected a whole number"),
        (without_fields("nextBeginOffset"), ProtocolError, "expected the field 'nextBeginOffset'"),
        (refusal(ResponseCode.NO_PERMISSION, "a\nb\x1b[31m"), RefusedError, r"a\\nb\\x1b\[31m"),
    ],
)
def test_a_false_answer_to_a_pull_is_an_error(
    cluster: LiveCluster, broker: LiveBroker, lie: Lie, error: type[RocketMQError], message: str
) -> None:
    broker.lies[PULL] = lie
    with Puller("group", options(cluster)) as puller:
        puller.queues("orders")
        with pytest.raises(error, match=message) as caught:
            list(read_range(puller, QueueRange(QUEUE, 0, 10), lambda *_: None, retry_seconds=0))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("following", [0, -7])
def test_a_reader_does_not_treat_missing_progress_as_the_end(
    cluster: LiveCluster, broker: LiveBroker, following: int
) -> None:
    broker.lies[PULL] = answering(ResponseCode.PULL_NOT_FOUND, lambda _: following, 10)
    with Puller("group", options(cluster)) as puller:
        puller.queues("orders")
        with pytest.raises(
            ProtocolError, match=f"expected a next queue offset after 0 in the broker's answer, found {following}"
        ):
            list(puller.read(QUEUE, 0, 10))


def test_answers_to_unknown_requests_do_not_extend_a_timeout(cluster: LiveCluster, broker: LiveBroker) -> None:
    def flood(request: Command, _: Command) -> bytes:
        return frame_with(b'{"code":0,"flag":1,"opaque":%d}' % (request.opaque + 1)) * 20_000

    broker.lies[RequestCode.GET_MAX_OFFSET] = flood
    with Puller("group", options(cluster, 1)) as puller:
        puller.queues("orders")
        with pytest.raises(UnreachableError, match="expected an answer"):
            puller.max_offset(QUEUE)
