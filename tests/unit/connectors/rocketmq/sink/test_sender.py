"""Rows sent to topics of broker_lite: their places in the topics, and the outcome of each."""

from __future__ import annotations

import datetime
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlake.connectors.rocketmq import ClientOptions, InvalidMessageError
from commitlake.connectors.rocketmq.producers import tracked_connections
from commitlake.connectors.rocketmq.sink import sender as module
from commitlake.connectors.rocketmq.sink.prepared_rows import RowSettings
from commitlake.connectors.rocketmq.sink.request_batches import BatchLimits
from commitlake.connectors.rocketmq.sink.sender import RowSender, SendSettings
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.rocketmq.sysflag import BodyCodec
from commitlake.schemas.remoting.batch import parse_batch, serialize_batch
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.frames import Command
from tests.support.live_brokers import LiveBroker, LiveCluster
from tests.support.live_reading import create_topic
from tests.support.peer import reply
from tests.support.small_stores import all_messages

SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
QUICK = SendSettings(answer_seconds=10, retry_seconds=30)
PROPERTIES = pa.map_(pa.string(), pa.string())


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveCluster]:
    monkeypatch.setattr(module, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(tracked_connections, "EXECUTING_SECONDS", 0.05)
    with LiveCluster(tmp_path) as made:
        create_topic(made.brokers["broker-a"], queues=4)
        yield made


@pytest.fixture
def broker(cluster: LiveCluster) -> LiveBroker:
    return cluster.brokers["broker-a"]


def numbered(count: int, **columns: pa.Array) -> pa.RecordBatch:
    bodies = pa.array([f"body {number}".encode() for number in range(count)])
    return pa.RecordBatch.from_pydict({"body": bodies, "topic": pa.array(["orders"] * count), **columns})


def send(cluster: LiveCluster, rows: pa.RecordBatch, settings: SendSettings = QUICK) -> list[dict[str, Any]]:
    with RowSender(ClientOptions(cluster.address), settings) as sender:
        outcomes: list[dict[str, Any]] = sender.send(rows).to_pylist()
        return outcomes


def stored(*brokers: LiveBroker, topic: str = "orders") -> dict[tuple[str, int, int], Message]:
    """Return the messages of a topic by broker, queue and offset."""
    return {
        (broker.dispatcher.broker.options.name, queue_id, message.queue_offset): message
        for broker in brokers
        for (name, queue_id), messages in all_messages(broker.store).items()
        if name == topic
        for message in messages
    }


def test_every_row_is_stored_at_the_place_in_its_outcome(cluster: LiveCluster, broker: LiveBroker) -> None:
    count = 500
    rows = numbered(
        count,
        tags=pa.array([None if number % 5 == 0 else f"tag{number % 3}" for number in range(count)]),
        keys=pa.array([None if number % 4 == 0 else [f"k{number}", "all"] for number in range(count)]),
        properties=pa.array([None if number % 7 == 0 else [("n", str(number))] for number in range(count)], PROPERTIES),
        flag=pa.array([number % 11 for number in range(count)], pa.int32()),
    )
    outcomes = send(cluster, rows, replace(QUICK, limits=BatchLimits(max_messages=30)))
    found = stored(broker)
    assert len(found) == count
    for number, (row, outcome) in enumerate(zip(rows.to_pylist(), outcomes, strict=True)):
        assert (outcome["status"], outcome["store_status"], outcome["topic"]) == ("sent", "SEND_OK", "orders")
        assert (outcome["attempts"], outcome["may_be_twice"], outcome["error"]) == (1, False, None)
        message = found[outcome["broker"], outcome["queue_id"], outcome["queue_offset"]]
        assert (message.body, message.msg_id, message.flag) == (row["body"], outcome["msg_id"], number % 11)
        assert (message.tags, message.keys) == (row["tags"], row["keys"])
        assert message.properties.get("n") == (None if number % 7 == 0 else str(number))
    assert len({message.unique_key for message in found.values()}) == count
    assert Counter(broker.requests)[RequestCode.SEND_BATCH_MESSAGE] == 17
    # By turns into the queues.
    assert {queue_id for _, queue_id, _ in found} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("limits", "requests"),
    [(BatchLimits(max_messages=10), 3), (BatchLimits(max_messages=1), 25), (BatchLimits(max_bytes=1), 25),
     (BatchLimits(max_bytes=2000), None), (BatchLimits(), 1)],
)  # fmt: skip
def test_requests_are_limited(
    cluster: LiveCluster, broker: LiveBroker, limits: BatchLimits, requests: int | None
) -> None:
    sizes: list[int] = []
    broker.interfere = lambda request: sizes.append(len(request.body)) if request.code in SENDS else None
    outcomes = send(cluster, numbered(25), replace(QUICK, limits=limits))
    assert {outcome["status"] for outcome in outcomes} == {"sent"}
    assert len(stored(broker)) == 25
    if requests is not None:
        assert len(sizes) == requests
    else:
        assert max(sizes) <= limits.max_bytes


def test_rows_with_a_target_keep_their_order(cluster: LiveCluster, broker: LiveBroker) -> None:
    second = cluster.add("broker-b")
    create_topic(second, queues=4)
    count = 200
    rows = numbered(
        count,
        target_broker=pa.array([f"broker-{'ab'[number % 2]}" for number in range(count)]),
        target_queue_id=pa.array([number % 3 for number in range(count)], pa.int32()),
    )
    busy = iter([False, True, True, False, True] * 3)
    for each in (broker, second):
        each.interfere = lambda request: (
            reply(request, ResponseCode.SYSTEM_BUSY) if request.code in SENDS and next(busy, False) else None
        )
    outcomes = send(cluster, rows, replace(QUICK, limits=BatchLimits(max_messages=7)))
    found = stored(broker, second)
    offsets: dict[tuple[str, int], int] = {}
    for number, outcome in enumerate(outcomes):
        queue = (outcome["broker"], outcome["queue_id"])
        assert queue == (f"broker-{'ab'[number % 2]}", number % 3)
        assert outcome["queue_offset"] == offsets.get(queue, 0)
        offsets[queue] = outcome["queue_offset"] + 1
        assert found[*queue, outcome["queue_offset"]].body == f"body {number}".encode()
    assert max(outcome["attempts"] for outcome in outcomes) > 1
    assert not any(outcome["may_be_twice"] for outcome in outcomes)


def test_messages_that_a_batch_cannot_hold_are_sent_alone(cluster: LiveCluster, broker: LiveBroker) -> None:
    at = datetime.datetime(2023, 11, 14, 23, 0, tzinfo=datetime.UTC)
    rows = numbered(
        6,
        delay_level=pa.array([0, 3, None, 0, 0, 0], pa.int32()),
        deliver_timestamp=pa.array([None, None, at, None, None, None], pa.timestamp("us", tz="UTC")),
    )
    outcomes = send(cluster, rows)
    assert {outcome["status"] for outcome in outcomes} == {"sent"}
    requests = Counter(broker.requests)
    assert (requests[RequestCode.SEND_MESSAGE_V2], requests[RequestCode.SEND_BATCH_MESSAGE]) in ((3, 1), (4, 0), (3, 2))
    (delayed,) = stored(broker, topic="SCHEDULE_TOPIC_XXXX").values()
    assert (delayed.properties["REAL_TOPIC"], delayed.body) == ("orders", b"body 1")
    (timed,) = stored(broker, topic="rmq_sys_wheel_timer").values()
    assert (timed.properties["REAL_TOPIC"], timed.body) == ("orders", b"body 2")


def test_stored_bodies_stay_compressed(cluster: LiveCluster, broker: LiveBroker) -> None:
    body = zlib.compress(b"long " * 50)
    rows = pa.RecordBatch.from_pydict(
        {"body": [body, b"plain"], "topic": ["orders"] * 2, "body_codec": ["zlib", "none"]}
    )
    (first, second) = send(cluster, rows)
    assert (first["status"], second["status"]) == ("invalid", "sent")
    assert "still compressed with zlib" in first["error"]
    stored_rows = replace(QUICK, rows=RowSettings(is_stored=True))
    assert {outcome["status"] for outcome in send(cluster, rows, stored_rows)} == {"sent"}
    assert sorted((message.body, message.body_codec) for message in stored(broker).values()) == sorted(
        [(body, BodyCodec.ZLIB), (b"plain", BodyCodec.NONE), (b"plain", BodyCodec.NONE)]
    )


def test_messages_that_were_read_can_be_written(cluster: LiveCluster, broker: LiveBroker) -> None:
    create_topic(broker, "copies")
    first = send(cluster, numbered(3, tags=pa.array(["a", None, "b"]), keys=pa.array([["x"], None, ["y", "z"]])))
    originals = [stored(broker)[one["broker"], one["queue_id"], one["queue_offset"]] for one in first]
    copies = pa.RecordBatch.from_pydict(
        {
            "body": [one.body for one in originals],
            "properties": pa.array([one.property_pairs for one in originals], PROPERTIES),
        }
    )
    outcomes = send(cluster, copies, replace(QUICK, rows=RowSettings(topic="copies")))
    found = stored(broker, topic="copies")
    for original, outcome in zip(originals, outcomes, strict=True):
        copy = found[outcome["broker"], outcome["queue_id"], outcome["queue_offset"]]
        assert (copy.body, copy.properties) == (original.body, original.properties)
        assert copy.unique_key == original.unique_key
        assert len(copy.property_pairs) == len(copy.properties)


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"body": b""}, "body: expected at least one byte"),
        ({"body": None}, "body: expected at least one byte"),
        ({"body": bytes(5000)}, "body: expected at most 4096 bytes, found 5000"),
        ({"topic": None}, "topic: expected a name"),
        ({"topic": "a b"}, "topic: expected only letters"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "topic: expected a topic of an application"),
        ({"properties": [("DELAY", "3")]}, "expected names that RocketMQ does not use, found DELAY"),
        ({"properties": [("n", "")]}, "properties: expected names and values"),
        ({"properties": [("n", "a\x01b")]}, "properties: expected names and values, and no 0x01"),
        ({"properties": [("n", "x" * 33_000)]}, "properties: expected at most 32767 bytes"),
        ({"tags": "a\x02"}, "expected no 0x01 or 0x02 in TAGS"),
        ({"keys": ["a b"]}, "keys: expected keys without blanks"),
        ({"keys": [""]}, "keys: expected keys without blanks"),
        ({"delay_level": 19}, "delay_level: expected 0 to 18, found 19"),
        ({"target_broker": "broker-a"}, "target: expected both target_broker and target_queue_id"),
        ({"body_codec": "rar"}, "with rar"),
    ],
)
def test_a_row_that_cannot_be_sent_is_reported_and_others_are_sent(
    cluster: LiveCluster, broker: LiveBroker, columns: dict[str, Any], error: str
) -> None:
    row: dict[str, Any] = {"body": b"x", "topic": "orders", "properties": [("n", "1")], "tags": None, "keys": None,
           "delay_level": None, "target_broker": None, "target_queue_id": None, "body_codec": None}  # fmt: skip
    schema = pa.schema([("body", pa.binary()), ("topic", pa.string()), ("properties", PROPERTIES),
                        ("tags", pa.string()), ("keys", pa.list_(pa.string())), ("delay_level", pa.int32()),
                        ("target_broker", pa.string()), ("target_queue_id", pa.int32()),
                        ("body_codec", pa.string())])  # fmt: skip
    batch = pa.RecordBatch.from_pylist([row, row | columns, row], schema)
    outcomes = send(cluster, batch, replace(QUICK, rows=RowSettings(max_body_bytes=4096)))
    assert [outcome["status"] for outcome in outcomes] == ["sent", "invalid", "sent"]
    assert error in outcomes[1]["error"]
    assert (outcomes[1]["attempts"], outcomes[1]["broker"], outcomes[1]["queue_offset"]) == (0, None, None)
    assert len(stored(broker)) == 2


def test_sliced_rows_are_read_from_their_offset(cluster: LiveCluster, broker: LiveBroker) -> None:
    properties = pa.array([[("n", str(number))] for number in range(10)], PROPERTIES)
    rows = numbered(10, properties=properties, keys=pa.array([[f"k{number}"] for number in range(10)]))
    assert len(send(cluster, rows.slice(3, 4))) == 4
    assert sorted((one.body, one.properties["n"], one.keys) for one in stored(broker).values()) == [
        (f"body {number}".encode(), str(number), [f"k{number}"]) for number in range(3, 7)
    ]
    assert send(cluster, rows.slice(3, 0)) == []


def test_a_column_that_is_missing_or_of_a_wrong_type_is_an_error(cluster: LiveCluster) -> None:
    with pytest.raises(InvalidMessageError, match="the column topic is missing, found body"):
        send(cluster, numbered(1).select(["body"]))
    with pytest.raises(InvalidMessageError, match=r"column keys: expected list.*, found string"):
        send(cluster, numbered(1, keys=pa.array(["a"])))


def test_a_message_that_the_broker_refuses_is_found_in_its_batch(cluster: LiveCluster, broker: LiveBroker) -> None:
    # More than the broker takes, and less than the client would refuse; so is the whole batch.
    bodies = [bytes(20_000) if number == 13 else b"small" * 10 for number in range(40)]
    rows = pa.RecordBatch.from_pydict(
        {"body": bodies, "topic": ["orders"] * 40, "target_broker": ["broker-a"] * 40,
         "target_queue_id": pa.array([1] * 40, pa.int32())}
    )  # fmt: skip
    outcomes = send(cluster, rows)
    assert [number for number, one in enumerate(outcomes) if one["status"] != "sent"] == [13]
    assert (outcomes[13]["status"], outcomes[13]["topic"]) == ("refused", "orders")
    assert "MESSAGE_ILLEGAL" in outcomes[13]["error"]
    offsets = [one["queue_offset"] for one in outcomes if one["status"] == "sent"]
    assert offsets == list(range(39))
    assert len(stored(broker)) == 39


def losing(broker: LiveBroker, stored_rows: int | None = None) -> None:
    """Let a broker lose its next answer to a send, and execute only that."""
    lost = iter([True])

    def lose_answer(request: Command) -> bytes | None:
        if request.code not in SENDS or not next(lost, False):
            return None
        interfere, broker.interfere = broker.interfere, lambda _: None
        if stored_rows is None:
            broker.answer_now(request)
        elif stored_rows:
            items = parse_batch(request.body)[:stored_rows]
            broker.answer_now(replace(request, body=serialize_batch(items)))
        broker.interfere = interfere
        return b""

    broker.interfere = lose_answer


@pytest.mark.parametrize(("stored_rows", "attempts"), [(None, {1}), (2, {1, 2}), (0, {2})])
def test_messages_with_lost_answers_are_looked_for_and_only_the_others_are_sent_again(
    cluster: LiveCluster, broker: LiveBroker, stored_rows: int | None, attempts: set[int]
) -> None:
    losing(broker, stored_rows)
    outcomes = send(cluster, numbered(5), replace(QUICK, answer_seconds=0.5))
    assert {(one["status"], one["may_be_twice"]) for one in outcomes} == {("sent", False)}
    assert {one["attempts"] for one in outcomes} == attempts
    found = stored(broker)
    assert len(found) == 5
    for number, one in enumerate(outcomes):
        message = found[one["broker"], one["queue_id"], one["queue_offset"]]
        assert (message.body, message.msg_id) == (f"body {number}".encode(), one["msg_id"])


@pytest.mark.parametrize("code", [RequestCode.GET_PRODUCER_CONNECTION_LIST, RequestCode.GET_MAX_OFFSET])
def test_messages_that_cannot_be_looked_for_are_sent_again_and_marked(
    cluster: LiveCluster, broker: LiveBroker, code: RequestCode
) -> None:
    losing(broker)
    lose = broker.interfere
    broker.interfere = lambda request: (
        reply(request, ResponseCode.NO_PERMISSION, remark="no") if request.code == code else lose(request)
    )
    outcomes = send(cluster, numbered(5), replace(QUICK, answer_seconds=0.5))
    assert {(one["status"], one["attempts"], one["may_be_twice"]) for one in outcomes} == {("sent", 2, True)}
    assert sorted(Counter(one.unique_key for one in stored(broker).values()).values()) == [2] * 5


def test_a_delayed_message_with_a_lost_answer_is_sent_again_and_marked(
    cluster: LiveCluster, broker: LiveBroker
) -> None:
    losing(broker)
    rows = numbered(1, delay_level=pa.array([1], pa.int32()))
    (outcome,) = send(cluster, rows, replace(QUICK, answer_seconds=0.5))
    assert (outcome["status"], outcome["attempts"], outcome["may_be_twice"]) == ("sent", 2, True)


@pytest.mark.parametrize(("ids", "expected"), [("ONE", ["ONE"] * 3), ("ONE,TWO", [None] * 3)])
def test_a_stored_batch_with_other_ids_is_not_sent_again(
    cluster: LiveCluster, broker: LiveBroker, ids: str, expected: list[str | None]
) -> None:
    broker.interfere = lambda request: (
        reply(request, msgId=ids, queueId=request.ext_fields["e"], queueOffset="5") if request.code in SENDS else None
    )
    outcomes = send(cluster, numbered(3))
    assert [(one["status"], one["attempts"], one["queue_offset"]) for one in outcomes] == [
        ("sent", 1, 5), ("sent", 1, 6), ("sent", 1, 7),
    ]  # fmt: skip
    assert [one["msg_id"] for one in outcomes] == expected


def test_a_broker_that_refuses_is_avoided(cluster: LiveCluster, broker: LiveBroker) -> None:
    second = cluster.add("broker-b")
    create_topic(second)
    broker.interfere = lambda request: (
        reply(request, ResponseCode.SERVICE_NOT_AVAILABLE, remark="disk full") if request.code in SENDS else None
    )
    outcomes = send(cluster, numbered(50), replace(QUICK, limits=BatchLimits(max_messages=5)))
    assert {(one["status"], one["broker"]) for one in outcomes} == {("sent", "broker-b")}
    assert len(stored(second)) == 50


def test_rows_after_a_failed_one_in_its_queue_are_skipped(cluster: LiveCluster, broker: LiveBroker) -> None:
    rows = numbered(
        30, target_broker=pa.array(["broker-a"] * 30), target_queue_id=pa.array([n % 2 for n in range(30)], pa.int32())
    )
    broker.interfere = lambda request: (
        reply(request, ResponseCode.SYSTEM_ERROR, remark="no")
        if request.code in SENDS and b"body 10" in request.body
        else None
    )
    outcomes = send(cluster, rows, replace(QUICK, limits=BatchLimits(max_messages=5), max_in_flight=2))
    statuses = {queue: [one["status"] for one in outcomes[queue::2]] for queue in (0, 1)}
    assert statuses == {0: ["sent"] * 5 + ["refused"] * 5 + ["skipped"] * 5, 1: ["sent"] * 15}
    assert "SYSTEM_ERROR (1): no" in outcomes[10]["error"]
    assert outcomes[20]["error"] == "an earlier row of this queue could not be sent"
    assert outcomes[10]["attempts"] == module.MAX_REFUSALS + 1


@pytest.mark.parametrize(
    ("target", "error"),
    [(("payments", None, None), "payments"), (("orders", "broker-z", 0), "queue 0 of broker-z: expected one of the"),
     (("orders", "broker-a", 9), "queue 9 of broker-a")],
)  # fmt: skip
def test_a_missing_target_is_reported(
    cluster: LiveCluster, broker: LiveBroker, target: tuple[str, str | None, int | None], error: str
) -> None:
    broker.dispatcher.broker.topics.remove("TBW102")
    rows = pa.RecordBatch.from_pydict(
        {"body": [b"x"], "topic": [target[0]], "target_broker": pa.array([target[1]], pa.string()),
         "target_queue_id": pa.array([target[2]], pa.int32())}
    )  # fmt: skip
    (outcome,) = send(cluster, rows)
    assert (outcome["status"], outcome["attempts"]) == ("failed", 0)
    assert error in outcome["error"]


def test_no_more_requests_are_in_flight_than_allowed(cluster: LiveCluster, broker: LiveBroker) -> None:
    with RowSender(
        ClientOptions(cluster.address), replace(QUICK, limits=BatchLimits(max_messages=1), max_in_flight=3)
    ) as it:
        seen: list[int] = []
        start = it.producer.start_encoded_message

        def count(*arguments: Any) -> Any:
            seen.append(len(it.producer._under_way))
            return start(*arguments)

        it.producer.start_encoded_message = count  # type: ignore[method-assign,assignment]
        assert it.send(numbered(40)).num_rows == 40
    assert max(seen) <= 2
