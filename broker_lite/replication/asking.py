"""Questions to another server over the remoting protocol, one at a time, over one connection that stays open."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from dataclasses import dataclass

from commitlake.broker_lite.protocol import FrameReader
from commitlake.schemas.remoting.frames import Command, serialize_command
from commitlake.schemas.remoting.signing import Credentials, signed

TIMEOUT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class AskingOptions:
    """How this broker asks name servers and its master.

    Attributes:
        credentials: sign the requests; None for servers without accounts.
        tls: certificates; None for plain text.
    """

    credentials: Credentials | None = None
    tls: ssl.SSLContext | None = None


class Asker:
    """A connection to one server, made when something is asked."""

    def __init__(self, host: str, port: int, options: AskingOptions) -> None:
        self.place = (host, port)
        self._options = options
        self._opaque = itertools.count()
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.StreamReader | None = None

    async def ask(self, request: Command) -> Command:
        """The answer to a request, whatever its code.

        Raises:
            OSError: if the server cannot be reached, or has gone.
            TimeoutError: if it does not answer.
            LayoutError: if what it says is no command.
        """
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                return await self._ask(request)
        except BaseException:
            # A late answer would be taken for that of the next question.
            self.close()
            raise

    async def _ask(self, request: Command) -> Command:
        if self._writer is None or self._reader is None:
            self._reader, self._writer = await asyncio.open_connection(*self.place, ssl=self._options.tls)
        request.opaque = next(self._opaque)
        if self._options.credentials is not None:
            request.ext_fields = signed(request.ext_fields, request.body, self._options.credentials)
        self._writer.write(serialize_command(request))
        frames = FrameReader()
        while True:
            data = await self._reader.read(1 << 16)
            if not data:
                raise ConnectionResetError("the server has closed the connection")
            for command in frames.feed(data):
                if command.is_response and command.opaque == request.opaque:
                    return command

    def close(self) -> None:
        """End the connection; the next question makes another one."""
        if self._writer is not None:
            self._writer.close()
        self._writer = self._reader = None
