"""Dispatcher of a SYNC_MASTER, which answers a send after a slave has received the message.

    no slave, or one that lags by 256 MiB       SLAVE_NOT_AVAILABLE, at once
    no slave has it within slaveTimeout, 3 s    FLUSH_SLAVE_TIMEOUT

In both cases the message is in the log. Other writes to the log (the end of a transaction, a message that is sent back)
also wait, but their answer does not change; a message with the property WAIT=false does not wait. This is the behaviour
of 4.9; 5.x waits only if `inSyncReplicas` is above 1, and only knows FLUSH_SLAVE_TIMEOUT. Source:
CommitLog.submitReplicaRequest, HAService (4.9.7).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from commitlake.broker_lite.broker.accounts import Accounts
from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.frames import Command

_SENDS = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
_WAITS_NOT = "WAIT\x01false"


@dataclass(slots=True)
class _WaitingAnswer:
    """Answer to a client that waits until its data is flushed or on a slave.

    Attributes:
        log_end: physical offset up to which the log must be on disk or on a slave.
        deadline_ms: time until which the answer waits for a slave; None if it does not wait for one.
        is_send: True if the answer's code must tell the producer whether the flush and the copy succeeded.
    """

    log_end: int
    deadline_ms: int | None
    is_send: bool
    channel: Channel
    answer: Command


class SyncMasterDispatcher(Dispatcher):
    """Dispatcher that delays answers to clients until a slave has the data that their requests wrote."""

    def __init__(
        self, broker: Broker, accounts: Accounts | None, has_slave_in_range: Callable[[int], bool], timeout_ms: int
    ) -> None:
        """Create the dispatcher of a master with synchronous replication.

        Args:
            accounts: accounts whose requests are accepted; None if requests need no signature.
            has_slave_in_range: returns whether a slave is close enough to have the log up to an offset soon.
            timeout_ms: how long an answer waits for a slave.
        """
        super().__init__(broker, accounts)
        self._has_slave_in_range = has_slave_in_range
        self._timeout_ms = timeout_ms
        self._waiting: deque[_WaitingAnswer] = deque()
        self._synced_end = self._copied_end = 0

    def _send_answer(self, channel: Channel, request: Command, answer: Command | None, previous_log_end: int) -> None:
        """Send an answer as soon as the data that its request wrote is on disk and on a slave."""
        if answer is None or request.is_one_way:
            return
        end, deadline_ms = self.broker.store.log_end, None
        is_send = request.code in _SENDS
        # In the short form of a request, SEND_MESSAGE_V2, the properties are the field `i`.
        if end != previous_log_end and _WAITS_NOT not in request.ext_fields.get(
            "i", request.ext_fields.get("properties", "")
        ):
            if self._has_slave_in_range(end):
                deadline_ms = self.broker.now_ms() + self._timeout_ms
            else:
                answer = _replace_success_code(answer, ResponseCode.SLAVE_NOT_AVAILABLE) if is_send else answer
        if end == previous_log_end or (deadline_ms is None and not self.broker.options.sync_flush):
            channel.send(answer)
        else:
            self._waiting.append(_WaitingAnswer(end, deadline_ms, is_send, channel, answer))

    @property
    def needs_log_sync(self) -> bool:
        """True if answers wait for a flush of the log."""
        return self.broker.options.sync_flush and any(one.log_end > self._synced_end for one in self._waiting)

    @property
    def unsent_answer_count(self) -> int:
        """Number of answers that wait for a flush or for slaves."""
        return len(self._waiting)

    @property
    def has_waiting_answers(self) -> bool:
        """True if answers wait for a flush of the log or for a slave."""
        return bool(self._waiting)

    def on_log_synced(self, log_end: int) -> None:
        """Record how far the log is flushed, and send the answers that waited only for this."""
        self._synced_end = log_end
        self._send_ready_answers()

    def on_log_copied(self, log_end: int) -> None:
        """Record how far a slave has the log, and send the answers that waited only for this."""
        self._copied_end = log_end
        self._send_ready_answers()

    def on_sync_failed(self, error: BaseException) -> None:
        """Answer all requests that wait for the disk with an error."""
        waiting, self._waiting = self._waiting, deque()
        self._unsynced.extend((one.log_end, one.channel, one.answer) for one in waiting)
        super().on_sync_failed(error)

    def run_periodic_work(self, now_ms: int) -> bool:
        """Do periodic work, and send answers that have waited too long for a slave."""
        self.send_expired_answers(now_ms)
        return super().run_periodic_work(now_ms)

    def send_expired_answers(self, now_ms: int) -> None:
        """Send answers whose deadline for a slave has passed."""
        for one in self._waiting:
            if one.deadline_ms is not None and one.deadline_ms <= now_ms and one.log_end > self._copied_end:
                one.deadline_ms = None
                one.answer = (
                    _replace_success_code(one.answer, ResponseCode.FLUSH_SLAVE_TIMEOUT) if one.is_send else one.answer
                )
        self._send_ready_answers()

    def _send_ready_answers(self) -> None:
        while self._waiting:
            one = self._waiting[0]
            # Answers leave in the order of the log, so the first one that must wait holds up the others.
            if self.broker.options.sync_flush and one.log_end > self._synced_end:
                return
            if one.deadline_ms is not None and one.log_end > self._copied_end:
                return
            self._waiting.popleft().channel.send(one.answer)


def _replace_success_code(answer: Command, code: ResponseCode) -> Command:
    """Return a successful answer with another code; answers that report an error stay as they are."""
    return replace(answer, code=code) if answer.code == ResponseCode.SUCCESS else answer
