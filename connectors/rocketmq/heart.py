"""Heartbeats: they tell brokers that a client is there and what groups it is in.

A thread sends one to every master that is known, when it becomes known and every 30 s.
"""

from __future__ import annotations

import logging
import threading

from commitlake.connectors.rocketmq.errors import RocketMQError
from commitlake.connectors.rocketmq.network import Network
from commitlake.connectors.rocketmq.routing import Routing
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.headers import UnregisterClientRequest
from commitlake.schemas.remoting.heartbeats import Heartbeat, ProducerData
from commitlake.schemas.remoting.json_fields import serialize_body

HEARTBEAT_SECONDS = 30.0

_log = logging.getLogger(__name__)


class Heart:
    """Heartbeats of a producer group."""

    def __init__(self, group: str, network: Network, routing: Routing) -> None:
        """Nothing is sent before `start`."""
        self._group = group
        self._network = network
        self._routing = routing
        self._greeted: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="rocketmq heart", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def greet(self, address: str) -> None:
        """Be known to a broker from now on.

        Raises:
            RocketMQError: if it does not answer, or refuses.
        """
        if address not in self._greeted:
            self._send(address)

    def stop(self) -> None:
        """Take leave of the brokers."""
        self._stop.set()
        self._thread.join()
        leave = UnregisterClientRequest(self._network.client_id, producer_group=self._group)
        for address in self._greeted:
            try:
                self._network.call(address, RequestCode.UNREGISTER_CLIENT, leave)
            except RocketMQError as error:
                _log.debug("could not take leave: %s", error)
        self._greeted.clear()

    def _send(self, address: str) -> None:
        beat = Heartbeat(self._network.client_id, (ProducerData(self._group),))
        self._network.call(address, RequestCode.HEART_BEAT, None, serialize_body(beat))
        self._greeted.add(address)

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            for address in self._routing.masters():
                try:
                    self._send(address)
                except RocketMQError as error:
                    self._greeted.discard(address)
                    _log.warning("heartbeat: %s", error)
