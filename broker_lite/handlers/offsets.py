"""Handlers for offsets of queues and groups.

Source: ConsumerManageProcessor, AdminBrokerProcessor (5.5.0).
"""

from __future__ import annotations

from commitlake.broker_lite.broker.broker import Broker, Handlers
from commitlake.broker_lite.broker.groups import system_group_refusal_response
from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.ext_fields import from_ext_fields, to_ext_fields
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.headers import (
    OFFSET_WAS_RESET,
    MaxOffsetRequest,
    OffsetResponse,
    QueryConsumerOffsetRequest,
    QueueRequest,
    SearchOffsetRequest,
    TimestampResponse,
    UpdateConsumerOffsetRequest,
)


def query_offset(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Answer with a group's offset in a queue; for a new group, with 0 if all messages are still stored and recent."""
    header = from_ext_fields(QueryConsumerOffsetRequest, request.ext_fields)
    store = broker.store
    offset = store.config.consumer_offsets.get(header.topic, header.consumer_group, header.queue_id)
    if offset is not None and offset >= 0:
        return request.reply(ResponseCode.SUCCESS, to_ext_fields(OffsetResponse(offset)))
    if header.set_zero_if_not_found is not False and store.min_offset(header.topic, header.queue_id) <= 0:
        first = store.entry_at(header.topic, header.queue_id, 0)
        if first is not None and store.max_physical_offset - first.physical_offset <= broker.options.in_memory_bytes:
            return request.reply(ResponseCode.SUCCESS, to_ext_fields(OffsetResponse(0)))
    return request.reply(
        ResponseCode.QUERY_NOT_FOUND, remark="Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
    )


def update_offset(broker: Broker, channel: Channel, request: Command) -> Command:
    """Store the offset that a group has committed in a queue; all messages before it are consumed."""
    header = from_ext_fields(UpdateConsumerOffsetRequest, request.ext_fields)
    if (refusal := system_group_refusal_response(request, header.consumer_group)) is not None:
        return refusal
    topic = broker.topics.find(header.topic)
    if topic is None:
        return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark=f"Topic {header.topic} not exist!")
    if not broker.groups.has(header.consumer_group):
        remark = f"Group {header.consumer_group} not exist!"
        return request.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark)
    # RocketMQ also stores offsets of queues that do not exist; that would let any client fill the table.
    queues = max(topic.read_queue_nums, topic.write_queue_nums)
    if not 0 <= header.queue_id < queues or header.commit_offset < 0:
        remark = (
            f"expected a queue from 0 to {queues - 1} and an offset, found {header.queue_id}, {header.commit_offset}"
        )
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
    if broker.is_reset_pending(header.topic, header.consumer_group, header.queue_id):
        return request.reply(ResponseCode.SUCCESS, remark=OFFSET_WAS_RESET)
    broker.check_offset_limit(header.topic, header.consumer_group, header.queue_id)
    broker.store.config.consumer_offsets.acknowledge(
        header.topic, header.consumer_group, header.queue_id, header.commit_offset, channel.peer
    )
    return request.reply(ResponseCode.SUCCESS)


def search_offset(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Answer with the offset of the first message stored at or after a time; for UPPER, the last at or before it."""
    header = from_ext_fields(SearchOffsetRequest, request.ext_fields)
    is_upper = (header.boundary_type or "").upper() == "UPPER"
    offset = broker.store.offset_by_time(header.topic, header.queue_id, header.timestamp + is_upper)
    if is_upper and offset < broker.store.max_offset(header.topic, header.queue_id):
        offset = max(broker.store.min_offset(header.topic, header.queue_id), offset - 1)
    return request.reply(ResponseCode.SUCCESS, to_ext_fields(OffsetResponse(offset)))


def get_max_offset(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Answer with the end of a queue: the queue offset that its next message gets."""
    header = from_ext_fields(MaxOffsetRequest, request.ext_fields)
    offset = broker.store.max_offset(header.topic, header.queue_id)
    return request.reply(ResponseCode.SUCCESS, to_ext_fields(OffsetResponse(offset)))


def get_min_offset(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Answer with the queue offset of a queue's first message that is still in the store."""
    header = from_ext_fields(QueueRequest, request.ext_fields)
    offset = broker.store.min_offset(header.topic, header.queue_id)
    return request.reply(ResponseCode.SUCCESS, to_ext_fields(OffsetResponse(offset)))


def get_earliest_store_time(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Answer with the store time of a queue's first message, or -1 if the queue is empty."""
    header = from_ext_fields(QueueRequest, request.ext_fields)
    first = broker.store.min_offset(header.topic, header.queue_id)
    timestamp = broker.store.timestamp_at(header.topic, header.queue_id, first)
    return request.reply(ResponseCode.SUCCESS, to_ext_fields(TimestampResponse(timestamp)))


HANDLERS: Handlers = {
    RequestCode.QUERY_CONSUMER_OFFSET: query_offset,
    RequestCode.UPDATE_CONSUMER_OFFSET: update_offset,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: search_offset,
    RequestCode.GET_MAX_OFFSET: get_max_offset,
    RequestCode.GET_MIN_OFFSET: get_min_offset,
    RequestCode.GET_EARLIEST_MSG_STORETIME: get_earliest_store_time,
}
