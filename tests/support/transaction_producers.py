"""A producer of transactional messages, which are delivered only if a local transaction succeeds.

    half message → broker, which does not deliver it yet
    local transaction: COMMIT, ROLLBACK or UNKNOWN → broker, without an answer
    if the broker receives nothing, or UNKNOWN, it asks again: check → COMMIT, ROLLBACK or UNKNOWN

Source: DefaultMQProducerImpl.sendMessageInTransaction and checkTransactionState (5.5.0).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from commitlake.connectors.rocketmq.errors import InvalidMessageError, ProtocolError, RocketMQError
from commitlake.connectors.rocketmq.network import Network
from commitlake.connectors.rocketmq.options import ClientOptions
from commitlake.connectors.rocketmq.producers.messages import OutgoingMessage, SendResult, SendStatus
from commitlake.connectors.rocketmq.producers.producer import Producer, ProducerOptions
from commitlake.connectors.rocketmq.producers.tracked_connections import HEARTBEAT_SECONDS
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.commitlog import Message, parse_message
from commitlake.schemas.layouts.rocketmq.message_id import parse_message_id
from commitlake.schemas.layouts.rocketmq.properties import PGROUP, TRAN_MSG
from commitlake.schemas.layouts.rocketmq.sysflag import TransactionType
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.errors import CommandError
from commitlake.schemas.remoting.ext_fields import from_ext_fields
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.headers import (
    CheckTransactionStateRequest,
    EndTransactionRequest,
    UnregisterClientRequest,
)
from commitlake.schemas.remoting.heartbeats import Heartbeat, ProducerData
from commitlake.schemas.remoting.json_fields import serialize_body
from commitlake.schemas.remoting.signing import Credentials

_log = logging.getLogger(__name__)


class Decision(Enum):
    """The decision on a half message: commit, roll back, or UNKNOWN, after which the broker asks again."""

    COMMIT = TransactionType.COMMIT
    ROLLBACK = TransactionType.ROLLBACK
    UNKNOWN = TransactionType.NOT


class TransactionResult(NamedTuple):
    """A sent half message, and the decision about it.

    Attributes:
        sent: position of the half message.
        decision: decision that was sent to the broker.
        error: exception of the local transaction, which counts as UNKNOWN.
    """

    sent: SendResult
    decision: Decision
    error: Exception | None = None


class HeartbeatSender:
    """Sender of heartbeats for a producer group: to each broker when it becomes known, and every 30 s."""

    def __init__(self, group: str, network: Network) -> None:
        """Create the sender; nothing is sent before `start`."""
        self._group = group
        self._network = network
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
            for address in list(self._registered):
                try:
                    self._send_heartbeat(address)
                except RocketMQError as error:
                    # A broker forgets a client whose connection ends: `register` sends again before the next half.
                    self._registered.discard(address)
                    _log.warning("heartbeat: %s", error)


class TransactionProducer(Producer):
    """A producer of transactional messages, which also answers the brokers' checks of undecided transactions."""

    def __init__(
        self,
        group: str,
        options: ClientOptions,
        check: Callable[[Message], Decision],
        sending: ProducerOptions | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """Create the producer without connecting.

        Args:
            group: the producer group; a broker may ask any of its members.
            options: addresses, time limits and other settings.
            check: returns the decision about a half message's transaction; called by threads of this producer.
            credentials: keys that sign requests; by default those in the environment.
        """
        super().__init__(group, options, sending, credentials)
        self._check = check
        self.network.handlers[RequestCode.CHECK_TRANSACTION_STATE] = self._answer_transaction_check
        self._heartbeats = HeartbeatSender(group, self.network)
        self._heartbeats.start()

    def close(self) -> None:
        """Unregister from the brokers, wait until sends in progress have ended, and close all connections."""
        self._heartbeats.stop()
        super().close()

    def send_in_transaction(
        self, message: OutgoingMessage, local_transaction: Callable[[OutgoingMessage], Decision]
    ) -> TransactionResult:
        """Send a half message, run the local transaction, and report its result to the broker.

        Args:
            message: the message, without a delay.
            local_transaction: called when the half message is in the log. An exception counts as UNKNOWN.

        Raises:
            InvalidMessageError: if the message cannot be sent.
            NoRouteError: if there is no queue for it.
            UnreachableError: if no broker confirmed it in time; nothing is delivered then, even if it is in the log.
            RefusedError: if a broker refuses it.
        """
        if message.delay_level or message.deliver_at_ms is not None:
            raise InvalidMessageError(
                "transaction: expected a message without a delay, found one with a delay level or a delivery time"
            )
        for queue in self.queues(message.topic):
            # Before the half message: a broker can ask only registered clients of the group what has become of it.
            self._heartbeats.register(self.routing.master_address(queue.broker_name))
        parcel = self.encode_message(message, TransactionType.PREPARED, **{TRAN_MSG: "true", PGROUP: self.group})
        sent = self.send_encoded_message(parcel)
        decision, error = Decision.ROLLBACK, None
        # As in Java, a half message that is not safely on disk and on a slave is rolled back; the local transaction
        # does not run.
        if sent.status is SendStatus.SEND_OK:
            decision, error = _ask_decision(lambda: local_transaction(message))
        self._end_transaction(sent, message.topic, decision)
        return TransactionResult(sent, decision, error)

    def _end_transaction(self, send_result: SendResult, topic: str, decision: Decision) -> None:
        try:
            physical_offset = parse_message_id(send_result.offset_msg_id).physical_offset
        except LayoutError as error:
            raise ProtocolError(
                f"{send_result.queue}: expected a message id with a physical offset in the broker's answer, found "
                f"another: {error}"
            ) from None
        end = EndTransactionRequest(
            self.group,
            send_result.queue_offset,
            physical_offset,
            decision.value,
            msg_id=send_result.unique_key,
            transaction_id=send_result.unique_key,
            topic=topic,
        )
        try:
            self.network.send_one_way(
                self.routing.master_address(send_result.queue.broker_name), RequestCode.END_TRANSACTION, end
            )
        except RocketMQError as error:
            _log.warning("the end of a transaction could not be reported; the broker will ask: %s", error)

    def _answer_transaction_check(self, address: str, command: Command) -> None:
        try:
            asked = from_ext_fields(CheckTransactionStateRequest, command.ext_fields)
            parsed = parse_message(command.body)
        except (CommandError, LayoutError) as error:
            _log.warning("%s asked about a transaction in an unknown way: %s", address, error)
            return
        if parsed is None:
            _log.warning("%s asked about a transaction without its message", address)
            return
        message = parsed[0]
        decision, _ = _ask_decision(lambda: self._check(message))
        key = message.unique_key or asked.msg_id or ""
        end = EndTransactionRequest(
            self.group,
            asked.tran_state_table_offset,
            asked.commit_log_offset,
            decision.value,
            from_transaction_check=True,
            msg_id=key,
            transaction_id=asked.transaction_id,
            topic=message.topic,
        )
        self.network.send_one_way(address, RequestCode.END_TRANSACTION, end)


def _ask_decision(decide: Callable[[], Decision]) -> tuple[Decision, Exception | None]:
    try:
        return decide(), None
    except Exception as error:  # noqa: BLE001 (the application's; the broker asks again)
        _log.warning("the state of a local transaction is not known: %r", error)
        return Decision.UNKNOWN, error
