"""Errors of the communication with RocketMQ.

RocketMQError
├── ClientOptionError           an option, or an environment variable, that is not valid
├── InvalidMessageError         a message that cannot be sent: the fault, and what is allowed
├── NoRouteError                no name server knows the topic, or none of its queues can be used
├── UnreachableError            no connection, or no answer in time; the request may or may not have been executed
│   └── BrokenConnectionError   the connection broke before the answer; the request may or may not have been executed
├── ProtocolError               the peer sent an invalid frame, or an answer that does not fit the request
│   └── PlaceError              an answer that messages are stored, without a valid position
└── RefusedError                the peer answered with an error: its code and its message
"""

from __future__ import annotations

import re

from commitlake.connectors.printable import escape_line
from commitlake.schemas.errors import CommitLakeError, ExitCode
from commitlake.schemas.remoting.codes import ResponseCode, describe_response_code

_TOO_LARGE = re.compile(r"\bsize (of messageExtBatch )?exceeded")
"""Error messages of the batch encoders in 4.9.7 and 5.5.0."""


class RocketMQError(CommitLakeError):
    """Base class of this package's errors; the message is for a user."""

    exit_code = ExitCode.FAILED


class ClientOptionError(RocketMQError):
    """An invalid option or environment variable."""

    exit_code = ExitCode.USAGE


class InvalidMessageError(RocketMQError):
    """A message that cannot be sent."""

    exit_code = ExitCode.USAGE


class NoRouteError(RocketMQError):
    """No name server knows the topic, or none of its queues can be used."""


class UnreachableError(RocketMQError):
    """The connection failed or broke, or no answer arrived in time; the request may have been carried out."""


class BrokenConnectionError(UnreachableError):
    """The connection broke; the request may have been carried out."""


class ProtocolError(RocketMQError):
    """The peer sent an invalid frame, or an answer of the wrong kind."""


class PositionError(ProtocolError):
    """The broker confirms that messages are stored, but gives no valid position."""


class RefusedError(RocketMQError):
    """The peer answered with an error.

    Attributes:
        address: the peer, `ip:port`.
        code: a `schemas.remoting.codes.ResponseCode`, or an unknown number.
        remark: the peer's error message.
    """

    def __init__(self, address: str, code: int, remark: str) -> None:
        super().__init__(address, code, remark)  # all attributes, so that the error can be pickled
        self.address = address
        self.code = code
        self.remark = remark
        if code == ResponseCode.NO_PERMISSION:  # a retry does not help
            self.exit_code = ExitCode.REFUSED

    @property
    def is_message_fault(self) -> bool:
        """Return True if the message itself is the reason for the refusal, so that a retry cannot succeed.

        If a batch contains a message that is too large, brokers answer SYSTEM_ERROR with their encoder's exception.
        """
        if self.code == ResponseCode.SYSTEM_ERROR:
            return _TOO_LARGE.search(self.remark) is not None
        return self.code == ResponseCode.MESSAGE_ILLEGAL

    def __str__(self) -> str:
        remark = escape_line(self.remark[:500]) or "without a remark"
        return f"{self.address} answered {describe_response_code(self.code)}: {remark}"
