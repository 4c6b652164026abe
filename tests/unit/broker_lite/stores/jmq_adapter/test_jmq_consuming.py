"""RocketMQ's consumers over a journal: progress and consume records, retries after 3^n seconds, dead letters."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.broker_lite.stores.jmq_adapter import JmqStore
from commitlake.broker_lite.stores.jmq_adapter.topics_and_offsets import RECORDS_PER_ANSWER
from commitlake.schemas.layouts.jmq.consume_records import DeliveryOutcome
from commitlake.schemas.layouts.jmq.journal import HEAD
from commitlake.schemas.layouts.jmq.offset_json import ConsumedQueue
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from tests.support.brokers import PRODUCER_HOST, Peer, pull_fields, records, send_fields
from tests.support.jmq_brokers import (
    SECOND,
    advance,
    commit,
    consumptions,
    open_jmq_broker,
    outcomes,
    pull,
    send,
    send_back,
)
from tests.support.small_stores import Clock

RETRIES, DEAD = "%RETRY%consumers", "%DLQ%consumers"
DONE, FAILED, GIVEN_UP = DeliveryOutcome.CONSUMED, DeliveryOutcome.FAILED, DeliveryOutcome.GIVEN_UP
PULL = RequestCode.PULL_MESSAGE
MAY_WAIT = 2 | 4


@pytest.fixture
def consumer(peer: Peer) -> Peer:
    """A client whose group has a retry topic."""
    peer.heartbeat("client", "consumers", "orders")
    return peer


def retried(consumer: Peer, offset: int = 0) -> Message:
    """Return the only retry."""
    (found,) = pull(consumer, RETRIES, offset)
    return found


def test_acknowledged_messages_are_recorded_once(consumer: Peer, store: JmqStore, clock: Clock) -> None:
    for number in range(5):
        send(consumer, number)
    pull(consumer, "orders")
    commit(consumer, "orders", 2)
    clock.now_ms += 7
    commit(consumer, "orders", 2)
    commit(consumer, "orders", 5)
    assert outcomes(store) == [(number, DONE, 1) for number in range(5)]
    first, last = consumptions(store)[0], consumptions(store)[-1]
    assert (first.app, first.client_address, last.consume_timestamp) == ("consumers", PRODUCER_HOST, clock.now_ms)
    assert last.journal_offset == store.journal.get("orders", 0, 4).messages[0].journal_offset
    assert store.journal.offsets.get_or_queue_start(ConsumedQueue("orders", "consumers", 0)).ack == 5


def test_messages_before_the_first_pull_are_not_recorded_as_consumed(consumer: Peer, store: JmqStore) -> None:
    for number in range(5):
        send(consumer, number)
    pull(consumer, "orders", 3)
    commit(consumer, "orders", 4)
    assert outcomes(store) == [(3, DONE, 1)]


def test_a_pull_without_a_commit_sets_no_offset(consumer: Peer, store: JmqStore) -> None:
    send(consumer)
    pull(consumer, "orders", group="watchers")
    assert store.config.consumer_offsets.get("orders", "watchers", 0) is None
    consumer.dispatcher.broker.groups.find_or_create("others")
    commit(consumer, "orders", 1, group="others")
    assert outcomes(store) == []


def test_a_commit_beyond_the_queue_is_limited_to_its_end(consumer: Peer, store: JmqStore) -> None:
    send(consumer)
    commit(consumer, "orders", 1 << 40)
    assert store.config.consumer_offsets.get("orders", "consumers", 0) == 1


def test_messages_after_a_reset_are_consumed_again(consumer: Peer, store: JmqStore) -> None:
    for number in range(3):
        send(consumer, number)
    pull(consumer, "orders")
    commit(consumer, "orders", 3)
    reset = {"topic": "orders", "group": "consumers", "timestamp": 0, "isForce": True}
    consumer.ask_later(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
    consumer.ask_later(PULL, pull_fields("orders"))  # is sent there
    pull(consumer, "orders")
    commit(consumer, "orders", 2)
    assert outcomes(store) == [(0, DONE, 1), (1, DONE, 1), (2, DONE, 1), (0, DONE, 1), (1, DONE, 1)]


def test_many_consume_records_are_written_in_several_turns(
    consumer: Peer, dispatcher: Dispatcher, store: JmqStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commitlake.broker_lite.stores.jmq_adapter.topics_and_offsets.RECORDS_PER_ANSWER", 4)
    for number in range(10):
        send(consumer, number)
    pull(consumer, "orders")
    commit(consumer, "orders", 10)
    assert len(consumptions(store)) == 4
    assert store.config.consumer_offsets.get("orders", "consumers", 0) == 10
    store.deliver_due(clock.now_ms, 3)
    assert len(consumptions(store)) == 7
    advance(dispatcher, clock, SECOND)
    assert outcomes(store) == [(number, DONE, 1) for number in range(10)]
    assert RECORDS_PER_ANSWER == 1000


def test_closing_writes_the_remaining_consume_records(
    root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commitlake.broker_lite.stores.jmq_adapter.topics_and_offsets.RECORDS_PER_ANSWER", 1)
    dispatcher = open_jmq_broker(root, clock)
    with dispatcher.broker.store:
        peer = Peer(dispatcher)
        for number in range(3):
            send(peer, number)
        pull(peer, "orders")
        commit(peer, "orders", 3)
    again = open_jmq_broker(root, clock)
    with again.broker.store as store:
        assert isinstance(store, JmqStore)
        assert len(outcomes(store)) == 3


def test_failed_messages_are_retried_after_powers_of_three_seconds(
    consumer: Peer, dispatcher: Dispatcher, store: JmqStore, clock: Clock
) -> None:
    send(consumer, 1)
    (message,) = pull(consumer, "orders")
    for attempt, delay in enumerate((1, 3, 9, 27), 1):
        assert send_back(consumer, message).code == ResponseCode.SUCCESS
        advance(dispatcher, clock, delay * SECOND - 1)
        assert pull(consumer, RETRIES, attempt - 1) == []
        advance(dispatcher, clock, 1)
        message = retried(consumer, attempt - 1)
        assert (message.queue_offset, message.reconsume_times) == (attempt - 1, attempt)
    assert outcomes(store) == [(0, FAILED, attempt) for attempt in range(1, 5)]
    commit(consumer, RETRIES, 4)
    assert outcomes(store)[-1] == (0, DONE, 5)
    commit(consumer, "orders", 1)
    assert len(outcomes(store)) == 5
    assert pull(consumer, RETRIES, 4) == []


def test_a_retry_is_the_message_in_the_retry_topic_of_the_group(
    consumer: Peer, dispatcher: Dispatcher, clock: Clock
) -> None:
    send(consumer, 1, h=9)
    (message,) = pull(consumer, "orders")
    send_back(consumer, message)
    advance(dispatcher, clock, SECOND)
    found = retried(consumer)
    assert (found.topic, found.queue_id, found.body, found.flag) == (RETRIES, 0, b"body 1", 9)
    assert found.physical_offset == message.physical_offset
    assert found.properties == message.properties | {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": message.msg_id}


@pytest.mark.parametrize(("fields", "retries"), [({"maxReconsumeTimes": 2}, 2), ({"maxReconsumeTimes": 0}, 0),
                                                 ({"delayLevel": -1}, 0)])  # fmt: skip
def test_a_message_that_fails_too_often_becomes_a_dead_letter(
    consumer: Peer, dispatcher: Dispatcher, store: JmqStore, clock: Clock, fields: dict[str, object], retries: int
) -> None:
    send(consumer, 1)
    (message,) = pull(consumer, "orders")
    for retry in range(retries):
        send_back(consumer, message, **fields)
        advance(dispatcher, clock, 3**retry * SECOND)
        message = retried(consumer, retry)
    assert dispatcher.broker.topics.find(DEAD) is None
    send_back(consumer, message, **fields)
    (dead,) = pull(consumer, DEAD, group="undertaker")
    assert (dead.topic, dead.queue_offset, dead.reconsume_times) == (DEAD, 0, retries + 1)
    assert (dead.body, dead.properties["RETRY_TOPIC"]) == (b"body 1", "orders")
    assert outcomes(store)[-1] == (0, GIVEN_UP, retries + 1)
    # Sent back twice, it is still one dead letter.
    send_back(consumer, message, **fields)
    advance(dispatcher, clock, 100 * SECOND)
    assert store.max_offset(DEAD, 0) == 1
    assert pull(consumer, RETRIES, retries) == []
    commit(consumer, DEAD, 1, group="undertaker")
    assert consumptions(store)[-1].app == "undertaker"


def test_a_message_sent_back_twice_is_retried_once(
    consumer: Peer, dispatcher: Dispatcher, store: JmqStore, clock: Clock
) -> None:
    send(consumer, 1)
    (message,) = pull(consumer, "orders")
    send_back(consumer, message)
    send_back(consumer, message)
    advance(dispatcher, clock, 100 * SECOND)
    assert retried(consumer).reconsume_times == 1
    assert outcomes(store) == [(0, FAILED, 1)]


def test_other_messages_of_a_pull_with_a_failure_are_consumed(consumer: Peer, store: JmqStore) -> None:
    for number in range(3):
        send(consumer, number)
    send_back(consumer, pull(consumer, "orders")[1])
    commit(consumer, "orders", 3)
    assert sorted(outcomes(store)) == [(0, DONE, 1), (1, FAILED, 1), (2, DONE, 1)]


def test_a_missing_message_cannot_be_sent_back(consumer: Peer) -> None:
    send(consumer, 1)
    (message,) = pull(consumer, "orders")
    answer = send_back(consumer, message, offset=message.physical_offset + 1)
    assert (answer.code, "there is no message to send back" in str(answer.remark)) == (ResponseCode.SYSTEM_ERROR, True)


def test_pulls_wait_for_retries(consumer: Peer, dispatcher: Dispatcher, clock: Clock) -> None:
    send(consumer, 1)
    (message,) = pull(consumer, "orders")
    assert consumer.ask_later(PULL, pull_fields(RETRIES, sysFlag=MAY_WAIT)) == []
    send_back(consumer, message)
    before = len(consumer.sent)
    advance(dispatcher, clock, SECOND)
    (answer,) = consumer.sent[before:]
    assert [found.body for found in records(answer.body)] == [b"body 1"]


def test_retries_and_their_numbers_survive_a_restart(root: Path, clock: Clock) -> None:
    dispatcher = open_jmq_broker(root, clock)
    with dispatcher.broker.store:
        peer = Peer(dispatcher)
        peer.heartbeat("client", "consumers", "orders")
        for number in range(3):
            send(peer, number)
        for message in pull(peer, "orders"):
            send_back(peer, message)
        advance(dispatcher, clock, SECOND)
        first = pull(peer, RETRIES)
        commit(peer, RETRIES, 1)
    again = open_jmq_broker(root, clock)
    with again.broker.store as store:
        assert isinstance(store, JmqStore)
        peer = Peer(again)
        asked = {"consumerGroup": "consumers", "topic": RETRIES, "queueId": 0}
        assert peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked).ext_fields["offset"] == "1"
        assert pull(peer, RETRIES, 1) == first[1:]
        commit(peer, RETRIES, 3)
        assert [one for one in outcomes(store) if one[1] is DONE] == [(0, DONE, 2), (1, DONE, 2), (2, DONE, 2)]
        assert store.max_offset(RETRIES, 0) == 3


def test_pulls_of_retries_have_limits(consumer: Peer, dispatcher: Dispatcher, clock: Clock) -> None:
    for number in range(4):
        send(consumer, number)
    for message in pull(consumer, "orders"):
        send_back(consumer, message)
    advance(dispatcher, clock, SECOND)
    few = consumer.ask(PULL, pull_fields(RETRIES, maxMsgNums=3))
    assert (len(records(few.body)), few.ext_fields["nextBeginOffset"]) == (3, "3")
    small = consumer.ask(PULL, pull_fields(RETRIES, 0, 1, maxMsgBytes=1))
    assert (len(records(small.body)), small.ext_fields["nextBeginOffset"]) == (1, "2")
    assert consumer.ask(PULL, pull_fields(RETRIES, 0, 4)).code == ResponseCode.PULL_NOT_FOUND


def test_an_administrator_cannot_move_retries(consumer: Peer) -> None:
    reset = {"topic": RETRIES, "group": "consumers", "timestamp": 0, "isForce": True}
    answer = consumer.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_retries_of_a_deleted_group_are_deleted(
    consumer: Peer, dispatcher: Dispatcher, store: JmqStore, clock: Clock
) -> None:
    send(consumer, 1)
    send_back(consumer, pull(consumer, "orders")[0])
    gone = {"groupName": "consumers", "cleanOffset": True}
    assert consumer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, gone).code == ResponseCode.SUCCESS
    advance(dispatcher, clock, 100 * SECOND)
    assert store.max_offset(RETRIES, 0) == 0


def test_a_topic_that_is_created_again_continues_its_offsets(consumer: Peer, store: JmqStore) -> None:
    send(consumer, 1)
    assert consumer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"}).code == ResponseCode.SUCCESS
    assert send(consumer, 2).ext_fields["queueOffset"] == "1"


def test_consumers_continue_after_damage(consumer: Peer, store: JmqStore) -> None:
    for number in range(4):
        send(consumer, number)
    for number in (0, 2):
        offset = store.journal.get("orders", 0, number).messages[0].journal_offset
        memory, _ = store.journal._files.journal.files.locate(0)
        memory[offset + HEAD.size + 4] ^= 0xFF
    first = consumer.ask(PULL, pull_fields("orders"))
    assert [found.body for found in records(first.body)] == [b"body 1"]
    assert first.ext_fields["nextBeginOffset"] == "2"
    assert [found.body for found in pull(consumer, "orders", 2)] == [b"body 3"]


@pytest.mark.parametrize(
    ("expression", "kind", "numbers"), [("tag1", "TAG", [1, 4]), ("tag0 || tag2", "TAG", [0, 2, 3, 5]),
                                        ("KEYS = 'order-4'", "SQL92", [4]), ("other", "TAG", [])],
)  # fmt: skip
def test_a_filter_selects_messages(peer: Peer, expression: str, kind: str, numbers: list[int]) -> None:
    for number in range(6):
        send(peer, number)
    answer = peer.ask(PULL, pull_fields("orders", subscription=expression, expressionType=kind))
    assert [found.queue_offset for found in records(answer.body)] == numbers
    assert answer.ext_fields["nextBeginOffset"] == "6"


def test_a_filter_with_many_searches_selects_messages(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commitlake.schemas.remoting.sql92.SEARCHES_AT_ONCE", 1)
    for number in range(6):
        send(peer, number)
    expression = " OR ".join([*(f"KEYS CONTAINS 'other-{number}'" for number in range(9)), "KEYS CONTAINS 'order-4'"])
    (answer,) = peer.ask_later(PULL, pull_fields("orders", subscription=expression, expressionType="SQL92"))
    assert [found.queue_offset for found in records(answer.body)] == [4]


def test_a_waiting_pull_is_answered_by_a_message_that_matches_its_filter(peer: Peer) -> None:
    send(peer, 0)
    assert peer.ask_later(PULL, pull_fields("orders", 0, 1, sysFlag=MAY_WAIT, subscription="tag2")) == []
    send(peer, 1)
    assert not peer.sent[-1].body
    fields = send_fields("orders", {"UNIQ_KEY": "U2", "TAGS": "tag2"})
    answers = peer.ask_later(RequestCode.SEND_MESSAGE_V2, fields, b"body 2")
    assert [records(answer.body)[0].body for answer in answers if answer.body] == [b"body 2"]
