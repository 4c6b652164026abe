"""Requests that the broker forwards to consumers, whose answers it returns.

    GET_CONSUMER_RUNNING_INFO (307) and CONSUME_MESSAGE_DIRECTLY (309), to one consumer
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), to all members of a group, as GET_CONSUMER_STATUS_FROM_CLIENT (221)

The answer to 223 is sent when the last member has answered. A member's answer is JSON of any kind, so the broker does
not parse it: a regular expression checks that it is a table of offsets, and its bytes are copied.

    {"messageQueueTable":{{"brokerName":"a","queueId":1,"topic":"T"}:17}}    a member's answer
    {"consumerTable":{"client":{...}},"messageQueueTable":{}}                 the broker's answer

Source: AdminBrokerProcessor, Broker2Client.getConsumeStatus (5.5.0).
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

from commitlake.broker_lite.broker.broker import Answering, Broker, Handlers
from commitlake.broker_lite.broker.clients import Member
from commitlake.broker_lite.broker.limits import (
    MAX_MEMBERS_ASKED,
    MAX_NAME_LENGTH,
    MAX_RELAYED,
    MAX_RELAYED_BYTES,
    MAX_STATUS_BYTES,
    MAX_STATUSES_BYTES,
    check_limit,
)
from commitlake.broker_lite.protocol import Channel
from commitlake.broker_lite.protocol.channel import OnAnswer
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.remoting.admin_headers import ConsumeDirectlyRequest, ConsumerStatusRequest, RunningInfoRequest
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.ext_fields import from_ext_fields, to_ext_fields
from commitlake.schemas.remoting.fastjson import serialize_compact
from commitlake.schemas.remoting.frames import Command

ANSWER_MS = 10_000
"""Time limit for a consumer's answer, as in Broker2Client."""
_MEMBERS_OF_STEP = 16

_BLANK = r"[ \t\r\n]*+"
_TEXT = r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+"'
_NUMBER = r"-?(?:0|[1-9][0-9]{0,18})"
_FIELD = rf"{_BLANK}{_TEXT}{_BLANK}:{_BLANK}(?:{_TEXT}|{_NUMBER}){_BLANK}"
_QUEUE = rf"(?:{_TEXT}|\{{{_FIELD}(?:,{_FIELD}){{0,7}}\}})"
_ENTRY = rf"{_BLANK}{_QUEUE}{_BLANK}:{_BLANK}{_NUMBER}{_BLANK}"
_TABLE = rf"\{{(?:{_ENTRY}(?:,{_ENTRY})*|{_BLANK})\}}"
_NO_TABLE = rf'"consumerTable"{_BLANK}:{_BLANK}\{{{_BLANK}\}}'
_STATUS = re.compile(
    rf'{_BLANK}\{{{_BLANK}(?:{_NO_TABLE}{_BLANK},{_BLANK})?"messageQueueTable"{_BLANK}:{_BLANK}(?P<table>{_TABLE})'
    rf"{_BLANK}(?:,{_BLANK}{_NO_TABLE}{_BLANK})?\}}{_BLANK}"
)
"""A member's answer. Nothing is matched twice, so the time is proportional to the length.

The list of entries is not possessive, because Python 3.11.2 then accepts a comma after the last one.
"""


def get_consumer_running_info(broker: Broker, channel: Channel, request: Command) -> Command | None:
    """Forward a request for a consumer's running info (its state) to that consumer."""
    check_relay_limits(broker, request)
    header = from_ext_fields(RunningInfoRequest, request.ext_fields)
    return _relay_request(broker, channel, request, header.consumer_group, header.client_id, request)


def consume_message_directly(broker: Broker, channel: Channel, request: Command) -> Command | None:
    """Forward a message to a consumer for immediate consumption."""
    check_relay_limits(broker, request)
    header = from_ext_fields(ConsumeDirectlyRequest, request.ext_fields)
    try:
        message = broker.store.get_by_id(header.msg_id or "")
    except LayoutError as error:
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
    body = b"" if message is None else broker.store.record_for_client(message)
    fields = dict(request.ext_fields) | {"brokerName": broker.options.name}
    relayed = replace(request, ext_fields=fields, body=body)
    return _relay_request(broker, channel, request, header.consumer_group, header.client_id, relayed)


def _relay_request(
    broker: Broker, channel: Channel, request: Command, group: str, client_id: str | None, forwarded_request: Command
) -> Command | None:
    member = broker.clients.find_member(group, client_id)
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

    ask_member(broker, member, replace(forwarded_request, flag=0), on_answer)
    return None


def check_relay_limits(broker: Broker, request: Command, client_count: int = 1) -> None:
    """Raise an error if a request to be forwarded is too large, or too many forwarded ones have no answer yet.

    Args:
        client_count: number of clients that are asked.

    Raises:
        CommandError: if the request is too large, or too many clients have not answered yet.
    """
    check_limit("bytes of a relayed request", MAX_RELAYED_BYTES, _request_size(request))
    check_limit("requests that clients have not answered", MAX_RELAYED, len(broker.relayed) + client_count)


def _request_size(request: Command) -> int:
    return len(request.body) + sum(len(key) + len(value) for key, value in request.ext_fields.items())


def ask_member(broker: Broker, member: Member, request: Command, on_answer: OnAnswer) -> None:
    """Send a request to a client of a group; `on_answer` gets the answer, or None if there is none in time."""
    opaque = member.channel.ask(request, on_answer)
    broker.relayed.append((broker.now_ms() + ANSWER_MS, member.channel, opaque))


def expire_relayed_requests(broker: Broker, now_ms: int) -> None:
    """Stop waiting for answers of clients to forwarded requests that are late."""
    while broker.relayed and broker.relayed[0][0] <= now_ms:
        _, channel, opaque = broker.relayed.popleft()
        channel.stop_waiting_for_answer(opaque)


def get_consumer_status(broker: Broker, channel: Channel, request: Command) -> Answering:
    """Ask each member of a group for its offsets in a topic's queues, and answer with all of them."""
    header = from_ext_fields(ConsumerStatusRequest, request.ext_fields)
    check_limit("characters of a name", MAX_NAME_LENGTH, max(len(header.topic), len(header.group)))
    members = []
    for number, member in enumerate(broker.clients.members(header.group)):
        if number % _MEMBERS_OF_STEP == _MEMBERS_OF_STEP - 1:
            yield
        if not header.client_addr or header.client_addr in (member.client_id, str(member.channel.peer)):
            members.append(member)
    if not members:
        remark = f"No Any Consumer online in the consumer group: [{header.group}]"
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
    check_limit("members asked at once", MAX_MEMBERS_ASKED, len(members))
    check_relay_limits(broker, request, len(members))
    statuses = _StatusCollector(broker, channel, request, members)
    question = Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, to_ext_fields(header))
    for number, member in enumerate(members):
        if statuses.is_answered:
            break
        ask_member(broker, member, question, partial(statuses.add, member.client_id))
        if number % _MEMBERS_OF_STEP == _MEMBERS_OF_STEP - 1:
            yield
    return None


class _StatusCollector:
    """Collector of the offsets that a group's members report; it answers when all members have answered.

    Attributes:
        is_answered: True after the answer was sent: the offsets, or an error because they are too large.
    """

    def __init__(self, broker: Broker, channel: Channel, request: Command, members: list[Member]) -> None:
        self._broker = broker
        self._channel = channel
        # The body and the fields of the request have no meaning here, and would be kept as long as the answer.
        self._question = replace(request, ext_fields={}, body=b"")
        self._waiting = {member.client_id for member in members}
        self._tables: dict[str, bytes] = {}
        self._size = 0
        self.is_answered = False

    def add(self, client_id: str, answer: Command | None) -> None:
        """Add a member's answer, or None if the member did not answer in time."""
        self._waiting.discard(client_id)
        if self.is_answered:
            return
        if not self._channel.is_open:
            self._send_collected_answer(None)
            return
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            table = parse_member_offsets(answer.body)
            if not self._broker.kept_answers.take(self._channel, len(table)):
                remark = f"offsets of the members: expected at most {MAX_STATUSES_BYTES} bytes, found more"
                self._send_collected_answer(self._question.reply(ResponseCode.SYSTEM_ERROR, remark=remark))
                return
            self._size += len(table)
            self._tables[client_id] = table
        if not self._waiting:
            tables = b",".join([serialize_compact(name) + b":" + table for name, table in self._tables.items()])
            body = b'{"consumerTable":{' + tables + b'},"messageQueueTable":{}}'
            self._send_collected_answer(self._question.reply(ResponseCode.SUCCESS, body=body))

    def _send_collected_answer(self, answer: Command | None) -> None:
        """Send the collected answer, and free the memory of the members' answers."""
        self.is_answered = True
        self._tables.clear()
        self._broker.kept_answers.release(self._channel, self._size)
        self._size = 0
        if answer is not None:
            self._channel.send(answer)


def parse_member_offsets(body: bytes | memoryview) -> bytes:
    """Return the offset table in a member's answer, as JSON; an empty table if the answer has another form."""
    if len(body) > MAX_STATUS_BYTES:
        return b"{}"
    try:
        found = _STATUS.fullmatch(str(body, "utf-8"))
    except UnicodeDecodeError:
        return b"{}"
    return b"{}" if found is None else found["table"].encode()


HANDLERS: Handlers = {
    RequestCode.GET_CONSUMER_RUNNING_INFO: get_consumer_running_info,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: consume_message_directly,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: get_consumer_status,
}
