"""The bytes of one connection: plain text, or TLS if the first byte says so.

As in RocketMQ, one port serves both: a client that speaks TLS begins with 0x16. Source: NettyRemotingServer (5.5.0).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

from commitlake.schemas.errors import CommitLakeError
from commitlake.schemas.remoting.tls_contexts import ServerTls
from commitlake.schemas.remoting.tls_stream import HANDSHAKE_BYTE, TlsStream


class WireError(CommitLakeError):
    """A peer that is not served: it does not speak what this port does, or breaks the protocol."""


class Wire:
    """One connection's bytes."""

    def __init__(self, tls: ServerTls | None, write: Callable[[bytes], None]) -> None:
        """Nothing has come yet.

        Args:
            tls: how TLS is spoken; None for plain text only.
            write: sends bytes to the peer.
        """
        self._tls = tls
        self._write = write
        self._is_plain: bool | None = None
        self._stream: TlsStream | None = None

    @property
    def is_new(self) -> bool:
        """Whether nothing has come yet."""
        return self._is_plain is None

    @property
    def is_encrypted(self) -> bool:
        """Whether TLS is spoken."""
        return self._stream is not None and self._stream.is_established

    @property
    def is_shaking_hands(self) -> bool:
        """Whether a TLS handshake is to be done before anything else: it has begun, or must come first."""
        if self._stream is not None:
            return not self._stream.is_established
        return not self._is_plain and self._tls is not None and self._tls.is_enforced

    @property
    def is_ended(self) -> bool:
        """Whether the peer has said that nothing follows."""
        return self._stream is not None and self._stream.is_ended

    def receive(self, data: bytes) -> bytes:
        """Take bytes of the peer; returns what they say in plain text.

        Raises:
            WireError: if the peer is not served.
        """
        if self._is_plain is None and data:
            self._begin(data[0])
        if self._stream is None:
            return data
        try:
            plain = self._stream.receive(data)
        except ssl.SSLError as error:
            self._send_output()  # the alert that says why
            raise WireError(f"TLS failed: {error.reason or error}") from None
        self._send_output()
        return plain

    def _begin(self, first_byte: int) -> None:
        is_handshake = first_byte == HANDSHAKE_BYTE
        if self._tls is None and is_handshake:
            raise WireError("expected plain text, found a TLS handshake; TLS is off")
        if self._tls is not None and self._tls.is_enforced and not is_handshake:
            raise WireError("expected a TLS handshake, found plain text; TLS is enforced")
        self._is_plain = not is_handshake
        if self._tls is not None and is_handshake:
            self._stream = TlsStream(self._tls.context, is_server=True)

    def send(self, data: bytes) -> None:
        """Send plain text to the peer.

        Raises:
            WireError: if that is not possible any more.
        """
        if self._stream is None:
            self._write(data)
            return
        try:
            self._stream.send(data)
        except ssl.SSLError as error:
            raise WireError(f"TLS failed: {error.reason or error}") from None
        self._send_output()

    def end(self) -> None:
        """Say that nothing follows, if there is a way to say it."""
        if self._stream is not None:
            self._stream.end()
            self._send_output()

    def _send_output(self) -> None:
        if self._stream is not None and (output := self._stream.take_output()):
            self._write(output)
