"""Handler of failed consumption (36). Source: AbstractSendMessageProcessor.consumerSendMsgBack (5.5.0)."""

from __future__ import annotations

from commitlake.broker_lite.broker import statistics
from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.delivery import SendBackError
from commitlake.broker_lite.handlers.kinds import Handlers
from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.layouts.rocketmq.topics import RETRY_PREFIX
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.ext_fields import from_ext_fields
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.headers import SendBackRequest
from commitlake.schemas.remoting.versions import Version


def send_back(broker: Broker, channel: Channel, request: Command) -> Command:
    """Schedule a retry of a message that a consumer failed to consume, or write a dead letter."""
    header = from_ext_fields(SendBackRequest, request.ext_fields)
    group = broker.groups.find(header.group)
    if group is None:
        remark = f"subscription group not exist, {header.group}"
        return request.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark)
    if not broker.is_writable:
        return request.reply(ResponseCode.NO_PERMISSION, remark="the broker sending message is forbidden")
    if group.retry_queue_nums <= 0:
        return request.reply(ResponseCode.SUCCESS)
    broker.topics.ensure(f"{RETRY_PREFIX}{header.group}", group.retry_queue_nums)
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


HANDLERS: Handlers = {RequestCode.CONSUMER_SEND_MSG_BACK: send_back}
