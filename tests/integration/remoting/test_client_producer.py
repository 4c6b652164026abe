"""The producer against real brokers: sent messages are in the log unchanged."""

from __future__ import annotations

import hashlib
import os
import threading
from concurrent.futures import Future

import pytest

from commitlake.connectors.reading.decoding.bodies import decompress_by_sys_flag
from commitlake.connectors.rocketmq import (
    ClientOptions,
    InvalidMessageError,
    NoRouteError,
    OutgoingMessage,
    Producer,
    ProducerOptions,
    Puller,
    RefusedError,
    SendResult,
    SendStatus,
)
from commitlake.schemas.layouts.rocketmq.sysflag import BodyCodec
from commitlake.schemas.remoting.codes import ResponseCode
from commitlake.schemas.remoting.frames import SerializeType
from tests.servers.java_programs import consume_all
from tests.servers.rocketmq import RocketMQ
from tests.support.topic_reading import read_all

TEXT = b"a body that repeats itself, " * 400


@pytest.mark.each_version
def test_a_message_is_stored_unchanged(producer: Producer, puller: Puller, topic: str) -> None:
    message = OutgoingMessage(
        topic, b"hello", tags="paid", keys=("order-1", "北京"), properties={"city": "北京市", "e": "🚀"}, flag=7
    )
    result = producer.send(message)
    assert result.status is SendStatus.SEND_OK
    (stored,) = read_all(puller, topic, 1)
    assert (stored.body, stored.flag, stored.tags, stored.keys) == (b"hello", 7, "paid", ["order-1", "北京"])
    assert stored.properties.items() >= message.properties.items()
    assert (stored.msg_id, stored.unique_key) == (result.offset_msg_id, result.unique_key)
    assert (stored.queue_id, stored.queue_offset) == (result.queue.queue_id, result.queue_offset)


@pytest.mark.each_version
def test_messages_are_sent_to_the_queues_in_turn(producer: Producer, topic: str) -> None:
    results = [producer.send(OutgoingMessage(topic, b"x")) for _ in range(8)]
    assert sorted(result.queue.queue_id for result in results) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_queue_can_be_chosen(producer: Producer, topic: str) -> None:
    queue = producer.queues(topic)[2]
    results = [producer.send(OutgoingMessage(topic, b"x"), queue=queue) for _ in range(3)]
    assert [(result.queue, result.queue_offset) for result in results] == [(queue, 0), (queue, 1), (queue, 2)]


def test_asynchronous_sends_all_arrive(producer: Producer, puller: Puller, topic: str) -> None:
    called = threading.Semaphore(0)
    seen: list[Future[SendResult]] = []

    def callback(done: Future[SendResult]) -> None:
        seen.append(done)
        called.release()

    results = [producer.send_async(OutgoingMessage(topic, b"%d" % number), callback) for number in range(500)]
    keys = {result.result().unique_key for result in results}
    for _ in results:
        assert called.acquire(timeout=30)
    assert {done.result().unique_key for done in seen} == keys
    assert {message.unique_key for message in read_all(puller, topic, 500)} == keys
    assert len(keys) == 500


def test_closing_waits_for_sends_in_progress(options: ClientOptions, puller: Puller, topic: str) -> None:
    with Producer("ClientClosing", options) as producer:
        results = [producer.send_async(OutgoingMessage(topic, b"x")) for _ in range(100)]
    assert all(result.result(0).status is SendStatus.SEND_OK for result in results)
    assert len(read_all(puller, topic, 100)) == 100


def test_one_way_messages_arrive(producer: Producer, puller: Puller, topic: str) -> None:
    producer.send(OutgoingMessage(topic, b"makes the topic"))
    keys = {producer.send_one_way(OutgoingMessage(topic, b"x")) for _ in range(20)}
    found = read_all(puller, topic, 21)
    assert {message.unique_key for message in found} >= keys


@pytest.mark.each_version
def test_a_batch_is_one_run_in_one_queue(producer: Producer, puller: Puller, topic: str) -> None:
    messages = [OutgoingMessage(topic, b"%d" % number, tags="t", keys=(f"k{number}",)) for number in range(10)]
    results = producer.send_batch(messages)
    assert len({result.queue for result in results}) == 1
    assert [result.queue_offset for result in results] == list(range(10))
    stored = read_all(puller, topic, 10)
    assert [message.body for message in stored] == [message.body for message in messages]
    assert [message.keys for message in stored] == [[f"k{number}"] for number in range(10)]
    assert [(message.unique_key, message.msg_id) for message in stored] == [
        (result.unique_key, result.offset_msg_id) for result in results
    ]


@pytest.mark.some_cases(2)
@pytest.mark.parametrize("codec", ["zlib", "lz4", "zstd", "none"])
def test_large_bodies_are_compressed(
    servers: RocketMQ, options: ClientOptions, puller: Puller, topic: str, codec: str
) -> None:
    with Producer("ClientCodecs", options, ProducerOptions(compression=codec)) as producer:
        producer.send(OutgoingMessage(topic, TEXT))
        producer.send(OutgoingMessage(topic, TEXT[:4095]))
    large, small = sorted(read_all(puller, topic, 2), key=lambda message: message.physical_offset)
    assert large.body_codec == codec
    assert decompress_by_sys_flag(large.body, large.sys_flag) == TEXT
    assert (small.body_codec, small.body) == (BodyCodec.NONE, TEXT[:4095])
    # RocketMQ's own client reads them, too.
    digests = {hashlib.sha256(body).hexdigest() for body in (TEXT, TEXT[:4095])}
    assert {row["body_sha256"] for row in consume_all(servers, topic)} == digests


def test_delayed_messages_are_delivered_later(producer: Producer, puller: Puller, topic: str) -> None:
    producer.send(OutgoingMessage(topic, b"now"))
    result = producer.send(OutgoingMessage(topic, b"later", delay_level=2))
    assert [message.body for message in read_all(puller, topic, 1)] == [b"now"]
    found = read_all(puller, topic, 2)
    (later,) = [message for message in found if message.body == b"later"]
    assert later.unique_key == result.unique_key
    assert later.store_timestamp - later.born_timestamp >= 1900


def test_binary_headers_are_understood(options: ClientOptions, puller: Puller, topic: str) -> None:
    binary = ClientOptions(options.name_servers, serialize_type=SerializeType.ROCKETMQ)
    with Producer("ClientBinary", binary) as producer:
        result = producer.send(OutgoingMessage(topic, b"x", properties={"城市": "北京市"}))
    (stored,) = read_all(puller, topic, 1)
    assert (stored.unique_key, stored.properties["城市"]) == (result.unique_key, "北京市")


def test_a_send_that_the_broker_refuses_names_its_response_code(options: ClientOptions, topic: str) -> None:
    # More than this broker's own limit, and not compressible.
    with (
        Producer("ClientRefused", options) as producer,
        pytest.raises(RefusedError, match=r"answered MESSAGE_ILLEGAL \(13\)") as caught,
    ):
        producer.send(OutgoingMessage(topic, os.urandom(200 << 10)))
    assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL


def test_an_invalid_message_is_refused_before_it_is_sent(producer: Producer) -> None:
    with pytest.raises(InvalidMessageError, match="body"):
        producer.send(OutgoingMessage("T", b""))


def test_an_unknown_topic_has_no_route(puller: Puller, topic: str) -> None:
    with pytest.raises(NoRouteError, match="expected a topic known to the name servers"):
        puller.queues(topic)
