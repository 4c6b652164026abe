"""Service on the name server's port: short requests are answered at once, long ones in slices."""

from __future__ import annotations

import asyncio
import logging

from commitlake.broker_lite.broker.slice_scheduler import SliceScheduler, Steps
from commitlake.broker_lite.nameserver import NameServer
from commitlake.broker_lite.nameserver.handlers import Answering
from commitlake.broker_lite.protocol import Channel
from commitlake.broker_lite.server.background_tasks import SliceTimer
from commitlake.schemas.remoting.codes import ResponseCode
from commitlake.schemas.remoting.frames import Command

LONG_REQUESTS_AT_ONCE = 4
"""Clients whose long requests are processed in turns; a registration takes about 100 MB, a waiting one less."""
_logger = logging.getLogger(__name__)


class NameServerService:
    """Service on a name server's port, which passes requests to the name server and sends its answers."""

    def __init__(self, name_server: NameServer, loop: asyncio.AbstractEventLoop) -> None:
        """Create the service for a name server, with a scheduler for requests that take long.

        Args:
            name_server: answers the requests.
        """
        self._name_server = name_server
        self._loop = loop
        self._slices = SliceScheduler(LONG_REQUESTS_AT_ONCE)
        SliceTimer(loop, self._slices, self._run_long_requests)

    def handle(self, channel: Channel, request: Command) -> None:
        """Answer a request, or start to compute its answer."""
        answer = self._name_server.handle(channel, request)
        if isinstance(answer, Command):
            self._slices.note_short_request()
            _send_answer(channel, request, answer)
        elif not self._slices.run(_send_computed_answer(channel, request, answer), channel, len(request.body)):
            remark = "too many long requests are waiting, try again later"
            _send_answer(channel, request, request.reply(ResponseCode.SYSTEM_BUSY, remark=remark))

    def after_requests(self) -> None:
        """Do nothing, because all answers were already sent."""

    def on_connection_lost(self, channel: Channel) -> None:
        """Remove the brokers that registered over a closed connection."""
        self._name_server.on_connection_lost(channel)

    def _run_long_requests(self) -> bool:
        try:
            return self._slices.run_next_slice()
        except Exception:
            _logger.exception("a long request to the name server failed")
            return True


def _send_computed_answer(channel: Channel, request: Command, answer_steps: Answering) -> Steps:
    _send_answer(channel, request, (yield from answer_steps))


def _send_answer(channel: Channel, request: Command, answer: Command) -> None:
    if not request.is_one_way:
        channel.send(answer)
