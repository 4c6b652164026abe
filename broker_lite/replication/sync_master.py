"""A master whose answers to sends wait until a slave has the message: brokerRole=SYNC_MASTER.

    no slave, or one that is 256 MiB behind     SLAVE_NOT_AVAILABLE, at once
    none that has it within slaveTimeout, 3 s   FLUSH_SLAVE_TIMEOUT

Either way the message is in the log. What else writes to the log (the end of a transaction, a message that is sent
back) waits too, and is answered as ever; a message with the property WAIT=false does not wait. So it is in 4.9; 5.x
waits only for `inSyncReplicas` above 1, and then knows FLUSH_SLAVE_TIMEOUT alone. Source:
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
class _Waiting:
    """An answer that is not sent yet.

    Attributes:
        log_end: how far the log must be on the disk, or a slave.
        deadline_ms: when the slave is not waited for any more; None where it is not at all.
        is_send: whether the answer tells what became of the wait.
    """

    log_end: int
    deadline_ms: int | None
    is_send: bool
    channel: Channel
    answer: Command


class SyncMasterDispatcher(Dispatcher):
    """A dispatcher that asks how far the slaves are."""

    def __init__(
        self, broker: Broker, accounts: Accounts | None, has_slave_near: Callable[[int], bool], timeout_ms: int
    ) -> None:
        """Begin to answer.

        Args:
            broker: what it answers for.
            accounts: who may ask; None for everybody.
            has_slave_near: tells whether a slave may soon have the log up to an offset.
            timeout_ms: how long an answer waits for it.
        """
        super().__init__(broker, accounts)
        self._has_slave_near = has_slave_near
        self._timeout_ms = timeout_ms
        self._waiting: deque[_Waiting] = deque()
        self._synced_end = self._copied_end = 0

    def _send(self, channel: Channel, request: Command, answer: Command | None, before: int) -> None:
        """Send an answer when disk and slave have what its request wrote."""
        if answer is None or request.is_one_way:
            return
        end, deadline_ms = self.broker.store.log_end, None
        is_send = request.code in _SENDS
        if end != before and _WAITS_NOT not in request.ext_fields.get("i", request.ext_fields.get("properties", "")):
            if self._has_slave_near(end):
                deadline_ms = self.broker.now_ms() + self._timeout_ms
            else:
                answer = _told(answer, ResponseCode.SLAVE_NOT_AVAILABLE) if is_send else answer
        if end == before or (deadline_ms is None and not self.broker.options.sync_flush):
            channel.send(answer)
        else:
            self._waiting.append(_Waiting(end, deadline_ms, is_send, channel, answer))

    @property
    def wants_sync(self) -> bool:
        """Whether answers wait for the disk."""
        return self.broker.options.sync_flush and any(one.log_end > self._synced_end for one in self._waiting)

    @property
    def unsent_answers(self) -> int:
        """How many answers wait for the disk, or for slaves."""
        return len(self._waiting)

    @property
    def is_waiting(self) -> bool:
        """Whether answers wait at all."""
        return bool(self._waiting)

    def synced(self, log_end: int) -> None:
        """Send the answers to what is on the disk now, if a slave has it."""
        self._synced_end = log_end
        self._settle()

    def copied(self, log_end: int) -> None:
        """Send the answers to what a slave has now, if it is on the disk."""
        self._copied_end = log_end
        self._settle()

    def sync_failed(self, error: BaseException) -> None:
        """Tell those who wait that the disk failed."""
        waiting, self._waiting = self._waiting, deque()
        self._unsynced.extend((one.log_end, one.channel, one.answer) for one in waiting)
        super().sync_failed(error)

    def tick(self, now_ms: int) -> bool:
        """Do what is due by itself; and wait for slow slaves no longer."""
        self.expire(now_ms)
        return super().tick(now_ms)

    def expire(self, now_ms: int) -> None:
        """Send the answers that have waited for a slave long enough."""
        for one in self._waiting:
            if one.deadline_ms is not None and one.deadline_ms <= now_ms and one.log_end > self._copied_end:
                one.deadline_ms = None
                one.answer = _told(one.answer, ResponseCode.FLUSH_SLAVE_TIMEOUT) if one.is_send else one.answer
        self._settle()

    def _settle(self) -> None:
        while self._waiting:
            one = self._waiting[0]
            if self.broker.options.sync_flush and one.log_end > self._synced_end:
                return
            if one.deadline_ms is not None and one.log_end > self._copied_end:
                return
            self._waiting.popleft().channel.send(one.answer)


def _told(answer: Command, code: ResponseCode) -> Command:
    """The answer with what became of the wait; one that tells of an error stays as it is."""
    return replace(answer, code=code) if answer.code == ResponseCode.SUCCESS else answer
