"""The puller against real brokers."""

from __future__ import annotations

import threading

import pytest

from commitlake.connectors.rocketmq import OutgoingMessage, Producer, Puller, PullStatus, RefusedError
from tests.support.topic_reading import read_all
from tests.support.waiting import let_pass

# Both have the same hash, as Java computes it.
TAG, TWIN = "Aa", "BB"


@pytest.mark.each_version
def test_tags_are_filtered_by_name_not_by_hash(producer: Producer, puller: Puller, topic: str) -> None:
    for tag in (TAG, TWIN, "other", None):
        producer.send(OutgoingMessage(topic, b"x", tags=tag))
    assert [message.tags for message in read_all(puller, topic, 4, TAG)] == [TAG]
    assert sorted(str(message.tags) for message in read_all(puller, topic, 4, f"{TWIN} || other")) == [TWIN, "other"]
    assert len(read_all(puller, topic, 4)) == 4


def test_sql_filters_by_properties(producer: Producer, puller: Puller, topic: str) -> None:
    queue = producer.queues(topic)[0]
    for number in range(6):
        message = OutgoingMessage(topic, b"x", keys=(f"k{number}",), properties={"price": str(number)})
        producer.send(message, queue=queue)
    read_all(puller, topic, 6)
    result = puller.pull(queue, 0, expression="price > 2 AND price <> 4", is_sql=True)
    assert [message.keys for message in result.messages] == [["k3"], ["k5"]]
    # Asked for a pull alone, the broker would give every message.
    with pytest.raises(RefusedError, match="SUBSCRIPTION_PARSE_FAILED"):
        puller.pull(queue, 0, expression="price >", is_sql=True)


def test_a_pull_waits_for_a_message(producer: Producer, puller: Puller, topic: str) -> None:
    queue = producer.send(OutgoingMessage(topic, b"first")).queue
    read_all(puller, topic, 1)
    later = threading.Timer(1.0, lambda: producer.send(OutgoingMessage(topic, b"second"), queue=queue))
    later.start()
    result = puller.pull(queue, 1, wait_seconds=20)
    later.join()
    assert (result.status, [message.body for message in result.messages]) == (PullStatus.FOUND, [b"second"])
    assert puller.pull(queue, 2).status is PullStatus.NO_NEW
    assert puller.pull(queue, 2, wait_seconds=1).status is PullStatus.NO_NEW


def test_a_pull_beyond_the_queue_returns_the_valid_offset(producer: Producer, puller: Puller, topic: str) -> None:
    queue = producer.send(OutgoingMessage(topic, b"x")).queue
    read_all(puller, topic, 1)
    result = puller.pull(queue, 99)
    assert (result.status, result.next_offset, result.messages) == (PullStatus.OFFSET_ILLEGAL, 1, [])


def test_queues_have_their_offsets(producer: Producer, puller: Puller, topic: str) -> None:
    queue = producer.queues(topic)[1]
    for _ in range(3):
        producer.send(OutgoingMessage(topic, b"x"), queue=queue)
        let_pass(0.05, "the messages have different times")
    stored = read_all(puller, topic, 3)
    assert (puller.min_offset(queue), puller.max_offset(queue)) == (0, 3)
    times = [message.store_timestamp for message in stored]
    assert puller.offsets.earliest_store_time_ms(queue) == times[0]
    assert [puller.offsets.search_by_time(queue, at) for at in (0, times[1], times[2])] == [0, 1, 2]
    # For a time after the last message, brokers 4.9 return that message's offset, and 5.x the next one.
    assert puller.offsets.search_by_time(queue, times[2] + 1000) in (2, 3)
    assert [message.queue_offset for message in puller.read(queue, 1, 2)] == [1]


def test_a_groups_offset_is_kept(producer: Producer, puller: Puller, topic: str) -> None:
    queue = producer.send(OutgoingMessage(topic, b"x")).queue
    puller.pull(queue, 0)  # makes the group
    # In brokers 4.9 a group begins at 0 while the queue's first message is still in memory.
    assert puller.committed_offset(queue) in (None, 0)
    puller.commit_offset(queue, 1)
    assert puller.committed_offset(queue) == 1


@pytest.mark.each_version
def test_many_messages_take_many_pulls(producer: Producer, puller: Puller, topic: str) -> None:
    queue = producer.queues(topic)[0]
    sends = [producer.send_async(OutgoingMessage(topic, b"x" * 3000), queue=queue) for _ in range(300)]
    offsets = sorted(send.result().queue_offset for send in sends)
    found = read_all(puller, topic, 300)
    assert [message.queue_offset for message in found] == offsets == list(range(300))
