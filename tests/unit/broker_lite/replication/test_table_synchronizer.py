"""Tests of a slave's tables after synchronization, and of addresses from brokers and name servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.replication.slave import parse_address
from commitlake.broker_lite.replication.table_synchronizer import TableSynchronizer
from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.schemas.remoting.statistics_bodies import ConsumerOffsetTable, DelayOffsetTable
from commitlake.schemas.remoting.topic_and_group_configs import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroups,
    TopicConfig,
    TopicConfigs,
)
from tests.support.message_stores import SMALL
from tests.support.small_stores import Clock

VERSION = DataVersion(timestamp=1_700_000_000_000, counter=7)


@pytest.fixture
def broker(root: Path, clock: Clock) -> Iterator[Broker]:
    """A slave without a network."""
    with MessageStore.open(root, SMALL, clock=clock) as store:
        yield Broker(store, BrokerOptions())


def test_topics_are_copied_from_the_master(broker: Broker) -> None:
    synchronizer = TableSynchronizer(broker)
    topics = {"orders": TopicConfig("orders", 3, 3, 6), "../up": TopicConfig("../up", 1, 1, 6)}
    synchronizer.replace_topics(TopicConfigs(topics, VERSION))
    assert broker.topics.all_configs() == TopicConfigs(
        {"orders": TopicConfig("orders", 3, 3, 6, attributes=None)}, VERSION
    )
    # A table of the same version is ignored; a new version is taken, also if it lacks a topic.
    synchronizer.replace_topics(TopicConfigs({}, VERSION))
    assert broker.topics.find("orders") is not None
    synchronizer.replace_topics(TopicConfigs({}, VERSION._replace(counter=8)))
    assert broker.topics.find("orders") is None


def test_groups_are_copied_from_the_master(broker: Broker) -> None:
    broker.groups.find_or_create("own")
    groups = {"readers": SubscriptionGroupConfig("readers", retry_max_times=3), "a b": SubscriptionGroupConfig("a b")}
    TableSynchronizer(broker).replace_groups(SubscriptionGroups(groups, VERSION))
    assert list(broker.store.config.groups.entries) == ["readers"]
    found = broker.groups.find_or_create("readers")
    assert found is not None
    assert found.retry_max_times == 3


def test_offsets_of_the_master_replace_those_of_the_slave(broker: Broker) -> None:
    offsets = broker.store.config.consumer_offsets
    offsets.commit("orders", "readers", 0, 5)
    offsets.commit("orders", "others", 0, 9)
    table = ConsumerOffsetTable({"orders@readers": {0: 4, 1: 8}})
    TableSynchronizer(broker).replace_consumer_offsets(table)
    assert offsets.entries == {"orders@readers": {0: 4, 1: 8}, "orders@others": {0: 9}}
    TableSynchronizer(broker).replace_delay_offsets(DelayOffsetTable({3: 17}))
    assert broker.store.config.delay_offsets.get(3) == 17


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1:10912", ("10.0.0.1", 10912)),
        ("[::1]:10912", ("::1", 10912)),
        ("", None),
        (None, None),
        ("10.0.0.1", None),
        (":10912", None),
        ("10.0.0.1:0", None),
        ("10.0.0.1:65536", None),
        ("10.0.0.1:x", None),
    ],
)
def test_an_address_is_host_and_port(text: str | None, address: tuple[str, int] | None) -> None:
    assert parse_address(text) == address
