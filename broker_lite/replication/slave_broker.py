"""Broker of a slave: it answers pulls and queries, and refuses everything that would be written to the log.

Refused requests and messages are those of RocketMQ: a producer sees that the broker is busy, and tries another one.
Source: SendMessageProcessor.rejectRequest, EndTransactionProcessor, AdminBrokerProcessor.validateSlave,
DefaultPullMessageResultHandler (5.5.0).
"""

from __future__ import annotations

from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.broker_lite.handlers.kinds import Answering
from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.frames import Command

_BUSY = "[REJECTREQUEST]system busy, start flow control for a while"
_NOT_HERE = "Can't modify topic or subscription group from slave broker, please execute it from master broker."

_REFUSALS: dict[int, tuple[ResponseCode, str | None]] = {
    RequestCode.SEND_MESSAGE: (ResponseCode.SYSTEM_BUSY, _BUSY),
    RequestCode.SEND_MESSAGE_V2: (ResponseCode.SYSTEM_BUSY, _BUSY),
    RequestCode.SEND_BATCH_MESSAGE: (ResponseCode.SYSTEM_BUSY, _BUSY),
    RequestCode.CONSUMER_SEND_MSG_BACK: (ResponseCode.SYSTEM_BUSY, _BUSY),
    RequestCode.SEND_REPLY_MESSAGE: (ResponseCode.SYSTEM_BUSY, _BUSY),
    RequestCode.SEND_REPLY_MESSAGE_V2: (ResponseCode.SYSTEM_BUSY, _BUSY),
    RequestCode.END_TRANSACTION: (ResponseCode.SLAVE_NOT_AVAILABLE, None),
    RequestCode.UPDATE_AND_CREATE_TOPIC: (ResponseCode.SYSTEM_ERROR, _NOT_HERE),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: (ResponseCode.SYSTEM_ERROR, _NOT_HERE),
    RequestCode.DELETE_TOPIC_IN_BROKER: (ResponseCode.SYSTEM_ERROR, _NOT_HERE),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (ResponseCode.SYSTEM_ERROR, _NOT_HERE),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: (ResponseCode.SYSTEM_ERROR, _NOT_HERE),
}
_PULLS = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})


class SlaveDispatcher(Dispatcher):
    """Dispatcher for a store that only `LogCopy` writes to."""

    def _answer(self, channel: Channel, request: Command) -> Command | Answering | None:
        refusal = _REFUSALS.get(request.code)
        if refusal is not None:
            return request.reply(refusal[0], remark=refusal[1])
        return super()._answer(channel, request)

    def _send(self, channel: Channel, request: Command, answer: Command | None, before: int) -> None:
        if answer is not None and answer.code == ResponseCode.PULL_OFFSET_MOVED and request.code in _PULLS:
            # The offset may exist on the master, whose log may be longer at both ends.
            fields = {**answer.ext_fields, "nextBeginOffset": request.ext_fields.get("queueOffset", "0")}
            answer = request.reply(ResponseCode.PULL_RETRY_IMMEDIATELY, fields, remark=answer.remark)
        super()._send(channel, request, answer, before)

    def tick(self, now_ms: int) -> bool:
        """Do periodic work; delayed messages and transactions are the master's work."""
        self.broker.statistics.tick(now_ms)
        self._attend_clients(now_ms)
        return False
