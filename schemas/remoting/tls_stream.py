"""TLS connection without a socket, which decrypts received bytes and encrypts bytes to send.

Not thread-safe. The caller passes bytes from its socket to `receive`, and sends the bytes that `take_output` returns.
"""

from __future__ import annotations

import contextlib
import ssl

HANDSHAKE_BYTE = 0x16
"""First byte of a TLS client; RocketMQ's frames cannot begin with it, because they would be too long."""
_READ_BYTES = 256 * 1024


class TlsStream:
    """One end of a TLS connection.

    Attributes:
        is_established: True after the handshake.
        is_ended: True after the peer has ended the session.
    """

    def __init__(self, context: ssl.SSLContext, *, is_server: bool, server_name: str | None = None) -> None:
        """Start the connection; a client's first bytes are in `take_output` at once.

        Args:
            context: context with the certificates.
            is_server: whether this is the server's end.
            server_name: host name that a client connects to.

        Raises:
            ssl.SSLError: if the handshake cannot start.
        """
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, is_server, server_name)
        self.is_established = False
        self.is_ended = False
        if not is_server:
            self._shake_hands()

    def receive(self, data: bytes | memoryview) -> bytes:
        """Decrypt received bytes, and return the plain text that is complete.

        Raises:
            ssl.SSLError: if the peer violates the protocol or is refused; `take_output` may contain an alert for it.
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
        """Encrypt plain text after the handshake; the result is in `take_output`."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._object.write(rest) :]

    def take_output(self) -> bytes:
        """Return and clear the encrypted bytes to send."""
        return self._outgoing.read()

    def end(self) -> None:
        """End the session."""
        if self.is_established:
            with contextlib.suppress(ssl.SSLError):  # the peer has not ended it yet
                self._object.unwrap()
