"""Handlers for clients in groups: heartbeats, members and queue locks.

Source: ClientManageProcessor, ConsumerManageProcessor, AdminBrokerProcessor (5.5.0).
"""

from __future__ import annotations

from commitlake.broker_lite.broker.broker import Answering, Broker, Handlers
from commitlake.broker_lite.broker.filters import FilterError, compile_filter
from commitlake.broker_lite.broker.groups import is_valid_group
from commitlake.broker_lite.broker.limits import MAX_LOCKS_OF_REQUEST, MAX_NAME_LENGTH, check_limit
from commitlake.broker_lite.protocol import Channel
from commitlake.broker_lite.protocol.large_answer_bodies import serialize_list_body
from commitlake.schemas.layouts.rocketmq.topics import RETRY_PREFIX
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.ext_fields import from_ext_fields
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.headers import ConsumerGroupRequest, UnregisterClientRequest
from commitlake.schemas.remoting.heartbeats import (
    CheckClientConfig,
    Heartbeat,
    LockBatch,
    LockBatchResult,
)
from commitlake.schemas.remoting.json_fields import parse_body, serialize_body

MAX_HEARTBEAT_BYTES = 256 << 10
MAX_LOCK_BYTES = 256 << 10
MAX_CONFIG_BYTES = 256 << 10


def heart_beat(broker: Broker, channel: Channel, request: Command) -> Answering:
    """Handle a client's heartbeat: register the client in its groups, with the subscriptions of its consumers."""
    heartbeat = parse_body(Heartbeat, request.body, limit=MAX_HEARTBEAT_BYTES, is_plain_json=True)
    yield
    broker.clients.check_limits(channel, heartbeat)
    known = [data for data in heartbeat.consumer_data_set if is_valid_group(data.group_name)]
    _check_group_and_topic_limits(broker, {data.group_name for data in known})
    yield
    served = []
    for data in known:
        group = broker.groups.find_or_create(data.group_name)
        if group is not None:
            served.append(data)
            broker.topics.find_or_create(f"{RETRY_PREFIX}{group.group_name}", max(1, group.retry_queue_nums))
        yield
    heartbeat = heartbeat._replace(consumer_data_set=tuple(served))
    changed = broker.clients.register_heartbeat(channel, request, heartbeat, broker.now_ms())
    # As in RocketMQ, members are notified before the new client gets its answer.
    yield from broker.notify_members(changed)
    return request.reply(ResponseCode.SUCCESS)


def _check_group_and_topic_limits(broker: Broker, groups: set[str]) -> None:
    """Raise an error if a heartbeat would create more groups or retry topics than the limits allow."""
    new = {name for name in groups if not broker.groups.has(name) and broker.groups.can_auto_create(name)}
    if new:
        broker.groups.check_group_limit(len(new))
    there = {name for name in groups if broker.groups.has(name)}
    broker.topics.check_topic_limit(sum(not broker.topics.has(f"{RETRY_PREFIX}{name}") for name in new | there))


def unregister_client(broker: Broker, channel: Channel, request: Command) -> Answering:
    """Remove a client from its groups."""
    header = from_ext_fields(UnregisterClientRequest, request.ext_fields)
    changed = broker.clients.unregister(channel, header.client_id, header.producer_group, header.consumer_group)
    yield from broker.notify_members(changed)
    return request.reply(ResponseCode.SUCCESS)


def get_consumer_list(broker: Broker, _channel: Channel, request: Command) -> Answering:
    """Answer with the client ids of a consumer group's members."""
    header = from_ext_fields(ConsumerGroupRequest, request.ext_fields)
    members = list(broker.clients.members(header.consumer_group))
    if not members:
        remark = f"no consumer for this group, {header.consumer_group}"
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
    body = yield from serialize_list_body("consumerIdList", (member.client_id for member in members))
    return request.reply(ResponseCode.SUCCESS, body=body)


def check_client_config(_broker: Broker, _channel: Channel, request: Command) -> Command:
    """Check that the expression of a subscription is valid."""
    body = parse_body(CheckClientConfig, request.body, limit=MAX_CONFIG_BYTES, is_plain_json=True)
    try:
        compile_filter(body.subscription_data)
    except FilterError as error:
        return request.reply(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark=str(error))
    return request.reply(ResponseCode.SUCCESS)


def lock_queues(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Lock queues for a consumer, so that no other member of its group reads them."""
    body = _parse_lock_request(request)
    held = broker.locks.lock(body.consumer_group, body.client_id, body.mq_set, broker.now_ms())
    return request.reply(ResponseCode.SUCCESS, body=serialize_body(LockBatchResult(tuple(held))))


def unlock_queues(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Release queue locks of a consumer."""
    body = _parse_lock_request(request)
    broker.locks.unlock(body.consumer_group, body.client_id, body.mq_set)
    return request.reply(ResponseCode.SUCCESS)


def _parse_lock_request(request: Command) -> LockBatch:
    body = parse_body(LockBatch, request.body, limit=MAX_LOCK_BYTES, is_plain_json=True)
    check_limit("queues to lock", MAX_LOCKS_OF_REQUEST, len(body.mq_set))
    names = [body.consumer_group, body.client_id]
    for queue in body.mq_set:
        names += (queue.topic, queue.broker_name)
    check_limit("characters of a name", MAX_NAME_LENGTH, max(map(len, names)))
    return body


HANDLERS: Handlers = {
    RequestCode.HEART_BEAT: heart_beat,
    RequestCode.UNREGISTER_CLIENT: unregister_client,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: get_consumer_list,
    RequestCode.CHECK_CLIENT_CONFIG: check_client_config,
    RequestCode.LOCK_BATCH_MQ: lock_queues,
    RequestCode.UNLOCK_BATCH_MQ: unlock_queues,
}
