"""Administration of consumer groups and their members: settings, connections, offsets, subscriptions.

Source: AdminBrokerProcessor, ConsumerManageProcessor (5.5.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple
from typing import NamedTuple

from commitlake.broker_lite.broker.broker import Answering, Broker, Handlers
from commitlake.broker_lite.broker.clients import Member
from commitlake.broker_lite.broker.groups import is_valid_group, system_group_refusal_response
from commitlake.broker_lite.broker.limits import MAX_OFFSETS, check_limit
from commitlake.broker_lite.protocol import Channel
from commitlake.broker_lite.protocol.large_answer_bodies import (
    select_page,
    serialize_list_body,
    serialize_table_body,
    serialize_table_of_lists,
)
from commitlake.schemas.layouts.rocketmq.timers import CHECKPOINT
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, RETRY_PREFIX
from commitlake.schemas.remoting.admin_headers import (
    CloneGroupOffsetRequest,
    DeleteGroupRequest,
    GroupPageRequest,
    GroupPageResponse,
    GroupRequest,
    ProducerGroupRequest,
    TopicGroupRequest,
)
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.ext_fields import from_ext_fields, to_ext_fields
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.headers import ConsumerGroupRequest
from commitlake.schemas.remoting.heartbeats import SubscriptionData
from commitlake.schemas.remoting.json_fields import parse_body, serialize_body, to_json
from commitlake.schemas.remoting.routes import TopicList
from commitlake.schemas.remoting.statistics_bodies import DelayOffsetTable
from commitlake.schemas.remoting.topic_and_group_configs import SubscriptionGroupConfig

MAX_GROUP_BYTES = 64 << 10
_INVALID_GROUP = "group: expected 1 to 255 characters of %|a-zA-Z0-9_-, found {!r}"


class SubscriptionOfGroup(NamedTuple):
    """Body of the answer to QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    group: str
    topic: str
    subscription_data: SubscriptionData | None = None


def put_group(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Create or update a group."""
    config = parse_body(SubscriptionGroupConfig, request.body, limit=MAX_GROUP_BYTES, is_plain_json=True)
    if not is_valid_group(config.group_name):
        return request.reply(ResponseCode.INVALID_PARAMETER, remark=_INVALID_GROUP.format(config.group_name[:100]))
    if (refusal := system_group_refusal_response(request, config.group_name)) is not None:
        return refusal
    if not 0 <= config.retry_queue_nums <= broker.store.max_queues:
        remark = f"retryQueueNums: expected 0 to {broker.store.max_queues}, found {config.retry_queue_nums}"
        return request.reply(ResponseCode.INVALID_PARAMETER, remark=remark)
    broker.groups.put(config)
    return request.reply(ResponseCode.SUCCESS)


def get_all_groups(broker: Broker, _channel: Channel, request: Command) -> Answering:
    """Answer with the settings of all groups, or of the requested page."""
    header = from_ext_fields(GroupPageRequest, request.ext_fields)
    names = broker.groups.names()
    wanted = select_page(names, header.group_seq, header.max_group_num)
    # The answer is made in steps, and a group may be deleted between two of them.
    configs = (
        (name, config) for name in wanted if broker.groups.has(name) and (config := broker.groups.find_or_create(name))
    )
    others = {"dataVersion": broker.groups.data_version}
    body = yield from serialize_table_body("subscriptionGroupTable", configs, lambda: others)
    return request.reply(ResponseCode.SUCCESS, to_ext_fields(GroupPageResponse(len(names))), body)


def get_group_config(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Answer with the settings of a group."""
    header = from_ext_fields(GroupRequest, request.ext_fields)
    config = broker.groups.find_or_create(header.group)
    if config is None:
        remark = f"No group in this broker. group: {header.group}"
        return request.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark)
    return request.reply(ResponseCode.SUCCESS, body=serialize_body(config))


def delete_group(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Delete a group; if its offsets are deleted, also delete its retry and dead-letter topics."""
    header = from_ext_fields(DeleteGroupRequest, request.ext_fields)
    if (refusal := system_group_refusal_response(request, header.group_name)) is not None:
        return refusal
    broker.groups.remove(header.group_name)
    if header.clean_offset:
        broker.store.config.consumer_offsets.remove_if(lambda _, group: group == header.group_name)
        for topic in (f"{RETRY_PREFIX}{header.group_name}", f"{DLQ_PREFIX}{header.group_name}"):
            broker.topics.remove(topic)
            broker.store.delete_queues(topic)
    broker.statistics.remove_key(header.group_name)
    return request.reply(ResponseCode.SUCCESS)


def get_consumer_connections(broker: Broker, _channel: Channel, request: Command) -> Answering:
    """Answer with the members of a consumer group and their subscriptions."""
    header = from_ext_fields(ConsumerGroupRequest, request.ext_fields)
    group = broker.clients.consumers.get(header.consumer_group)
    if group is None:
        remark = f"the consumer group[{header.consumer_group}] not online"
        return request.reply(ResponseCode.CONSUMER_NOT_ONLINE, remark=remark)
    # A copy, because members may leave between the steps of the answer.
    connections = (member.connection() for member in list(group.members.values()))
    settings = to_json(group.settings())
    # The list is serialized in steps instead.
    del settings["connectionSet"]
    body = yield from serialize_list_body("connectionSet", connections, lambda: settings)
    return request.reply(ResponseCode.SUCCESS, body=body)


def get_producer_connections(broker: Broker, _channel: Channel, request: Command) -> Answering:
    """Answer with the members of a producer group."""
    header = from_ext_fields(ProducerGroupRequest, request.ext_fields)
    members = list(broker.clients.producers.get(header.producer_group, {}).values())
    if not members:
        remark = f"the producer group[{header.producer_group}] not exist"
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
    body = yield from serialize_list_body("connectionSet", (member.connection() for member in members))
    return request.reply(ResponseCode.SUCCESS, body=body)


def get_all_producers(broker: Broker, _channel: Channel, request: Command) -> Answering:
    """Answer with the members of all producer groups."""
    groups = ((name, _producer_entries(members)) for name, members in list(broker.clients.producers.items()))
    body = yield from serialize_table_of_lists("data", groups)
    return request.reply(ResponseCode.SUCCESS, body=body)


def _producer_entries(members: dict[str, Member]) -> Iterator[dict[str, object]]:
    for member in list(members.values()):
        yield {
            "clientId": member.client_id,
            "language": member.language,
            "lastUpdateTimestamp": member.heard_ms,
            "remoteIP": f"/{member.channel.peer}",
            "version": member.version,
        }


def get_all_consumer_offsets(broker: Broker, _channel: Channel, request: Command) -> Answering:
    """Answer with the offsets of all groups."""
    entries = broker.store.config.consumer_offsets.entries
    offsets = ((key, dict(found)) for key in list(entries) if (found := entries.get(key)) is not None)
    body = yield from serialize_table_body("offsetTable", offsets)
    return request.reply(ResponseCode.SUCCESS, body=body)


def get_all_delay_offsets(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Answer with the next offset to deliver of each delay level."""
    table = DelayOffsetTable(dict(broker.store.config.delay_offsets.entries))
    return request.reply(ResponseCode.SUCCESS, body=serialize_body(table))


def get_timer_checkpoint(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Answer with the checkpoint of the timers; without it, RocketMQ's slaves keep no timer messages."""
    checkpoint = broker.store.timer_checkpoint
    if checkpoint is None:
        return request.reply(ResponseCode.SYSTEM_ERROR, remark="The checkpoint is null")
    return request.reply(ResponseCode.SUCCESS, body=CHECKPOINT.pack(*astuple(checkpoint)))


def clone_offsets(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Copy the offsets of one group to another."""
    header = from_ext_fields(CloneGroupOffsetRequest, request.ext_fields)
    if (refusal := system_group_refusal_response(request, header.dest_group)) is not None:
        return refusal
    if not is_valid_group(header.dest_group):
        return request.reply(ResponseCode.INVALID_PARAMETER, remark=_INVALID_GROUP.format(header.dest_group[:100]))
    offsets = broker.store.config.consumer_offsets
    topics = [header.topic] if header.topic else broker.topics_of_group(header.src_group)
    found = [
        (topic, queue_id, offset)
        for topic in topics
        for queue_id, offset in offsets.entries.get(f"{topic}@{header.src_group}", {}).items()
    ]
    # Before the first offset is set: all are copied, or none.
    check_limit("offsets of all groups", MAX_OFFSETS, offsets.count + len(found))
    for topic, queue_id, offset in found:
        offsets.commit(topic, header.dest_group, queue_id, offset)
    return request.reply(ResponseCode.SUCCESS)


def get_topics_of_group(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Answer with the topics that a group has consumed."""
    header = from_ext_fields(GroupRequest, request.ext_fields)
    topics = tuple(broker.topics_of_group(header.group))
    return request.reply(ResponseCode.SUCCESS, body=serialize_body(TopicList(topics)))


def get_subscription_of_group(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Answer with a group's subscription to a topic."""
    header = from_ext_fields(TopicGroupRequest, request.ext_fields)
    group = broker.clients.consumers.get(header.group)
    subscription = group.subscriptions.get(header.topic) if group else None
    body = SubscriptionOfGroup(header.group, header.topic, subscription)
    return request.reply(ResponseCode.SUCCESS, body=serialize_body(body))


HANDLERS: Handlers = {
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: put_group,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: get_all_groups,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: get_group_config,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: delete_group,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: get_consumer_connections,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: get_producer_connections,
    RequestCode.GET_ALL_PRODUCER_INFO: get_all_producers,
    RequestCode.GET_ALL_CONSUMER_OFFSET: get_all_consumer_offsets,
    RequestCode.GET_ALL_DELAY_OFFSET: get_all_delay_offsets,
    RequestCode.GET_TIMER_CHECK_POINT: get_timer_checkpoint,
    RequestCode.CLONE_GROUP_OFFSET: clone_offsets,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: get_topics_of_group,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: get_subscription_of_group,
}
