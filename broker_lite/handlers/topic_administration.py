"""Administration of topics, and of the broker's settings.

Source: AdminBrokerProcessor (5.5.0).
"""

from __future__ import annotations

from typing import NamedTuple

from commitlake.broker_lite.broker.broker import Answering, Broker, Handlers
from commitlake.broker_lite.broker.limits import MAX_ATTRIBUTE_LENGTH, check_limit
from commitlake.broker_lite.protocol import Channel
from commitlake.broker_lite.protocol.large_answer_bodies import select_page, serialize_table_body
from commitlake.broker_lite.stores.engine.topic_names import is_valid_topic
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import BATCH_QUEUE_TYPE, QUEUE_TYPE, SIMPLE_QUEUE_TYPE
from commitlake.schemas.layouts.rocketmq.topics import FILTER_TYPES
from commitlake.schemas.remoting.admin_headers import (
    BrokerConfigResponse,
    CreateTopicRequest,
    TopicPageRequest,
    TopicPageResponse,
    TopicRequest,
)
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.errors import CommandError
from commitlake.schemas.remoting.ext_fields import from_ext_fields, to_ext_fields
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.json_fields import parse_body, serialize_body
from commitlake.schemas.remoting.routes import TopicList
from commitlake.schemas.remoting.topic_and_group_configs import TopicConfig

_ATTRIBUTES = frozenset({QUEUE_TYPE, "cleanup.policy", "message.type", "reserve.time", "lite.topic.expiration"})
"""Source: TopicAttributes (5.5.0)."""
_QUEUE_TYPES = (SIMPLE_QUEUE_TYPE, BATCH_QUEUE_TYPE)
_CLEANUP = "cleanup.policy"
_DELETE = "DELETE"
"""Only cleanup policy of this broker; RocketMQ also has compacted topics."""


MAX_TOPIC_LIST_BYTES = 512 << 10


class TopicConfigList(NamedTuple):
    """Body of UPDATE_AND_CREATE_TOPIC_LIST (18)."""

    topic_config_list: tuple[TopicConfig, ...] = ()


def create_topic(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Create or update a topic."""
    header = from_ext_fields(CreateTopicRequest, request.ext_fields)
    known = broker.topics.find(header.topic)
    config = TopicConfig(
        header.topic,
        header.read_queue_nums,
        header.write_queue_nums,
        header.perm,
        header.topic_filter_type,
        header.topic_sys_flag or 0,
        header.order,
        _changed_attributes(broker, known, header.attributes),
    )
    if (wrong := _find_config_problem(broker, config)) is not None:
        return request.reply(ResponseCode.INVALID_PARAMETER, remark=wrong)
    broker.topics.check_topic_limit(not broker.topics.has(config.topic_name))
    broker.topics.put(config)
    return request.reply(ResponseCode.SUCCESS)


def create_topics(broker: Broker, _channel: Channel, request: Command) -> Answering:
    """Create or update all of several topics, or none if any is invalid."""
    configs = parse_body(
        TopicConfigList, request.body, limit=MAX_TOPIC_LIST_BYTES, is_plain_json=True
    ).topic_config_list
    yield
    # All are checked before the first is changed.
    for config in configs:
        if (wrong := _find_config_problem(broker, config)) is not None:
            return request.reply(ResponseCode.INVALID_PARAMETER, remark=wrong)
        yield
    broker.topics.check_topic_limit(
        len({config.topic_name for config in configs if not broker.topics.has(config.topic_name)})
    )
    for config in configs:
        known = broker.topics.find(config.topic_name)
        broker.topics.put(config._replace(attributes=known.attributes if known else {}))
    return request.reply(ResponseCode.SUCCESS)


def _find_config_problem(broker: Broker, config: TopicConfig) -> str | None:
    """Return a sentence on what is wrong with a topic's settings, or None if they are valid."""
    if not is_valid_topic(config.topic_name):
        return f"topic: expected 1 to 127 characters of %|a-zA-Z0-9_-, found {config.topic_name[:100]!r}"
    if broker.topics.is_system(config.topic_name):
        return f"The topic[{config.topic_name}] is conflict with system topic."
    limit = broker.store.max_queues
    if not (0 < config.read_queue_nums <= limit and 0 < config.write_queue_nums <= limit):
        return f"expected 1 to {limit} queues, found {config.read_queue_nums} and {config.write_queue_nums}"
    if not 0 <= config.perm < 8 or config.topic_filter_type not in FILTER_TYPES:
        return f"expected perm 0 to 7 and a filter type of {FILTER_TYPES}, found {config}"
    return None


def _changed_attributes(broker: Broker, topic: TopicConfig | None, changes: str | None) -> dict[str, str]:
    """Return a topic's attributes after applying changes of the form `+name=value,-name`."""
    attributes = dict(topic.attributes or {}) if topic else {}
    queue_type = attributes.get(QUEUE_TYPE, SIMPLE_QUEUE_TYPE)
    for change in (changes or "").split(","):
        text = change.strip()
        if not text:
            continue
        name, separator, value = text[1:].partition("=")
        if name and name not in _ATTRIBUTES:
            raise CommandError(f"attributes: expected one that this broker knows, found {name[:80]!r}")
        if separator and name == _CLEANUP and value != _DELETE:
            raise CommandError(f"{name}: expected {_DELETE}, the only policy of this broker, found {value[:80]!r}")
        check_limit(f"characters of {name[:80]}", MAX_ATTRIBUTE_LENGTH, len(value))
        if text[0] == "+" and separator and name:
            attributes[name] = value
        elif text[0] == "-" and name:
            attributes.pop(name, None)
        else:
            raise CommandError(f"attributes: expected +name=value or -name, found {text[:80]!r}")
    wanted = attributes.get(QUEUE_TYPE, SIMPLE_QUEUE_TYPE)
    possible = (queue_type,) if topic else _QUEUE_TYPES if broker.store.has_batch_queues else (SIMPLE_QUEUE_TYPE,)
    if wanted not in possible:
        reason = "which an existing topic keeps" if topic else "which this store supports"
        raise CommandError(f"{QUEUE_TYPE}: expected {' or '.join(possible)}, {reason}, found {wanted[:80]!r}")
    return attributes


def get_all_topics(broker: Broker, _channel: Channel, request: Command) -> Answering:
    """Answer with the settings of all topics, or of the requested page."""
    header = from_ext_fields(TopicPageRequest, request.ext_fields)
    names = list(broker.topics.names())
    wanted = select_page(names, header.topic_seq, header.max_topic_num)
    configs = ((name, config) for name in wanted if (config := broker.topics.find(name)))
    body = yield from serialize_table_body(
        "topicConfigTable", configs, lambda: {"dataVersion": broker.topics.data_version}
    )
    return request.reply(ResponseCode.SUCCESS, to_ext_fields(TopicPageResponse(len(names))), body)


def get_system_topics(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Answer with the names of system topics."""
    names = tuple(sorted(name for name in broker.topics.names() if broker.topics.is_system(name)))
    return request.reply(ResponseCode.SUCCESS, body=serialize_body(TopicList(names)))


def get_topic_config(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Answer with the settings of a topic."""
    header = from_ext_fields(TopicRequest, request.ext_fields)
    config = broker.topics.find(header.topic)
    if config is None:
        remark = f"No topic in this broker. topic: {header.topic}"
        return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
    return request.reply(ResponseCode.SUCCESS, body=serialize_body(config))


def delete_topic(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Delete a topic, its queues and the offsets of its groups; its messages stay in the log."""
    header = from_ext_fields(TopicRequest, request.ext_fields)
    if not header.topic or broker.topics.is_system(header.topic):
        remark = f"The topic[{header.topic}] is conflict with system topic."
        return request.reply(ResponseCode.INVALID_PARAMETER, remark=remark)
    broker.topics.remove(header.topic)
    broker.store.delete_queues(header.topic)
    broker.store.config.consumer_offsets.remove_if(lambda topic, _: topic == header.topic)
    broker.statistics.remove_key(header.topic)
    return request.reply(ResponseCode.SUCCESS)


def get_broker_config(broker: Broker, _channel: Channel, request: Command) -> Command:
    """Answer with the broker's settings under RocketMQ's names."""
    options = broker.options
    settings = {
        "brokerName": options.name,
        "brokerClusterName": options.cluster,
        "brokerId": options.broker_id,
        "brokerIP1": str(options.address).rpartition(":")[0],
        "listenPort": options.address.port,
        "autoCreateTopicEnable": str(options.auto_create_topics).lower(),
        "autoCreateSubscriptionGroup": str(options.auto_create_groups).lower(),
        "traceTopicEnable": str(options.trace_topic).lower(),
        "flushDiskType": "SYNC_FLUSH" if options.sync_flush else "ASYNC_FLUSH",
        "brokerRole": options.role,
        "slaveReadEnable": str(options.slave_read).lower(),
        "useServerSideResetOffset": "true",
        "storePathRootDir": broker.store.path,
        **broker.store.options.settings,
        "transactionTimeOut": options.transaction_timeout_ms,
        "transactionCheckInterval": options.transaction_check_interval_ms,
        "transactionCheckMax": options.transaction_check_max,
    }
    text = "".join(f"{name}={value}\n" for name, value in settings.items())
    version = to_ext_fields(BrokerConfigResponse(str(broker.topics.change_count)))
    return request.reply(ResponseCode.SUCCESS, version, text.encode())


def update_broker_config(_broker: Broker, _channel: Channel, request: Command) -> Command:
    """Refuse the request, because the settings cannot be changed while the broker runs."""
    remark = "the settings of this broker are set on its command line and cannot be changed by a request"
    return request.reply(ResponseCode.NO_PERMISSION, remark=remark)


HANDLERS: Handlers = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: create_topic,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: create_topics,
    RequestCode.GET_ALL_TOPIC_CONFIG: get_all_topics,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: get_system_topics,
    RequestCode.GET_TOPIC_CONFIG: get_topic_config,
    RequestCode.DELETE_TOPIC_IN_BROKER: delete_topic,
    RequestCode.GET_BROKER_CONFIG: get_broker_config,
    RequestCode.UPDATE_BROKER_CONFIG: update_broker_config,
}
