"""Telling name servers of a broker: one in this process directly, others by the network.

A broker registers when it starts, every half minute, and when a topic changes. The connection to a name server stays
open: when it ends, the name server takes the broker for dead. Source: BrokerOuterAPI, BrokerController (5.5.0).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import zlib
from typing import ClassVar

from broker_lite.broker.options import BrokerOptions
from broker_lite.nameserver import NameServer
from broker_lite.protocol import FrameReader
from schemas.layouts.commitlog import CRC_MASK
from schemas.layouts.errors import LayoutError
from schemas.layouts.remoting import Command, serialize_command
from schemas.remoting.codes import RequestCode, ResponseCode, code_name
from schemas.remoting.configs import RegisterBrokerBody, TopicConfigs
from schemas.remoting.ext_fields import to_ext_fields
from schemas.remoting.json_fields import serialize_body
from schemas.remoting.name_server_headers import BrokerRequest, RegisterBrokerRequest

TIMEOUT_SECONDS = 3.0
RETRY_SECONDS = 5.0
_logger = logging.getLogger(__name__)


class Registration:
    """Keeps one name server informed."""

    EVERY_SECONDS: ClassVar[float] = 30.0

    def register(self, topics: TopicConfigs) -> None:
        """Tell of the broker and all of its topics."""
        raise NotImplementedError

    def tick(self) -> None:
        """Do what is due by itself."""

    async def unregister(self) -> None:
        """Tell that the broker goes."""


class LocalRegistration(Registration):
    """At the name server of this process."""

    def __init__(self, name_server: NameServer, options: BrokerOptions) -> None:
        self._name_server = name_server
        self._options = options

    def register(self, topics: TopicConfigs) -> None:
        """Tell of the broker and all of its topics."""
        self._name_server.register_local(_request(self._options), topics)

    def tick(self) -> None:
        """Let the name server forget who is silent."""
        self._name_server.tick()


class RemoteRegistration(Registration):
    """At another process."""

    def __init__(self, host: str, port: int, options: BrokerOptions, loop: asyncio.AbstractEventLoop) -> None:
        self._place = (host, port)
        self._options = options
        self._changed = asyncio.Event()
        self._topics = TopicConfigs()
        self._opaque = itertools.count()
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.StreamReader | None = None
        self._task = loop.create_task(self._keep_registered())

    def register(self, topics: TopicConfigs) -> None:
        """Tell of the broker and all of its topics, soon."""
        self._topics = topics
        self._changed.set()

    async def _keep_registered(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._register()
            except (OSError, TimeoutError, LayoutError, asyncio.IncompleteReadError) as error:
                _logger.warning("name server %s:%d cannot be told of the broker: %r", *self._place, error)
                self._disconnect()
                await asyncio.sleep(RETRY_SECONDS)
                self._changed.set()

    async def _register(self) -> None:
        body = serialize_body(RegisterBrokerBody(self._topics))
        header = _request(self._options)._replace(body_crc32=zlib.crc32(body) & CRC_MASK)
        answer = await self._ask(Command(RequestCode.REGISTER_BROKER, to_ext_fields(header), body))
        if answer.code != ResponseCode.SUCCESS:
            _logger.warning(
                "name server %s:%d refuses the broker: %s, %s", *self._place, code_name(answer.code), answer.remark
            )

    async def _ask(self, request: Command) -> Command:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            if self._writer is None or self._reader is None:
                self._reader, self._writer = await asyncio.open_connection(*self._place)
            request.opaque = next(self._opaque)
            self._writer.write(serialize_command(request))
            frames = FrameReader()
            while True:
                data = await self._reader.read(1 << 16)
                if not data:
                    raise ConnectionResetError("the name server has closed the connection")
                for command in frames.feed(data):
                    if command.is_response and command.opaque == request.opaque:
                        return command

    def _disconnect(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = self._reader = None

    async def unregister(self) -> None:
        """Tell that the broker goes."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        options = self._options
        header = BrokerRequest(options.name, str(options.address), options.cluster, options.broker_id)
        try:
            await self._ask(Command(RequestCode.UNREGISTER_BROKER, to_ext_fields(header)))
        except (OSError, TimeoutError, LayoutError) as error:
            _logger.warning("name server %s:%d was not told of the end: %r", *self._place, error)
        self._disconnect()


def _request(options: BrokerOptions) -> RegisterBrokerRequest:
    return RegisterBrokerRequest(
        options.name, str(options.address), options.cluster, options.ha_address, options.broker_id
    )
