"""Handlers of send requests, from producers and for messages that a consumer failed to consume.

    SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320), CONSUMER_SEND_MSG_BACK (36)

Source: SendMessageProcessor, AbstractSendMessageProcessor, HookUtils (5.5.0).
"""

from __future__ import annotations

import itertools
import os
import random
import struct
from collections.abc import Mapping
from datetime import UTC, datetime

from commitlake.broker_lite.broker import statistics
from commitlake.broker_lite.broker.broker import Answering, Broker, Handlers
from commitlake.broker_lite.delivery import SendBackError
from commitlake.broker_lite.delivery.timer_messages import has_delivery_time
from commitlake.broker_lite.protocol import Channel
from commitlake.broker_lite.stores.engine.topic_names import is_broker_topic, is_valid_topic
from commitlake.broker_lite.stores.rocketmq import PutResult
from commitlake.broker_lite.stores.rocketmq.message_preparation import SentMessage
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.integer_parsing import parse_int32, parse_int64
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import INNER_NUM, MAX_INNER_MESSAGES, has_batch_queues
from commitlake.schemas.layouts.rocketmq.commitlog import MAX_V1_TOPIC_LENGTH
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH, NEED_UNWRAP
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, RETRY_PREFIX
from commitlake.schemas.remoting.batch import parse_batch
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.ext_fields import from_ext_fields
from commitlake.schemas.remoting.frames import Command, Version
from commitlake.schemas.remoting.headers import SendBackRequest, SendMessageRequest, parse_send_request
from commitlake.schemas.remoting.routes import PERM_WRITE
from commitlake.schemas.remoting.topic_and_group_configs import SubscriptionGroupConfig, TopicConfig

MAX_BATCH_MESSAGES = 4096
"""RocketMQ limits only a batch's size. An answer names every message, and for many more it would not fit in a frame."""
_ITEMS_OF_STEP = 256
_END = "\x02"
_UNIQUE_KEY = struct.Struct(">4sH4sIH")
_OWN = os.urandom(4)
_counter = itertools.count()


def send_message(broker: Broker, channel: Channel, request: Command) -> Command | Answering | None:
    """Store a message or a batch."""
    header = _parse_header(request)
    is_batch = header.batch or request.code == RequestCode.SEND_BATCH_MESSAGE
    refusal = _message_refusal_response(broker, request, header) or _size_refusal_response(
        request, header, is_batch=is_batch
    )
    if refusal is not None:
        return refusal
    group = None
    if header.topic.startswith(RETRY_PREFIX):
        name = header.topic.removeprefix(RETRY_PREFIX)
        group = broker.groups.find_or_create(name)
        if group is None:
            remark = f"subscription group not exist, {name}"
            return request.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark)
    config = broker.topics.config_for_send(header.topic, header.default_topic, header.default_topic_queue_nums)
    refusal = _target_refusal_response(channel, request, header, config)
    if refusal is not None or config is None:
        return refusal
    if header.queue_id < 0:
        header = header._replace(queue_id=random.randrange(max(1, config.write_queue_nums)))  # noqa: S311 (not for security)
    if is_batch:
        return _send_batch(broker, channel, request, header, config)
    if broker.topics.has(header.topic):
        return _store_one_message(broker, channel, request, header, config, group)
    # A topic that is created for this message disappears again if the message is refused.
    with broker.topics.create_with_rollback(config):
        return _store_one_message(broker, channel, request, header, config, group)


def _target_refusal_response(
    channel: Channel, request: Command, header: SendMessageRequest, config: TopicConfig | None
) -> Command | None:
    """Return an error response if the topic or queue does not accept the message, else None."""
    if config is None:
        remark = f"topic[{header.topic}] not exist, apply first please!"
        return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
    if not config.perm & PERM_WRITE:
        remark = f"the topic[{header.topic}] sending message is forbidden"
        return request.reply(ResponseCode.NO_PERMISSION, remark=remark)
    if header.queue_id >= max(config.read_queue_nums, config.write_queue_nums):
        remark = f"request queueId[{header.queue_id}] is illegal, {config} Producer: {channel.peer}"
        return request.reply(ResponseCode.INVALID_PARAMETER, remark=remark)
    return None


def _parse_header(request: Command) -> SendMessageRequest:
    """Parse a send request's header, with fast code for common headers and general code for all others."""
    fields = request.ext_fields
    if request.code == RequestCode.SEND_MESSAGE or "j" not in fields or "l" in fields:
        return parse_send_request(request)
    queue_nums, queue_id, sys_flag, flag, times = [parse_int32(fields.get(name)) for name in "defhj"]
    born = parse_int64(fields.get("g"))
    if queue_nums is None or queue_id is None or sys_flag is None or flag is None or times is None or born is None:
        return parse_send_request(request)
    try:
        return SendMessageRequest(
            fields["a"], fields["b"], fields["c"], queue_nums, queue_id, sys_flag, born, flag, fields.get("i"), times,
            batch=fields.get("m") == "true",
        )  # fmt: skip
    except KeyError:
        return parse_send_request(request)


def _message_refusal_response(broker: Broker, request: Command, header: SendMessageRequest) -> Command | None:
    if not broker.is_writable:
        remark = (
            "service not available now. It may be caused by one of the following reasons: the broker's disk is full"
        )
        return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark=remark)
    if not is_valid_topic(header.topic):
        remark = f"topic: expected 1 to 127 characters of %|a-zA-Z0-9_-, found {header.topic[:100]!r}"
        return request.reply(ResponseCode.INVALID_PARAMETER, remark=remark)
    if is_broker_topic(header.topic):
        remark = f"Sending message to topic[{header.topic}] is forbidden."
        return request.reply(ResponseCode.NO_PERMISSION, remark=remark)
    if header.sys_flag & INNER_BATCH:
        remark = "expected a single message or a batch, found the flag of an inner batch, which only the broker may set"
        return request.reply(ResponseCode.MESSAGE_ILLEGAL, remark=remark)
    return None


def _size_refusal_response(request: Command, header: SendMessageRequest, *, is_batch: bool) -> Command | None:
    """Return an error response if a message is too large, before anything is created for it; else None."""
    remark = None
    if len(header.properties or "") > props.MAX_SIZE:
        remark = f"properties: expected at most {props.MAX_SIZE} bytes, found {len(header.properties or '')} characters"
    elif is_batch and (len(header.topic) > MAX_V1_TOPIC_LENGTH or header.topic.startswith(RETRY_PREFIX)):
        remark = f"expected a batch for a topic of at most {MAX_V1_TOPIC_LENGTH} characters and no retries"
        remark = f"{remark}, found {header.topic}"
    return None if remark is None else request.reply(ResponseCode.MESSAGE_ILLEGAL, remark=remark)


def _store_one_message(
    broker: Broker,
    channel: Channel,
    request: Command,
    header: SendMessageRequest,
    config: TopicConfig,
    group: SubscriptionGroupConfig | None,
) -> Command:
    text = header.properties or ""
    known = _parse_property_dict(text)
    topic, queue_id = header.topic, header.queue_id
    if props.UNIQ_KEY not in known:
        known[props.UNIQ_KEY] = new_unique_key(broker.options.address, broker.now_ms())
        # The serialized form lacks the key, so it is made again.
        text = ""
    if group is not None and _is_past_last_retry(broker, request, header, group):
        topic, queue_id, text = f"{DLQ_PREFIX}{group.group_name}", 0, ""
        broker.topics.find_or_create(topic, 1)
        # Otherwise the dead letter would be delayed, too.
        known.pop(props.DELAY, None)
    is_plain = bool(text) and props.BROKER_MARKS.isdisjoint(known)
    stored = b""
    if is_plain:
        stored = f"{text}{'' if text.endswith(_END) else _END}{broker.property_suffix}".encode("utf-8", "replace")
    else:
        known |= broker.options.added_properties()
    message = SentMessage(
        topic, queue_id, bytes(request.body), header.born_timestamp, channel.peer, header.flag, header.sys_flag,
        header.reconsume_times or 0, known, stored, header.producer_group,
    )  # fmt: skip
    if is_plain and not _is_delayed_or_transactional(known):
        result = broker.store.send(message)
    else:
        result = broker.delivery.accept_message(_add_broker_properties(broker, message))
    return _make_send_response(broker, request, header, config.topic_name, [result], known[props.UNIQ_KEY])


def _add_broker_properties(broker: Broker, message: SentMessage) -> SentMessage:
    """Return the message with the properties that the broker adds to every message."""
    return message._replace(properties={**message.properties, **broker.options.added_properties()})


def _parse_property_dict(text: str) -> dict[str, str]:
    """Parse a message's serialized properties into a dictionary."""
    known = {}
    for entry in text.split(_END):
        key, separator, value = entry.partition("\x01")
        if separator and key and value:
            known[key] = value
    return known


def _is_delayed_or_transactional(properties: dict[str, str]) -> bool:
    return props.DELAY in properties or props.TRAN_MSG in properties or has_delivery_time(properties)


def _is_past_last_retry(
    broker: Broker, request: Command, header: SendMessageRequest, group: SubscriptionGroupConfig
) -> bool:
    """Return whether a retry message has used up its retries, so that it must become a dead letter."""
    limit = group.retry_max_times
    if request.version >= Version.V3_4_9 and header.max_reconsume_times is not None:
        limit = header.max_reconsume_times
    times = header.reconsume_times or 0
    # A consumer that reads in order has already retried often enough before it sends this.
    return times > limit or (times > 0 and broker.locks.is_locked(group.group_name, broker.now_ms()))


def _send_batch(
    broker: Broker, channel: Channel, request: Command, header: SendMessageRequest, config: TopicConfig
) -> Answering:
    """Store all messages of a batch, or none."""
    known = _parse_property_dict(header.properties or "")
    if _is_delayed_or_transactional(known):
        remark = "expected a batch without delays and transactions, which only single messages may have"
        return request.reply(ResponseCode.MESSAGE_ILLEGAL, remark=remark)
    try:
        items = parse_batch(request.body, MAX_BATCH_MESSAGES)
    except LayoutError as error:
        return request.reply(ResponseCode.MESSAGE_ILLEGAL, remark=str(error))
    if not items or sum(len(item.body) for item in items) > broker.store.options.max_message_size_bytes:
        remark = f"expected a batch of 1 to {broker.store.options.max_message_size_bytes} bytes"
        return request.reply(ResponseCode.MESSAGE_ILLEGAL, remark=remark)
    # One record for all messages, as topics with BatchConsumeQueues store a batch.
    if has_batch_queues(config.attributes) and props.UNIQ_KEY in known and len(items) <= MAX_INNER_MESSAGES:
        return _send_inner_batch(broker, channel, request, header, known | {INNER_NUM: str(len(items))})
    messages = []
    for number, item in enumerate(items):
        if number % _ITEMS_OF_STEP == _ITEMS_OF_STEP - 1:
            yield
        own = _parse_property_dict(str(item.properties, "utf-8", "replace"))
        messages.append(SentMessage(
            header.topic, header.queue_id, item.body, header.born_timestamp, channel.peer, item.flag, header.sys_flag,
            header.reconsume_times or 0, own, item.properties, header.producer_group,
        ))  # fmt: skip
    with broker.topics.create_with_rollback(config):
        results = broker.store.send_batch(messages)
    return _make_send_response(broker, request, header, header.topic, results, known.get(props.UNIQ_KEY))


def _send_inner_batch(
    broker: Broker, channel: Channel, request: Command, header: SendMessageRequest, properties: dict[str, str]
) -> Command:
    """Store a batch as one record, for a topic with BatchConsumeQueues."""
    properties[props.CLUSTER] = broker.options.cluster
    message = SentMessage(
        header.topic, header.queue_id, bytes(request.body), header.born_timestamp, channel.peer, header.flag,
        header.sys_flag | INNER_BATCH | NEED_UNWRAP, header.reconsume_times or 0, properties, b"",
        header.producer_group,
    )  # fmt: skip
    key = properties[props.UNIQ_KEY]
    return _make_send_response(
        broker, request, header, header.topic, [broker.store.send(message)], key, {"batchUniqId": key}
    )


def _make_send_response(
    broker: Broker,
    request: Command,
    header: SendMessageRequest,
    topic: str,
    results: list[PutResult],
    unique_key: str | None,
    extra_fields: Mapping[str, str] | None = None,
) -> Command:
    count = broker.statistics.add
    count(statistics.TOPIC_PUT_NUMS, topic, len(results))
    size = sum([result.size for result in results])
    count(statistics.TOPIC_PUT_SIZE, topic, size)
    count(statistics.BROKER_PUT_SIZE, broker.options.cluster, size)
    count(statistics.BROKER_PUT_NUMS, broker.options.cluster, len(results))
    if request.is_one_way:
        return request.reply(ResponseCode.SUCCESS)
    # Not with `to_ext_fields`, for speed, as in `_parse_header`: this runs once for each message.
    first = results[0]
    fields = {
        "msgId": ",".join([result.msg_id for result in results]) if len(results) > 1 else first.msg_id,
        "queueId": str(header.queue_id if first.queue_id is None else first.queue_id),
        "queueOffset": str(first.queue_offset),
        "MSG_REGION": broker.options.region,
        "TRACE_ON": "true",
    }
    if unique_key is not None:
        fields["transactionId"] = unique_key
    if extra_fields is not None:
        fields |= extra_fields
    return request.reply(ResponseCode.SUCCESS, fields)


def send_back(broker: Broker, channel: Channel, request: Command) -> Command:
    """Schedule a retry of a message that a consumer failed to consume, or write a dead letter."""
    header = from_ext_fields(SendBackRequest, request.ext_fields)
    group = broker.groups.find_or_create(header.group)
    if group is None:
        remark = f"subscription group not exist, {header.group}"
        return request.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark)
    if not broker.is_writable:
        return request.reply(ResponseCode.NO_PERMISSION, remark="the broker sending message is forbidden")
    if group.retry_queue_nums <= 0:
        return request.reply(ResponseCode.SUCCESS)
    broker.topics.find_or_create(f"{RETRY_PREFIX}{header.group}", group.retry_queue_nums)
    limit = header.max_reconsume_times if request.version >= Version.V3_4_9 else None
    try:
        result = broker.delivery.send_back(
            header.group, header.offset, delay_level=header.delay_level, max_reconsume_times=limit, client=channel.peer
        )
    except SendBackError as error:
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
    if result is not None:
        topic = header.origin_topic
        if topic is not None and broker.topics.find(topic) is not None:
            broker.statistics.add(statistics.SEND_BACK_NUMS, f"{topic}@{header.group}", 1)
    return request.reply(ResponseCode.SUCCESS)


def new_unique_key(host: Host, now_ms: int) -> str:
    """Return a UNIQ_KEY for a message without one, in the form that clients use: 16 bytes as hexadecimal digits.

        0  4  address, 4 bytes (the last 4 of an IPv6 address)
        4  2  process id
        6  4  random number of this process
        10 4  ms since the month began, UTC
        14 2  counter

    Source: MessageClientIDSetter (5.5.0).
    """
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    since_ms = now_ms - int(month.timestamp() * 1000)
    number = next(_counter) & 0xFFFF
    return _UNIQUE_KEY.pack(host.address[-4:], os.getpid() & 0xFFFF, _OWN, since_ms & 0xFFFFFFFF, number).hex().upper()


HANDLERS: Handlers = {
    RequestCode.SEND_MESSAGE: send_message,
    RequestCode.SEND_MESSAGE_V2: send_message,
    RequestCode.SEND_BATCH_MESSAGE: send_message,
    RequestCode.CONSUMER_SEND_MSG_BACK: send_back,
}
