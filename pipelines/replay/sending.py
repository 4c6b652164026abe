"""One batch into one queue of the target, until it is certain which of its messages are there.

    send → stored: done
         → refused, for now: wait and send again
         → refused, for good: each message by itself, so that one does not stop the others
         → no answer, or an error in the broker: it may have stored it: look behind the queue's last known end, and send
           what is not there

A batch is one write to the broker's log: what is there of it after a crash is its beginning, so the order is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from commitlake.connectors.arrays import Array
from commitlake.connectors.rocketmq.admin import Admin
from commitlake.connectors.rocketmq.errors import NoRouteError, ProtocolError, RefusedError, UnreachableError
from commitlake.connectors.rocketmq.producer import Producer
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.connectors.rocketmq.queue_reading import queue_text
from commitlake.pipelines.replay.batches import Batch
from commitlake.pipelines.replay.errors import StoppedError, TargetError, TargetGoneError
from commitlake.pipelines.replay.search import Origin, find_sent, wait_until_queued
from commitlake.schemas.layouts.segments import MAX_QUEUE_OFFSET
from commitlake.schemas.remoting.codes import ResponseCode
from commitlake.schemas.remoting.routes import MessageQueue
from commitlake.schemas.tables.replay_messages import Outcome

_OF_TOPIC = frozenset({ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST})
_FIRST_WAIT_SECONDS = 0.2
_MAX_WAIT_SECONDS = 5.0
_SETTLE_SECONDS = 1.0
"""How long a broker may still be storing what it had read before its connection broke."""


@dataclass(frozen=True, slots=True)
class TargetClient:
    """Clients of the target, which all queues share."""

    producer: Producer
    puller: Puller
    admin: Admin


@dataclass(frozen=True, slots=True)
class Landing:
    """What became of some messages.

    Attributes:
        rows: int64, their numbers in the part.
        outcome: what became of all of them.
        queue_offsets: int64, where each is; None where they are not there.
        attempts: how often they were sent.
        error: why they are not there.
    """

    rows: Array
    outcome: Outcome
    queue_offsets: Array | None
    attempts: int
    error: str | None = None


class QueueSender:
    """Sends to one queue, one batch after the other; for one thread.

    Args:
        client: Sends, reads and asks.
        queue: Of the target.
        end: Every message of the replay that was sent before stands before this queue offset, or its row is known.
        replay_id: The replay's.
        patience_seconds: How long the target may not answer, or may refuse everything.
        is_stopped: Tells whether nobody waits for the target any longer.
        sleep: Waits for so many seconds.
        clock: Seconds that only rise.
    """

    def __init__(
        self,
        client: TargetClient,
        queue: MessageQueue,
        end: int,
        replay_id: str,
        patience_seconds: float,
        *,
        is_stopped: Callable[[], bool] = lambda: False,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.queue = queue
        self._client, self._end, self._replay_id = client, end, replay_id
        self._patience, self._sleep, self._clock = patience_seconds, sleep, clock
        self._is_stopped = is_stopped

    def find(self) -> dict[Origin, int]:
        """Return the replay's messages that may be there without anybody knowing, by their queue offsets.

        Raises:
            TargetError: if the queue is not what it was.
            TargetGoneError: if the target does not answer.
        """
        return self._patiently(self._find)

    def _find(self) -> dict[Origin, int]:
        wait_until_queued(self._client.admin, self.queue.broker_name, sleep=self._sleep)
        found = find_sent(self._client.puller, self.queue, self._end, self._replay_id)
        return {origin: message.queue_offset for origin, message in found}

    def send(self, batch: Batch, origin_of: Callable[[int], Origin]) -> Iterator[Landing]:
        """Send a batch, and yield what becomes of its messages as soon as it is known.

        Args:
            batch: Messages of a part.
            origin_of: Tells what the message of a row was.

        Raises:
            TargetError: if the topic is gone, or the queue is not what it was.
            TargetGoneError: if the target refuses everything, or does not answer, for too long.
            StoppedError: if the replay is stopped while it waits for the target.
        """
        attempts = 0
        is_alone = False
        patience = self._start_patience()
        while True:
            attempts += 1
            try:
                first = self._post(batch, is_alone=is_alone)
            except RefusedError as error:
                self._check_topic(error)
                if error.is_of_the_message or error.code == ResponseCode.INVALID_PARAMETER:
                    if len(batch) == 1 and not is_alone:
                        is_alone = True
                        continue
                    yield from self._refuse(batch, origin_of, attempts, error)
                    return
                problem: Exception = error
                is_in_doubt = error.code == ResponseCode.SYSTEM_ERROR  # which may come after it has stored them
            except (UnreachableError, NoRouteError, ProtocolError) as error:
                problem, is_in_doubt = error, True
            else:
                self._end = first + len(batch)
                yield Landing(batch.rows, Outcome.SENT, np.arange(first, self._end), attempts)
                return
            if is_in_doubt:
                found = self._look_for(batch, origin_of, attempts)
                yield found
                batch = batch.without(found.rows.tolist())
                if not len(batch):
                    return
            patience.wait_after(problem, f"{queue_text(self.queue)}: not sent")

    def _refuse(
        self, batch: Batch, origin_of: Callable[[int], Origin], attempts: int, error: RefusedError
    ) -> Iterator[Landing]:
        """Send each message by itself, so that one that is refused does not stop the others; give up a single one."""
        if len(batch) == 1:
            yield Landing(batch.rows, Outcome.REFUSED, None, attempts, str(error))
            return
        for one in batch.each():
            yield from self.send(one, origin_of)

    def _post(self, batch: Batch, *, is_alone: bool) -> int:
        producer = self._client.producer
        post = producer.send_encoded_alone if is_alone else producer.send_encoded
        first = post(self.queue, batch.body(), batch.sys_flag)
        if not self._end <= first <= MAX_QUEUE_OFFSET:  # the ledger must not have a place where the messages are not
            raise ProtocolError(
                f"queue {self.queue.queue_id} of {self.queue.topic} on {self.queue.broker_name}: expected messages to "
                f"be stored at offset {self._end} or later, found {first}"
            )
        return first

    def _check_topic(self, error: RefusedError) -> None:
        if error.code in _OF_TOPIC:
            raise TargetError(f"{self.queue.topic}: {error}") from None

    def _look_for(self, batch: Batch, origin_of: Callable[[int], Origin], attempts: int) -> Landing:
        """Return which messages of a batch are there although no answer has said so."""
        self._sleep(_SETTLE_SECONDS)
        there = self.find()
        places = {row: there[origin] for row in batch.rows.tolist() if (origin := origin_of(row)) in there}
        rows, offsets = np.array(list(places), np.int64), np.array(list(places.values()), np.int64)
        return Landing(rows, Outcome.FOUND, offsets, attempts)

    def _patiently(self, ask: Callable[[], dict[Origin, int]]) -> dict[Origin, int]:
        """Ask again and again while the target does not answer."""
        patience = self._start_patience()
        while True:
            try:
                return ask()
            except (UnreachableError, NoRouteError, ProtocolError, RefusedError) as error:
                patience.wait_after(error, f"{queue_text(self.queue)}: no answer")

    def _start_patience(self) -> _Patience:
        return _Patience(self._patience, self._is_stopped, self._sleep, self._clock)


class _Patience:
    """Longer and longer waits for the target, until it has been away for too long."""

    def __init__(
        self,
        seconds: float,
        is_stopped: Callable[[], bool],
        sleep: Callable[[float], object],
        clock: Callable[[], float],
    ) -> None:
        self._seconds, self._is_stopped, self._sleep, self._clock = seconds, is_stopped, sleep, clock
        self._deadline = clock() + seconds
        self._wait = _FIRST_WAIT_SECONDS

    def wait_after(self, problem: Exception, what: str) -> None:
        """Wait until it is worth another attempt.

        Args:
            problem: what kept the last one from succeeding.
            what: which queue, and what has not happened.

        Raises:
            TargetGoneError: if there have been attempts for long enough.
            StoppedError: if somebody has stopped the replay.
        """
        if self._is_stopped():
            raise StoppedError(f"{what}: {problem}") from None
        if self._clock() > self._deadline:
            raise TargetGoneError(
                f"{what} for {self._seconds:.0f} s: {problem}. 'commitlake replay resume' goes on"
            ) from None
        self._sleep(self._wait)
        self._wait = min(2 * self._wait, _MAX_WAIT_SECONDS)
