"""Registration of a broker at name servers, in the same process or over the network.

A broker registers when it starts, every half minute, and when a topic changes. The connection to a name server stays
open: when it closes, the name server removes the broker. A body close to the size limit of a frame is sent compressed.
Source: BrokerOuterAPI, BrokerController (5.5.0).
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable
from typing import ClassVar

from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.nameserver import NameServer
from commitlake.broker_lite.replication.peer_client import PeerClient
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.commitlog import CRC_MASK
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode, describe_response_code
from commitlake.schemas.remoting.errors import CommandError
from commitlake.schemas.remoting.ext_fields import from_ext_fields, to_ext_fields
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.json_fields import serialize_body
from commitlake.schemas.remoting.name_server_headers import (
    BrokerRequest,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from commitlake.schemas.remoting.registration import serialize_registration
from commitlake.schemas.remoting.topic_and_group_configs import RegisterBrokerBody, TopicConfigs

RETRY_SECONDS = 5.0
PLAIN_BODY_BYTES = 4 * 1024 * 1024
"""Bodies larger than this are compressed."""
_logger = logging.getLogger(__name__)


class Registration:
    """Registration of a broker at one name server, which is repeated at intervals."""

    EVERY_SECONDS: ClassVar[float] = 30.0

    def register(self, topics: TopicConfigs) -> None:
        """Register the broker with all of its topics."""
        raise NotImplementedError

    def tick(self) -> None:
        """Do the periodic work of the registration; called every few seconds."""

    async def unregister(self) -> None:
        """Unregister the broker."""


class LocalRegistration(Registration):
    """Registration of a broker at the name server that runs in the same process."""

    def __init__(self, name_server: NameServer, options: BrokerOptions) -> None:
        self._name_server = name_server
        self._options = options

    def register(self, topics: TopicConfigs) -> None:
        """Register the broker with all of its topics."""
        self._name_server.register_local_broker(_registration_header(self._options), topics)

    def tick(self) -> None:
        """Let the name server remove brokers whose heartbeats have timed out."""
        self._name_server.run_periodic_work()


class RemoteRegistration(Registration):
    """Registration at a name server over the network."""

    def __init__(
        self,
        client: PeerClient,
        options: BrokerOptions,
        loop: asyncio.AbstractEventLoop,
        on_registered: Callable[[RegisterBrokerResponse], None] = lambda _: None,
    ) -> None:
        """Start a task that keeps the registration at a name server up to date.

        Args:
            client: client of the name server; signs requests if accounts are used.
            on_registered: called with the name server's answer after each registration.
        """
        self._address = client.address
        self._options = options
        self._on_registered = on_registered
        self._changed = asyncio.Event()
        self._topics = TopicConfigs()
        self._client = client
        self._task = loop.create_task(self._keep_registered())

    def register(self, topics: TopicConfigs) -> None:
        """Let the task register the broker with all of its topics soon."""
        self._topics = topics
        self._changed.set()

    async def _keep_registered(self) -> None:
        while True:
            await self._changed.wait()
            # Before the registration, so that a change during it starts another one.
            self._changed.clear()
            try:
                await self._register()
            except (OSError, TimeoutError, LayoutError, CommandError) as error:
                _logger.warning("cannot register at name server %s:%d, will retry: %r", *self._address, error)
                await asyncio.sleep(RETRY_SECONDS)
                self._changed.set()

    async def _register(self) -> None:
        # In a thread, because serializing many topics would keep the event loop for too long.
        command = await asyncio.to_thread(registration_command, self._options, self._topics)
        answer = await self._client.ask(command)
        if answer.code != ResponseCode.SUCCESS:
            _logger.warning(
                "name server %s:%d refused to register: %s, %s",
                *self._address,
                describe_response_code(answer.code),
                answer.remark,
            )
            return
        self._on_registered(from_ext_fields(RegisterBrokerResponse, answer.ext_fields))

    async def unregister(self) -> None:
        """Unregister the broker, and close the connection."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        options = self._options
        header = BrokerRequest(options.name, str(options.address), options.cluster, options.broker_id)
        try:
            await self._client.ask(Command(RequestCode.UNREGISTER_BROKER, to_ext_fields(header)))
        except (OSError, TimeoutError, LayoutError) as error:
            _logger.warning("cannot unregister at name server %s:%d: %r", *self._address, error)
        self._client.close()


def registration_command(options: BrokerOptions, topics: TopicConfigs) -> Command:
    """Return the request that registers a broker with its topics."""
    body = serialize_body(RegisterBrokerBody(topics))
    if is_compressed := len(body) > PLAIN_BODY_BYTES:
        # A name server does not need attributes, and that of 4.9 cannot read them in this form.
        table = {name: topic._replace(attributes=None) for name, topic in topics.topic_config_table.items()}
        body = serialize_registration(RegisterBrokerBody(topics._replace(topic_config_table=table)))
    header = _registration_header(options)._replace(compressed=is_compressed, body_crc32=zlib.crc32(body) & CRC_MASK)
    return Command(RequestCode.REGISTER_BROKER, to_ext_fields(header), body)


def _registration_header(options: BrokerOptions) -> RegisterBrokerRequest:
    return RegisterBrokerRequest(
        options.name, str(options.address), options.cluster, options.ha_address, options.broker_id
    )
