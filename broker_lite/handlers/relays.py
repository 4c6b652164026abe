"""Requests that the broker relays to one consumer: 307 and 309. Source: AdminBrokerProcessor (5.5.0)."""

from __future__ import annotations

from dataclasses import replace

from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.broker.clients import Member
from commitlake.broker_lite.broker.limits import MAX_RELAYED, MAX_RELAYED_BYTES, check_limit
from commitlake.broker_lite.handlers.kinds import Handlers
from commitlake.broker_lite.protocol import Channel
from commitlake.broker_lite.protocol.channel import OnAnswer
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.remoting.admin_headers import (
    ConsumeDirectlyRequest,
    RunningInfoRequest,
)
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.ext_fields import from_ext_fields
from commitlake.schemas.remoting.frames import Command

ANSWER_MS = 10_000
"""Time limit for a consumer's answer, as in Broker2Client."""


def running_info(broker: Broker, channel: Channel, request: Command) -> Command | None:
    """Relay a request for the state of a consumer."""
    check_load(broker, request)
    header = from_ext_fields(RunningInfoRequest, request.ext_fields)
    return _relay(broker, channel, request, header.consumer_group, header.client_id, request)


def consume_directly(broker: Broker, channel: Channel, request: Command) -> Command | None:
    """Relay a message to a consumer, which consumes it at once."""
    check_load(broker, request)
    header = from_ext_fields(ConsumeDirectlyRequest, request.ext_fields)
    try:
        message = broker.store.get_by_id(header.msg_id or "")
    except LayoutError as error:
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
    body = b"" if message is None else broker.store.record_of(message)
    fields = dict(request.ext_fields) | {"brokerName": broker.options.name}
    relayed = replace(request, ext_fields=fields, body=body)
    return _relay(broker, channel, request, header.consumer_group, header.client_id, relayed)


def _relay(
    broker: Broker, channel: Channel, request: Command, group: str, client_id: str | None, relayed: Command
) -> Command | None:
    member = broker.clients.member(group, client_id)
    if member is None:
        remark = f"The Consumer <{group}> <{client_id}> not online"
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=remark)

    # The consumer receives the body; do not keep it until the answer arrives.
    question = replace(request, ext_fields={}, body=b"")

    def on_answer(answer: Command | None) -> None:
        if answer is None:
            remark = f"consumer <{group}> <{client_id}> Timeout: it disconnected or did not answer"
            channel.send(question.reply(ResponseCode.CONSUME_MSG_TIMEOUT, remark=remark))
        else:
            channel.send(question.reply(answer.code, answer.ext_fields, answer.body, answer.remark))

    ask(broker, member, replace(relayed, flag=0), on_answer)
    return None


def check_load(broker: Broker, request: Command, questions: int = 1) -> None:
    """Raise an error if relaying a request would put too much load on the clients' connections.

    Args:
        questions: number of clients that are asked.

    Raises:
        LimitError: if the request is too large, or too many clients have not answered yet.
    """
    check_limit("bytes of a relayed request", MAX_RELAYED_BYTES, _size_of(request))
    check_limit("requests that clients have not answered", MAX_RELAYED, len(broker.relayed) + questions)


def _size_of(request: Command) -> int:
    return len(request.body) + sum(len(key) + len(value) for key, value in request.ext_fields.items())


def ask(broker: Broker, member: Member, question: Command, on_answer: OnAnswer) -> None:
    """Ask a client; `on_answer` gets None if the client does not answer in time."""
    opaque = member.channel.ask(question, on_answer)
    broker.relayed.append((broker.now_ms() + ANSWER_MS, member.channel, opaque))


def give_up_late(broker: Broker, now_ms: int) -> None:
    """Give up on consumers that have not answered in time."""
    while broker.relayed and broker.relayed[0][0] <= now_ms:
        _, channel, opaque = broker.relayed.popleft()
        channel.give_up(opaque)


HANDLERS: Handlers = {
    RequestCode.GET_CONSUMER_RUNNING_INFO: running_info,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: consume_directly,
}
