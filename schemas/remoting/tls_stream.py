"""One end of a TLS connection, without the connection: encrypted bytes in, plain bytes out, and back.

Not thread-safe. No sockets here: whoever has one passes on what `receive` is given and what `take_output` returns.
"""

from __future__ import annotations

import contextlib
import ssl

HANDSHAKE_BYTE = 0x16
"""The first byte of a client that speaks TLS; RocketMQ's frames cannot begin with it, they would be too long."""
_READ_BYTES = 256 * 1024


class TlsStream:
    """One end.

    Attributes:
        is_established: whether the handshake is done.
        is_ended: whether the peer has said that nothing follows.
    """

    def __init__(self, context: ssl.SSLContext, *, is_server: bool, server_name: str | None = None) -> None:
        """Begin; a client's `take_output` has its first bytes at once.

        Args:
            context: certificates.
            is_server: which end this is.
            server_name: whom a client connects to.

        Raises:
            ssl.SSLError: if the handshake cannot begin.
        """
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, is_server, server_name)
        self.is_established = False
        self.is_ended = False
        if not is_server:
            self._shake_hands()

    def receive(self, data: bytes | memoryview) -> bytes:
        """Take encrypted bytes; returns the plain bytes that are whole with them.

        Raises:
            ssl.SSLError: if the peer breaks the protocol or is refused; an alert for it may be in `take_output`.
        """
        self._incoming.write(data)
        if not self.is_established:
            self._shake_hands()
            if not self.is_established:
                return b""
        parts = []
        with contextlib.suppress(ssl.SSLWantReadError):
            while part := self._object.read(_READ_BYTES):
                parts.append(part)
            self.is_ended = True
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _shake_hands(self) -> None:
        with contextlib.suppress(ssl.SSLWantReadError):
            self._object.do_handshake()
            self.is_established = True

    def send(self, data: bytes) -> None:
        """Encrypt plain bytes, once the handshake is done; they are then in `take_output`."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._object.write(rest) :]

    def take_output(self) -> bytes:
        """Return the encrypted bytes that are to be sent to the peer."""
        return self._outgoing.read()

    def end(self) -> None:
        """Say that nothing follows."""
        if self.is_established:
            with contextlib.suppress(ssl.SSLError):  # the peer has not said it yet
                self._object.unwrap()
