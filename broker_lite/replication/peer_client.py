"""Client for requests to another server over the remoting protocol, one at a time, over one persistent connection."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from dataclasses import dataclass

from commitlake.broker_lite.protocol import FrameReader
from commitlake.schemas.remoting.frames import Command, serialize_command
from commitlake.schemas.remoting.signing import Credentials, sign_fields

TIMEOUT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class PeerClientOptions:
    """Security settings for requests to name servers and to the master.

    Attributes:
        credentials: key to sign the requests with; None for servers without accounts.
        tls: TLS context; None for plain text.
    """

    credentials: Credentials | None = None
    tls: ssl.SSLContext | None = None


class PeerClient:
    """Client of one server, which connects when a request is sent."""

    def __init__(self, host: str, port: int, options: PeerClientOptions) -> None:
        self.address = (host, port)
        self._options = options
        self._opaque = itertools.count()
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.StreamReader | None = None

    async def ask(self, request: Command) -> Command:
        """Send a request, and return its answer, whatever the code.

        Raises:
            OSError: if the server cannot be reached, or closes the connection.
            TimeoutError: if it does not answer in time.
            LayoutError: if its answer is not a valid command.
        """
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                return await self._ask(request)
        except BaseException:
            # A late answer could be mistaken for the answer to the next request.
            self.close()
            raise

    async def _ask(self, request: Command) -> Command:
        if self._writer is None or self._reader is None:
            self._reader, self._writer = await asyncio.open_connection(*self.address, ssl=self._options.tls)
        request.opaque = next(self._opaque)
        if self._options.credentials is not None:
            request.ext_fields = sign_fields(request.ext_fields, request.body, self._options.credentials)
        self._writer.write(serialize_command(request))
        frames = FrameReader()
        while True:
            data = await self._reader.read(1 << 16)
            if not data:
                raise ConnectionResetError(f"the peer closed the connection before it answered request {request.code}")
            for command in frames.feed(data):
                if command.is_response and command.opaque == request.opaque:
                    return command

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        if self._writer is not None:
            self._writer.close()
        self._writer = self._reader = None
