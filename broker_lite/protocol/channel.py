"""One peer of a server: who it is, and the way to it.

Requests go both ways. What the server asks has numbers of the server's own, so an answer is told from a request by its
flag alone, and finds whoever waits for it here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from commitlake.schemas.layouts.errors import UnserializableError
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.remoting.codes import ResponseCode
from commitlake.schemas.remoting.frames import FLAG_ONE_WAY, Command, serialize_command

MAX_ASKED = 1024
"""Questions that one peer may owe an answer to; the oldest are forgotten."""

_MAX_REMARK = 1000
_logger = logging.getLogger(__name__)

Answered = Callable[[Command | None], None]
"""Takes the answer, or None where the peer has gone, owes too many, or is waited for no longer."""


class Channel:
    """A connection as handlers see it.

    Attributes:
        peer: its address.
        is_open: whether anything can be sent.
        is_behind: whether it does not read what was sent: it gets answers, and is asked and told nothing more.
        is_encrypted: whether TLS is spoken.
    """

    __slots__ = ("_asked", "_close", "_opaque", "_write", "is_behind", "is_encrypted", "is_open", "peer")

    def __init__(
        self, peer: Host, write: Callable[[bytes], None], close: Callable[[], None], *, is_encrypted: bool = False
    ) -> None:
        """Describe a connection.

        Args:
            peer: the other end.
            write: puts bytes on the way; must not block.
            close: ends the connection.
            is_encrypted: whether TLS is spoken.
        """
        self.peer = peer
        self.is_open = True
        self.is_behind = False
        self.is_encrypted = is_encrypted
        self._write = write
        self._close = close
        self._opaque = 0
        self._asked: dict[int, Answered] = {}

    @property
    def is_private(self) -> bool:
        """Whether nobody on the network can read or change what is sent: from this machine, or over TLS."""
        return self.is_encrypted or self.peer.is_loopback

    def send(self, command: Command) -> None:
        """Send a command; nothing happens where the peer has gone.

        An answer that does not fit a frame is sent as an error: the peer is not to wait for it, and neither for what
        others on the connection are answered. A request that does not is dropped.
        """
        if not self.is_open:
            return
        try:
            frame = serialize_command(command)
        except UnserializableError as error:
            _logger.warning("%s does not get command %d, which fits no frame: %s", self.peer, command.code, error)
            if not command.is_response:
                return
            frame = serialize_command(
                Command(
                    ResponseCode.SYSTEM_ERROR,
                    remark=f"the answer fits no frame: {error}"[:_MAX_REMARK],
                    opaque=command.opaque,
                    flag=command.flag,
                    serialize_type=command.serialize_type,
                )
            )
        self._write(frame)

    def tell(self, request: Command) -> None:
        """Send a request that needs no answer."""
        if self.is_behind:
            return
        self.send(replace(request, opaque=self._next_opaque(), flag=FLAG_ONE_WAY))

    def ask(self, request: Command, answered: Answered) -> int:
        """Send a request; `answered` is called once. Gives the request's number, for `give_up`."""
        if len(self._asked) >= MAX_ASKED:
            self._asked.pop(next(iter(self._asked)))(None)
        opaque = self._next_opaque()
        if self.is_behind:
            answered(None)
            return opaque
        self._asked[opaque] = answered
        self.send(replace(request, opaque=opaque))
        return opaque

    def give_up(self, opaque: int) -> None:
        """Wait no longer for an answer."""
        if answered := self._asked.pop(opaque, None):
            answered(None)

    def _next_opaque(self) -> int:
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        return self._opaque

    def take_answer(self, answer: Command) -> None:
        """Hand an answer to whoever asked; one that nobody waits for is dropped."""
        if answered := self._asked.pop(answer.opaque, None):
            answered(answer)

    def close(self) -> None:
        """End the connection."""
        if self.is_open:
            self._close()
            self.lost()

    def lost(self) -> None:
        """Note that the connection has ended."""
        self.is_open = False
        asked, self._asked = self._asked, {}
        for answered in asked.values():
            answered(None)
