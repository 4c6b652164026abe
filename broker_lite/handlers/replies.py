"""Replies of consumers to producers: SEND_REPLY_MESSAGE, forwarded as PUSH_REPLY_MESSAGE_TO_CLIENT.

Source: ReplyMessageProcessor (5.5.0). The reply is also stored in the cluster's reply topic.
"""

from __future__ import annotations

from typing import NamedTuple

from commitlake.broker_lite.broker.broker import Broker, Handlers
from commitlake.broker_lite.broker.clients import Member
from commitlake.broker_lite.broker.limits import check_limit
from commitlake.broker_lite.protocol import Channel
from commitlake.broker_lite.stores.rocketmq.message_preparation import SentMessage
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.properties import CLUSTER, parse_properties
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.ext_fields import Long, to_ext_fields
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.headers import SendMessageRequest, SendMessageResponse, parse_send_request

REPLY_TO_CLIENT = "REPLY_TO_CLIENT"


class ReplyRequest(NamedTuple):
    """Header of PUSH_REPLY_MESSAGE_TO_CLIENT (326), which the broker sends."""

    born_host: str
    store_host: str
    store_timestamp: Long
    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: Long
    flag: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool = False


def send_reply(broker: Broker, channel: Channel, request: Command) -> Command | None:
    """Store a consumer's reply, and push it to the client that sent the request."""
    header = parse_send_request(request)
    known = dict(parse_properties((header.properties or "").encode("utf-8", "replace")))
    known |= broker.options.added_properties()
    del known[CLUSTER]
    queue_id = max(0, header.queue_id)
    text = "".join(f"{key}\x01{value}\x02" for key, value in known.items())
    message = SentMessage(
        f"{broker.options.cluster}_REPLY_TOPIC", 0, bytes(request.body), header.born_timestamp, channel.peer,
        header.flag, header.sys_flag, 0, known, text.encode("utf-8", "replace"), header.producer_group,
    )  # fmt: skip
    limit = broker.store.options.max_message_size_bytes
    check_limit("bytes of a reply", limit, len(request.body))
    check_limit("bytes of a reply's properties", props.MAX_SIZE, len(message.stored_properties))
    if not broker.is_writable:
        return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark="service not available now: the disk is full")
    asker = _find_client(broker, known.get(REPLY_TO_CLIENT))
    if asker is None:
        remark = f"push reply message fail, channel of <{known.get(REPLY_TO_CLIENT)}> not found."
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
    asker.channel.ask(_push_reply(broker, channel, header, text, bytes(request.body)), lambda _: None)
    result = broker.store.send(message)
    response = SendMessageResponse(result.msg_id, queue_id, result.queue_offset, known.get(props.UNIQ_KEY))
    return request.reply(ResponseCode.SUCCESS, to_ext_fields(response))


def _find_client(broker: Broker, client_id: str | None) -> Member | None:
    for members in broker.clients.producers.values():
        if client_id in members:
            return members[client_id]
    return None


def _push_reply(broker: Broker, channel: Channel, header: SendMessageRequest, properties: str, body: bytes) -> Command:
    pushed = ReplyRequest(
        str(channel.peer),
        str(broker.options.address),
        broker.now_ms(),
        header.producer_group,
        header.topic,
        header.default_topic,
        header.default_topic_queue_nums,
        header.queue_id,
        header.sys_flag,
        header.born_timestamp,
        header.flag,
        properties,
        header.reconsume_times,
        header.unit_mode,
    )
    return Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, to_ext_fields(pushed), body)


HANDLERS: Handlers = {
    RequestCode.SEND_REPLY_MESSAGE: send_reply,
    RequestCode.SEND_REPLY_MESSAGE_V2: send_reply,
}
