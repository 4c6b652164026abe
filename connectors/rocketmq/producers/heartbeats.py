"""Heartbeats, which tell brokers that a client is running and which groups it belongs to.

A thread sends a heartbeat to every known master: when it becomes known, and every 30 s.
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


class HeartbeatSender:
    """Sender of heartbeats for a producer group."""

    def __init__(self, group: str, network: Network, routing: Routing) -> None:
        """Create the sender; nothing is sent before `start`."""
        self._group = group
        self._network = network
        self._routing = routing
        self._registered: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._send_heartbeats_repeatedly, name="rocketmq heartbeats", daemon=True
        )

    def start(self) -> None:
        """Start sending heartbeats."""
        self._thread.start()

    def register(self, address: str) -> None:
        """Register this client with a broker by a first heartbeat, unless it is registered already.

        Raises:
            RocketMQError: if it does not answer, or refuses the request.
        """
        if address not in self._registered:
            self._send_heartbeat(address)

    def stop(self) -> None:
        """Stop sending heartbeats, and unregister from the brokers."""
        self._stop.set()
        self._thread.join()
        # The thread has ended, so that no heartbeat registers this client again after it has left.
        leave = UnregisterClientRequest(self._network.client_id, producer_group=self._group)
        for address in self._registered:
            try:
                self._network.send_and_wait(address, RequestCode.UNREGISTER_CLIENT, leave)
            except RocketMQError as error:
                _log.debug("could not unregister: %s", error)
        self._registered.clear()

    def _send_heartbeat(self, address: str) -> None:
        beat = Heartbeat(self._network.client_id, (ProducerData(self._group),))
        self._network.send_and_wait(address, RequestCode.HEART_BEAT, None, serialize_body(beat))
        self._registered.add(address)

    def _send_heartbeats_repeatedly(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            for address in self._routing.master_addresses():
                try:
                    self._send_heartbeat(address)
                except RocketMQError as error:
                    # A broker forgets a client whose connection ends. `register` now sends again before the next half
                    # message.
                    self._registered.discard(address)
                    _log.warning("heartbeat: %s", error)
