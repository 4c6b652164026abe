"""Requests for the progress of topics and groups. Source: AdminBrokerProcessor, Broker2Client (5.5.0)."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import NamedTuple

from commitlake.broker_lite.broker import statistics
from commitlake.broker_lite.broker.broker import Answering, Broker, Handlers
from commitlake.broker_lite.broker.groups import system_group_refusal_response
from commitlake.broker_lite.broker.limits import MAX_OFFSETS, check_limit
from commitlake.broker_lite.handlers.pulling import answer_pulls_after_reset
from commitlake.broker_lite.protocol import Channel
from commitlake.broker_lite.protocol.large_answer_bodies import serialize_table_body
from commitlake.schemas.layouts.rocketmq.topics import split_offset_key
from commitlake.schemas.remoting.admin_headers import (
    BrokerConsumeStatsRequest,
    ConsumeStatsRequest,
    ResetOffsetRequest,
    TopicGroupRequest,
    TopicRequest,
)
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.ext_fields import from_ext_fields
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.json_fields import serialize_body
from commitlake.schemas.remoting.routes import MessageQueue
from commitlake.schemas.remoting.statistics_bodies import (
    ConsumeStats,
    ConsumeTimeSpans,
    GroupList,
    OffsetTable,
    QueueOffsetPair,
    QueueTimeSpan,
    TopicOffset,
)


class BrokerConsumeStats(NamedTuple):
    """Body of the answer to GET_BROKER_CONSUME_STATS (317): the lag of all consumer groups."""

    broker_addr: str
    consume_stats_list: tuple[dict[str, tuple[ConsumeStats, ...]], ...] = ()
    total_diff: int = 0
    total_inflight_diff: int = 0


def get_topic_stats(broker: Broker, _channel: Channel, request: Command) -> Answering:
    """Answer with the first and last offset of each queue of a topic."""
    header = from_ext_fields(TopicRequest, request.ext_fields)
    topic, store = header.topic, broker.store
    config = broker.topics.find(topic)
    if config is None:
        return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark=f"topic[{topic}] not exist")

    def offset_range_of_queues() -> Iterator[tuple[MessageQueue, TopicOffset]]:
        for queue_id in range(max(config.write_queue_nums, config.read_queue_nums)):
            low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            last = store.timestamp_at(topic, queue_id, high - 1) if high > low else 0
            yield MessageQueue(topic, broker.options.name, queue_id), TopicOffset(low, high, max(0, last))

    tps = broker.statistics.rate(statistics.TOPIC_PUT_NUMS, topic, broker.now_ms())
    body = yield from serialize_table_body("offsetTable", offset_range_of_queues(), lambda: {"topicPutTps": tps})
    return request.reply(ResponseCode.SUCCESS, body=body)


def get_consume_stats(broker: Broker, _channel: Channel, request: Command) -> Answering:
    """Answer with a group's lag in each queue of its topics."""
    header = from_ext_fields(ConsumeStatsRequest, request.ext_fields)
    named = [topic for topic in (header.topic_list or "").split(";") if topic]
    if header.topic:
        named.append(header.topic)
    stats = yield from _compute_consume_stats(
        broker, header.consumer_group, named or broker.topics_of_group(header.consumer_group)
    )
    return request.reply(ResponseCode.SUCCESS, body=serialize_body(stats))


def _compute_consume_stats(broker: Broker, group: str, topics: Iterable[str]) -> Generator[None, None, ConsumeStats]:
    store = broker.store
    table, tps = {}, 0.0
    consumers = broker.clients.consumers.get(group)
    for topic in topics:
        config = broker.topics.find(topic)
        if config is None or (consumers is not None and topic not in consumers.subscriptions):
            continue
        for queue_id in range(config.read_queue_nums):
            high = max(0, broker.store.max_offset(topic, queue_id))
            consumed = broker.store.config.consumer_offsets.get(topic, group, queue_id)
            consumed = 0 if consumed is None else consumed
            last = store.timestamp_at(topic, queue_id, consumed - 1) if consumed > 0 else 0
            queue = MessageQueue(topic, broker.options.name, queue_id)
            table[queue] = QueueOffsetPair(high, consumed, max(0, last), consumed)
            yield
        tps += broker.statistics.rate(statistics.GROUP_GET_NUMS, f"{topic}@{group}", broker.now_ms())
    return ConsumeStats(table, tps)


def get_broker_consume_stats(broker: Broker, _channel: Channel, request: Command) -> Answering:
    """Answer with the lag of all groups."""
    from_ext_fields(BrokerConsumeStatsRequest, request.ext_fields)
    topics_of: dict[str, set[str]] = {}
    for key in list(broker.store.config.consumer_offsets.entries):
        topic, group = split_offset_key(key)
        topics_of.setdefault(group, set()).add(topic)
    for name, members in broker.clients.consumers.items():
        topics_of.setdefault(name, set()).update(members.subscriptions)
    yield
    groups, lag = [], 0
    for group in list(broker.store.config.groups.entries):
        stats = []
        for topic in sorted(topics_of.get(group, ())):
            found = yield from _compute_consume_stats(broker, group, [topic])
            yield
            if found.offset_table:
                stats.append(found)
        if stats:
            groups.append({group: tuple(stats)})
            lag += sum(queue.lag for found in stats for queue in found.offset_table.values())
    body = BrokerConsumeStats(str(broker.options.address), tuple(groups), lag)
    return request.reply(ResponseCode.SUCCESS, body=serialize_body(body))


def get_groups_of_topic(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Answer with the groups that consume a topic or have offsets in it."""
    header = from_ext_fields(TopicRequest, request.ext_fields)
    groups = {name for name, group in broker.clients.consumers.items() if header.topic in group.subscriptions}
    for key in list(broker.store.config.consumer_offsets.entries):
        topic, group = split_offset_key(key)
        if topic == header.topic:
            groups.add(group)
    return request.reply(ResponseCode.SUCCESS, body=serialize_body(GroupList(tuple(sorted(groups)))))


def get_consume_time_span(broker: Broker, _channel: Channel, request: Command) -> Answering:
    """Answer with the times of each queue's first, last and last consumed message, for a topic and a group."""
    header = from_ext_fields(TopicGroupRequest, request.ext_fields)
    topic, store = header.topic, broker.store
    config = broker.topics.find(topic)
    if config is None:
        return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark=f"topic[{topic}] not exist")
    spans = []
    for queue_id in range(max(config.write_queue_nums, config.read_queue_nums)):
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        consumed = store.config.consumer_offsets.get(topic, header.group, queue_id)
        first = store.timestamp_at(topic, queue_id, low)
        last = store.timestamp_at(topic, queue_id, high - 1) if high > low else -1
        done = store.timestamp_at(topic, queue_id, consumed - 1) if consumed else first
        behind = broker.now_ms() - store.timestamp_at(topic, queue_id, consumed or 0) if (consumed or 0) < high else 0
        queue = MessageQueue(topic, broker.options.name, queue_id)
        spans.append(QueueTimeSpan(queue, first, last, done, behind))
        yield
    return request.reply(ResponseCode.SUCCESS, body=serialize_body(ConsumeTimeSpans(tuple(spans))))


def reset_offset(broker: Broker, _channel: Channel, request: Command) -> Answering:
    """Reset a group's offsets in a topic to an offset or a time, from which its consumers then continue."""
    header = from_ext_fields(ResetOffsetRequest, request.ext_fields)
    topic, group = header.topic, header.group
    if (refusal := system_group_refusal_response(request, group)) is not None:
        return refusal
    config = broker.topics.find(topic)
    if config is None:
        return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark=f"Topic {topic} does not exist")
    if not broker.groups.has(group):
        remark = f"Group {group} does not exist"
        return request.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark)
    queues = range(config.read_queue_nums)
    if header.queue_id is not None and header.queue_id >= 0:
        if header.queue_id not in queues:
            remark = f"expected a queue from 0 to {config.read_queue_nums - 1}, found {header.queue_id}"
            return request.reply(ResponseCode.INVALID_PARAMETER, remark=remark)
        queues = range(header.queue_id, header.queue_id + 1)
    targets = {}
    for queue_id in queues:
        low, high = broker.store.min_offset(topic, queue_id), broker.store.max_offset(topic, queue_id)
        if header.offset is not None and header.offset >= 0:
            if not low <= header.offset <= high:
                remark = f"Target offset {header.offset} not in consume queue range [{low}-{high}]"
                return request.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
            targets[queue_id] = header.offset
        elif header.timestamp < 0:
            targets[queue_id] = high
        else:
            targets[queue_id] = broker.store.offset_by_time(topic, queue_id, header.timestamp)
        yield
    # Before anything is changed: all queues are reset, or none.
    check_limit("offsets of all groups", MAX_OFFSETS, broker.store.config.consumer_offsets.count + len(targets))
    for queue_id, target in targets.items():
        broker.reset_offset(topic, group, queue_id, target)
        answer_pulls_after_reset(broker, topic, queue_id)
    table = {MessageQueue(topic, broker.options.name, queue_id): target for queue_id, target in targets.items()}
    return request.reply(ResponseCode.SUCCESS, body=serialize_body(OffsetTable(table)))


HANDLERS: Handlers = {
    RequestCode.GET_TOPIC_STATS_INFO: get_topic_stats,
    RequestCode.GET_CONSUME_STATS: get_consume_stats,
    RequestCode.GET_BROKER_CONSUME_STATS: get_broker_consume_stats,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: get_groups_of_topic,
    RequestCode.QUERY_CONSUME_TIME_SPAN: get_consume_time_span,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: reset_offset,
}
