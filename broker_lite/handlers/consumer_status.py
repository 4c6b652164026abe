"""Offsets that the members of a group report: 223. Source: Broker2Client.getConsumeStatus (5.5.0).

The broker asks every member (221) and answers when the last one has answered. A member's answer is JSON of any kind, so
the broker does not parse it: a regular expression checks that it is a table of offsets, and its bytes are copied.

    {"messageQueueTable":{{"brokerName":"a","queueId":1,"topic":"T"}:17}}    a member's answer
    {"consumerTable":{"client":{...}},"messageQueueTable":{}}                 the broker's answer
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.broker.clients import Member
from commitlake.broker_lite.broker.limits import (
    MAX_MEMBERS_ASKED,
    MAX_NAME_LENGTH,
    MAX_STATUS_BYTES,
    MAX_STATUSES_BYTES,
    check_limit,
)
from commitlake.broker_lite.handlers.kinds import Answering, Handlers
from commitlake.broker_lite.handlers.relays import ask, check_load
from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.remoting.admin_headers import ConsumerStatusRequest
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.ext_fields import from_ext_fields, to_ext_fields
from commitlake.schemas.remoting.fastjson import serialize_compact
from commitlake.schemas.remoting.frames import Command

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


def consumer_status(broker: Broker, channel: Channel, request: Command) -> Answering:
    """Answer with the offsets that the members of a group report for a topic's queues."""
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
    check_load(broker, request, len(members))
    statuses = _Statuses(broker, channel, request, members)
    question = Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, to_ext_fields(header))
    for number, member in enumerate(members):
        if statuses.is_answered:
            break
        ask(broker, member, question, partial(statuses.add, member.client_id))
        if number % _MEMBERS_OF_STEP == _MEMBERS_OF_STEP - 1:
            yield
    return None


class _Statuses:
    """Offsets of a group's members, sent when the last member has answered.

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
        """Add the answer of a member; None if it does not answer."""
        self._waiting.discard(client_id)
        if self.is_answered:
            return
        if not self._channel.is_open:
            self._finish(None)
            return
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            table = offsets_in(answer.body)
            if not self._broker.kept_answers.take(self._channel, len(table)):
                remark = f"offsets of the members: expected at most {MAX_STATUSES_BYTES} bytes, found more"
                self._finish(self._question.reply(ResponseCode.SYSTEM_ERROR, remark=remark))
                return
            self._size += len(table)
            self._tables[client_id] = table
        if not self._waiting:
            tables = b",".join([serialize_compact(name) + b":" + table for name, table in self._tables.items()])
            body = b'{"consumerTable":{' + tables + b'},"messageQueueTable":{}}'
            self._finish(self._question.reply(ResponseCode.SUCCESS, body=body))

    def _finish(self, answer: Command | None) -> None:
        """Send the answer, and drop what was kept for it."""
        self.is_answered = True
        self._tables.clear()
        self._broker.kept_answers.release(self._channel, self._size)
        self._size = 0
        if answer is not None:
            self._channel.send(answer)


def offsets_in(body: bytes | memoryview) -> bytes:
    """Return the table of offsets in a member's answer, as JSON; an empty one if the answer contains anything else."""
    if len(body) > MAX_STATUS_BYTES:
        return b"{}"
    try:
        found = _STATUS.fullmatch(str(body, "utf-8"))
    except UnicodeDecodeError:
        return b"{}"
    return b"{}" if found is None else found["table"].encode()


HANDLERS: Handlers = {
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: consumer_status,
}
