"""Who is there: heartbeats, groups and locks (34, 35, 38, 41, 42, 46).

Source: ClientManageProcessor, ConsumerManageProcessor, AdminBrokerProcessor (5.5.0).
"""

from __future__ import annotations

from broker_lite.broker.broker import Broker
from broker_lite.broker.filters import FilterError, filter_of
from broker_lite.broker.groups import is_valid_group
from broker_lite.handlers.kinds import Handlers
from broker_lite.protocol import Channel
from schemas.layouts.remoting import Command
from schemas.layouts.topics import RETRY_PREFIX
from schemas.remoting.codes import RequestCode, ResponseCode
from schemas.remoting.ext_fields import from_ext_fields
from schemas.remoting.headers import ConsumerGroupRequest, UnregisterClientRequest
from schemas.remoting.heartbeats import CheckClientConfig, ConsumerList, Heartbeat, LockBatch, LockBatchResult
from schemas.remoting.json_fields import parse_body, serialize_body

MAX_HEARTBEAT_BYTES = 1 << 20


def heart_beat(broker: Broker, channel: Channel, request: Command) -> Command:
    """A client says which groups it is in, and what its consumers subscribe to."""
    heartbeat = parse_body(Heartbeat, request.body, limit=MAX_HEARTBEAT_BYTES)
    known = []
    for consumer in heartbeat.consumer_data_set:
        group = broker.groups.find(consumer.group_name) if is_valid_group(consumer.group_name) else None
        if group is None:
            continue
        known.append(consumer)
        broker.topics.ensure(f"{RETRY_PREFIX}{group.group_name}", max(1, group.retry_queue_nums))
    heartbeat = heartbeat._replace(consumer_data_set=tuple(known))
    changed = broker.clients.heartbeat(channel, request, heartbeat, broker.now_ms())
    # Members hear of it before the new one has its answer, as from RocketMQ.
    broker.notify_members(changed)
    return request.reply(ResponseCode.SUCCESS)


def unregister_client(broker: Broker, _channel: Channel, request: Command) -> Command:
    """A client leaves its groups."""
    header = from_ext_fields(UnregisterClientRequest, request.ext_fields)
    changed = broker.clients.unregister(header.client_id, header.producer_group, header.consumer_group)
    broker.notify_members(changed)
    return request.reply(ResponseCode.SUCCESS)


def consumer_list(broker: Broker, _channel: Channel, request: Command) -> Command:
    """The members of a consumer group."""
    header = from_ext_fields(ConsumerGroupRequest, request.ext_fields)
    ids = tuple(member.client_id for member in broker.clients.members(header.consumer_group))
    if not ids:
        remark = f"no consumer for this group, {header.consumer_group}"
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
    return request.reply(ResponseCode.SUCCESS, body=serialize_body(ConsumerList(ids)))


def check_client_config(_broker: Broker, _channel: Channel, request: Command) -> Command:
    """Whether a subscription's expression is one."""
    body = parse_body(CheckClientConfig, request.body)
    try:
        filter_of(body.subscription_data)
    except FilterError as error:
        return request.reply(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark=str(error))
    return request.reply(ResponseCode.SUCCESS)


def lock_queues(broker: Broker, _channel: Channel, request: Command) -> Command:
    """A consumer wants to be the only one of its group to read some queues."""
    body = parse_body(LockBatch, request.body)
    held = broker.locks.lock(body.consumer_group, body.client_id, body.mq_set, broker.now_ms())
    return request.reply(ResponseCode.SUCCESS, body=serialize_body(LockBatchResult(tuple(held))))


def unlock_queues(broker: Broker, _channel: Channel, request: Command) -> Command:
    """A consumer gives queues back."""
    body = parse_body(LockBatch, request.body)
    broker.locks.unlock(body.consumer_group, body.client_id, body.mq_set)
    return request.reply(ResponseCode.SUCCESS)


HANDLERS: Handlers = {
    RequestCode.HEART_BEAT: heart_beat,
    RequestCode.UNREGISTER_CLIENT: unregister_client,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: consumer_list,
    RequestCode.CHECK_CLIENT_CONFIG: check_client_config,
    RequestCode.LOCK_BATCH_MQ: lock_queues,
    RequestCode.UNLOCK_BATCH_MQ: unlock_queues,
}
