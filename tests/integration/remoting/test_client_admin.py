"""The administrator against real brokers."""

from __future__ import annotations

import pytest

from commitlake.connectors.rocketmq import (
    Admin,
    NoRouteError,
    OutgoingMessage,
    Producer,
    ProtocolError,
    Puller,
    RefusedError,
)
from commitlake.pipelines.snapshot.broker_queries import fetch_store_snapshot
from commitlake.pipelines.snapshot.progress import OffsetKind, OffsetOwner
from commitlake.schemas.remoting.topic_and_group_configs import SubscriptionGroupConfig
from tests.servers.rocketmq import RocketMQ
from tests.support.topic_reading import make_topic, read_all, wait_for

BROKER = "broker-a"


def test_topics_are_made_changed_and_dropped(admin: Admin, topic: str) -> None:
    make_topic(admin, topic, 3)
    assert topic in admin.topics()
    config = admin.topic_configs(BROKER)[topic]
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (3, 3, 6)
    (data,) = admin.route(topic).queue_datas
    assert (data.write_queue_nums, data.perm) == (3, 6)
    admin.create_topic(topic, queue_count=5, perm=4, cluster="DefaultCluster")
    assert admin.topic_configs(BROKER)[topic].perm == 4
    admin.delete_topic(topic, cluster="DefaultCluster")
    assert topic not in admin.topic_configs(BROKER)
    with pytest.raises(NoRouteError):
        admin.route(topic)


def test_groups_are_made_and_dropped(admin: Admin, topic: str) -> None:
    group = f"Group{topic}"
    admin.create_group(SubscriptionGroupConfig(group, retry_max_times=3))
    assert admin.groups(BROKER)[group].retry_max_times == 3
    admin.delete_group(group)
    # While broker 5.5 drops the group, it looks it up once more, which creates a new one.
    left = admin.groups(BROKER).get(group)
    assert left is None or left.retry_max_times == 16


def test_clusters_have_their_brokers(admin: Admin, servers: RocketMQ) -> None:
    info = admin.clusters()
    assert info.cluster_addr_table == {"DefaultCluster": (BROKER,)}
    assert info.broker_addr_table[BROKER].broker_addrs == {0: servers.broker_address}
    with pytest.raises(NoRouteError, match="expected one of DefaultCluster"):
        admin.create_topic("T", cluster="Nowhere")


def test_progress_of_a_group_is_reported(admin: Admin, producer: Producer, puller: Puller, topic: str) -> None:
    queue = producer.queues(topic)[0]
    for _ in range(5):
        producer.send(OutgoingMessage(topic, b"x"), queue=queue)
    read_all(puller, topic, 5)
    puller.commit_offset(queue, 2)
    stats = admin.broker_topic_stats(topic, BROKER)
    assert stats is not None
    offsets = stats.offset_table[queue]
    assert (offsets.min_offset, offsets.max_offset) == (0, 5)
    assert offsets.last_update_timestamp > 0
    progress = admin.consume_stats(puller.group, topic)[queue]
    assert (progress.broker_offset, progress.consumer_offset, progress.lag) == (5, 2, 3)
    assert admin.groups_of_topic(topic) == [puller.group]
    assert admin.consumer_ids(puller.group, BROKER) == []
    with pytest.raises(RefusedError, match="CONSUMER_NOT_ONLINE"):
        admin.consumer_connections(puller.group, BROKER)


@pytest.mark.some_cases(1)
@pytest.mark.each_version
def test_messages_are_found_by_key_and_id(admin: Admin, producer: Producer, topic: str) -> None:
    # Two keys of the same hash, as Java computes it.
    first = producer.send(OutgoingMessage(topic, b"1", keys=("orderAa", "more")))
    producer.send(OutgoingMessage(topic, b"2", keys=("orderBB",)))
    # The broker indexes in the order of the log: the first message is there once the second one is.
    found = wait_for(lambda: admin.query_by_key(topic, "orderBB"), bool)
    assert [message.body for message in found] == [b"2"]
    assert [message.body for message in admin.query_by_key(topic, "orderAa")] == [b"1"]
    assert [message.body for message in admin.query_by_key(topic, "more")] == [b"1"]
    assert admin.query_by_key(topic, "no such key") == []
    viewed = admin.view_message(first.offset_msg_id)
    assert (viewed.body, viewed.unique_key) == (b"1", first.unique_key)


def test_a_message_id_with_an_unknown_broker_address_is_refused(admin: Admin, producer: Producer, topic: str) -> None:
    msg_id = producer.send(OutgoingMessage(topic, b"x", keys=("k",))).offset_msg_id
    with pytest.raises(NoRouteError, match=r"found 10\.0\.0\.1:10911"):
        admin.view_message("0A00000100002A9F" + msg_id[16:])
    with pytest.raises(NoRouteError, match="hexadecimal"):
        admin.view_message("no id")
    inside = f"{msg_id[:16]}{int(msg_id[16:], 16) + 13:016X}"
    with pytest.raises((ProtocolError, RefusedError)):
        admin.view_message(inside)


def test_a_broker_reports_its_version(admin: Admin, servers: RocketMQ) -> None:
    assert admin.runtime_info(BROKER)["brokerVersionDesc"] == f"V{servers.version.replace('.', '_')}"


@pytest.mark.each_version
def test_a_snapshot_has_the_offsets_that_a_broker_reports(
    admin: Admin, producer: Producer, puller: Puller, topic: str
) -> None:
    queue = producer.queues(topic)[0]
    for _ in range(5):
        producer.send(OutgoingMessage(topic, b"x"), queue=queue)
    read_all(puller, topic, 5)
    puller.commit_offset(queue, 2)
    progress = fetch_store_snapshot(admin, BROKER, "in-the-lake")
    assert progress.offsets[OffsetOwner(OffsetKind.GROUP, puller.group, topic, queue.queue_id)] == 2
    assert progress.broker == "in-the-lake"
    assert progress.log_end is None or progress.log_end > 0  # a broker 4.9 that has just started does not report it
    assert not [key for key in progress.subscriptions if key.group == puller.group]  # it sends no heartbeats
