"""Transactions against real brokers: committed messages are delivered, whether or not the broker checks first.

This file runs last in its folder, because a broker that has had transactions keeps a processor busy.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from commitlake.connectors.rocketmq import (
    Admin,
    ClientOptions,
    OutgoingMessage,
    Puller,
    RefusedError,
)
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from tests.support.topic_reading import read_all, wait_for
from tests.support.transaction_producers import Decision, TransactionProducer
from tests.support.waiting import let_pass


class Shop:
    """Decisions on transactions by key; a missing key means unknown."""

    def __init__(self) -> None:
        self.decisions: dict[str, Decision] = {}
        self.asked: list[str] = []

    def check(self, message: Message) -> Decision:
        """Return the decision when the broker checks a transaction."""
        assert message.keys is not None
        self.asked.append(message.keys[0])
        return self.decisions.get(message.keys[0], Decision.UNKNOWN)


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def producer(options: ClientOptions, shop: Shop) -> Iterator[TransactionProducer]:
    with TransactionProducer("ClientTransactions", options, shop.check) as made:
        yield made


def test_only_committed_messages_are_delivered(producer: TransactionProducer, puller: Puller, topic: str) -> None:
    committed = producer.send_in_transaction(OutgoingMessage(topic, b"yes"), lambda _: Decision.COMMIT)
    rolled_back = producer.send_in_transaction(OutgoingMessage(topic, b"no"), lambda _: Decision.ROLLBACK)
    assert (committed.decision, rolled_back.decision) == (Decision.COMMIT, Decision.ROLLBACK)
    read_all(puller, topic, 1)
    let_pass(0.5, "what was rolled back does not come")
    found = read_all(puller, topic, 1)
    assert [(message.unique_key, message.body) for message in found] == [(committed.sent.unique_key, b"yes")]


def test_the_broker_checks_a_transaction_without_a_decision(
    producer: TransactionProducer, puller: Puller, shop: Shop, topic: str
) -> None:
    def fail(message: OutgoingMessage) -> Decision:
        raise RuntimeError("the database is away")

    unknown = producer.send_in_transaction(OutgoingMessage(topic, b"late", keys=("order-1",)), fail)
    assert unknown.decision is Decision.UNKNOWN
    assert isinstance(unknown.error, RuntimeError)
    wait_for(lambda: shop.asked, bool)
    assert read_all(puller, topic, 0) == []
    shop.decisions["order-1"] = Decision.COMMIT
    found = read_all(puller, topic, 1)
    assert [message.unique_key for message in found] == [unknown.sent.unique_key]
    assert set(shop.asked) == {"order-1"}


def test_a_broker_lists_the_producer_until_it_leaves(
    options: ClientOptions, admin: Admin, shop: Shop, topic: str
) -> None:
    group = "ClientListed"
    with TransactionProducer(group, options, shop.check) as producer:
        producer.send_in_transaction(OutgoingMessage(topic, b"x"), lambda _: Decision.COMMIT)
        (listed,) = admin.producer_connections(group, "broker-a").connection_set
        assert (listed.client_id, listed.language) == (producer.network.client_id, "PYTHON")
    with pytest.raises(RefusedError, match="not exist"):
        admin.producer_connections(group, "broker-a")
