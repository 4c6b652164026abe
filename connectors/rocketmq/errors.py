"""What can go wrong between this client and RocketMQ.

RocketMQError
├── OptionError             an option, or a variable of the environment, that does not fit
├── InvalidMessageError     a message that cannot be sent: what about it, and what is allowed
├── NoRouteError            no name server knows the topic, or none of its queues can be used
├── UnreachableError        no connection, or it broke: whether the request was carried out is not known
│   └── AnswerTimeoutError  nothing came back in time: likewise
├── ProtocolError           the peer sent what is no frame, or an answer that is not what was asked for
└── RefusedError            the peer answered with an error: its code and its words
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError
from commitlake.schemas.remoting.codes import code_name


class RocketMQError(CommitLakeError):
    """Root of the folder's errors; the message is for a user."""


class OptionError(RocketMQError):
    """An option, or a variable of the environment, that does not fit."""


class InvalidMessageError(RocketMQError):
    """A message that cannot be sent."""


class NoRouteError(RocketMQError):
    """No name server knows the topic, or none of its queues can be used."""


class UnreachableError(RocketMQError):
    """No connection, or it broke; whether the request was carried out is not known."""


class AnswerTimeoutError(UnreachableError):
    """Nothing came back in time; whether the request was carried out is not known."""


class ProtocolError(RocketMQError):
    """The peer sent what is no frame, or an answer that is not what was asked for."""


class RefusedError(RocketMQError):
    """The peer answered with an error.

    Attributes:
        address: the peer, `ip:port`.
        code: a `schemas.remoting.codes.ResponseCode`, or a number that is none of them.
        remark: the peer's words.
    """

    def __init__(self, address: str, code: int, remark: str) -> None:
        super().__init__(address, code, remark)  # all of them, so that the error can be pickled
        self.address = address
        self.code = code
        self.remark = remark

    def __str__(self) -> str:
        return f"{self.address} answered {code_name(self.code)}: {self.remark[:500] or 'without a remark'}"
