"""Transport of a connection: plain text, or TLS if the first byte that arrives begins a TLS handshake.

As in RocketMQ, one port serves both: a TLS client starts with the byte 0x16. Source: NettyRemotingServer (5.5.0).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

from commitlake.schemas.errors import CommitLakeError
from commitlake.schemas.remoting.tls import HANDSHAKE_BYTE, ServerTls, TlsStream


class ConnectionCodecError(CommitLakeError):
    """Error for a peer that uses the wrong transport or violates the TLS protocol."""


class ConnectionCodec:
    """Encoder and decoder for the bytes of one connection: plain text, or TLS if the peer begins with it."""

    def __init__(self, tls: ServerTls | None, write: Callable[[bytes], None]) -> None:
        """Create the coder of a connection whose first bytes will show whether it uses TLS.

        Args:
            tls: TLS settings; None for plain text only.
            write: sends bytes to the peer.
        """
        self._tls = tls
        self._write = write
        self._is_plain: bool | None = None
        self._stream: TlsStream | None = None

    @property
    def is_new(self) -> bool:
        """True until the first byte of the connection arrives."""
        return self._is_plain is None

    @property
    def is_encrypted(self) -> bool:
        """True if the connection uses TLS."""
        return self._stream is not None and self._stream.is_established

    @property
    def is_in_handshake(self) -> bool:
        """True if a TLS handshake is in progress or required first."""
        if self._stream is not None:
            return not self._stream.is_established
        return not self._is_plain and self._tls is not None and self._tls.is_enforced

    @property
    def has_peer_ended_tls(self) -> bool:
        """True if the peer has ended the TLS session."""
        return self._stream is not None and self._stream.is_ended

    def receive(self, data: bytes) -> bytes:
        """Decode received bytes, and return the plain text.

        Raises:
            WireError: if the peer uses the wrong transport or violates the TLS protocol.
        """
        if self._is_plain is None and data:
            self._detect_transport(data[0])
        if self._stream is None:
            return data
        try:
            plain = self._stream.receive(data)
        except ssl.SSLError as error:
            self._send_tls_output()  # sends the alert with the reason
            raise ConnectionCodecError(f"the TLS connection failed: {error.reason or error}") from None
        self._send_tls_output()
        return plain

    def _detect_transport(self, first_byte: int) -> None:
        is_handshake = first_byte == HANDSHAKE_BYTE
        if self._tls is None and is_handshake:
            raise ConnectionCodecError("expected plain text, because TLS is off, found a TLS handshake")
        if self._tls is not None and self._tls.is_enforced and not is_handshake:
            raise ConnectionCodecError("expected a TLS handshake, because this server requires TLS, found plain text")
        self._is_plain = not is_handshake
        if self._tls is not None and is_handshake:
            self._stream = TlsStream(self._tls.context, is_server=True)

    def send(self, data: bytes) -> None:
        """Send plain text to the peer, encrypted if necessary.

        Raises:
            WireError: if TLS can no longer send.
        """
        if self._stream is None:
            self._write(data)
            return
        try:
            self._stream.send(data)
        except ssl.SSLError as error:
            raise ConnectionCodecError(f"the TLS connection failed: {error.reason or error}") from None
        self._send_tls_output()

    def end_tls(self) -> None:
        """End the TLS session, if there is one."""
        if self._stream is not None:
            self._stream.end_session()
            self._send_tls_output()

    def _send_tls_output(self) -> None:
        if self._stream is not None and (output := self._stream.take_output()):
            self._write(output)
