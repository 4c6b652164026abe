"""Sends one batch to one queue of the target, and finds out which of its messages were stored.

    send → stored: done
         → refused for now: wait and send again
         → refused permanently: send each message separately, so that one does not stop the others
         → no answer: close the connection, and wait until the broker has nothing left of it
           → as after an error in the broker, it may have stored the batch: search from the queue's last known end, and
             send the messages that are not there

A queue gets its next batch only when it is known what has become of the one before it, so a batch that is late neither
arrives after a second copy nor breaks the order. `connectors.rocketmq.producers.tracked_connections` says how that is
known.
A broker writes a batch to its log as a whole. After a crash, only the beginning of the batch may be there, so the order
is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.rocketmq.admin import Admin
from commitlake.connectors.rocketmq.errors import (
    NoRouteError,
    PositionError,
    ProtocolError,
    RefusedError,
    UnreachableError,
)
from commitlake.connectors.rocketmq.log_extent import log_extent
from commitlake.connectors.rocketmq.producers.producer import Producer
from commitlake.connectors.rocketmq.producers.tracked_connections import (
    NEVER_LISTED,
    TrackedConnection,
    TrackedConnections,
)
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.connectors.rocketmq.queue_reading import format_queue
from commitlake.pipelines.replay.errors import ReplayError, StoppedError
from commitlake.pipelines.replay.sending.batches import Batch
from commitlake.pipelines.replay.sent_messages import Origin, find_sent_messages
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.segment_names import MAX_QUEUE_OFFSET
from commitlake.schemas.remoting.codes import ResponseCode
from commitlake.schemas.remoting.routes import MessageQueue
from commitlake.schemas.tables.replays import SendOutcome

_T = TypeVar("_T")

_OF_TOPIC = frozenset({ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST})
_FIRST_WAIT_SECONDS = 0.2
_MAX_WAIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class TargetClient:
    """Clients for the target cluster, shared by the senders of all queues.

    Attributes:
        producer: sends messages.
        puller: reads messages.
        admin: asks brokers for their state.
        name_servers: `host:port` of each, separated by semicolons, for clients of other processes.
    """

    producer: Producer
    puller: Puller
    admin: Admin
    name_servers: str


@dataclass(frozen=True, slots=True)
class SendResult:
    """Outcome of sending a batch's messages.

    Attributes:
        rows: int64, row numbers in the part.
        outcome: outcome of all of them.
        queue_offsets: int64, queue offset of each; None if they were not stored.
        attempts: number of attempts to send them.
        error: reason why they were not stored.
    """

    rows: Array
    outcome: SendOutcome
    queue_offsets: Array | None
    attempts: int
    error: str | None = None


class QueueSender:
    """Sends messages to one queue of the target, batch after batch; for one thread.

    Args:
        client: Clients of the target.
        connections: Connections over which the messages are sent.
        queue: Queue of the target.
        end: Queue offset before which all messages of the replay are known; unrecorded ones can only be at or after it.
        replay_id: Id of the replay.
        target_timeout_seconds: Time for which the target may not answer, or may refuse everything.
        is_stopped: Returns True when the replay is to stop.
        sleep: Waits for a number of seconds.
        clock: Returns seconds of a monotonic clock.
        needs_all: True to refuse a queue that no longer has all messages from `end` on.
    """

    def __init__(
        self,
        client: TargetClient,
        connections: TrackedConnections,
        queue: MessageQueue,
        end: int,
        replay_id: str,
        target_timeout_seconds: float,
        *,
        is_stopped: Callable[[], bool] = lambda: False,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        needs_all: bool = False,
    ) -> None:
        self.queue = queue
        self._needs_all = needs_all
        self._client, self._connections, self._end, self._replay_id = client, connections, end, replay_id
        self._target_timeout, self._sleep, self._clock = target_timeout_seconds, sleep, clock
        self._is_stopped = is_stopped

    def check_broker_lists_clients(self) -> None:
        """Raise an error if the queue's broker does not report its connections, which a resumed replay must know.

        Raises:
            ReplayError: if it does not say that, or if it does not answer.
        """
        self._retry_request(lambda: self._check_connections(self._connections.earlier_connection_count))

    def wait_for_late_messages(self, connection: TrackedConnection | None = None) -> None:
        """Wait until earlier senders' connections to the broker are closed, so that no late message can arrive.

        Args:
            connection: Connection over which no more is to be sent.

        Raises:
            ReplayError: if the broker does not say which connections it has, or if one of them is still open after too
                long, or the broker does not answer.
        """
        self._retry_request(
            lambda: self._check_connections(
                lambda broker: self._connections.wait_for_earlier_connections(broker, connection)
            )
        )

    def _check_connections(self, query_broker: Callable[[str], object]) -> None:
        try:
            query_broker(self.queue.broker_name)
        except RefusedError as error:
            if error.code not in NEVER_LISTED:
                raise
            raise ReplayError(
                f"broker {self.queue.broker_name} does not list the connections of the producer group "
                f"{self._client.producer.group}, so it is not known whether messages of an earlier attempt can still "
                f"arrive: {error}. With ACL 2.0, the account needs the action Get on the cluster",
                exit_code=ExitCode.REFUSED,
            ) from None

    def find_stored_messages(self) -> dict[Origin, int]:
        """Search the queue for messages of the replay that no answer confirmed, and return their offsets.

        Nothing may be on its way.

        Raises:
            ReplayError: if the queue is no longer the same, or if the target does not answer.
        """
        return self._retry_request(self._find_replay_messages)

    def _find_replay_messages(self) -> dict[Origin, int]:
        # Only messages that the broker has put into the queue can be found; this waits until all in the log are.
        log_extent(self._client.admin, self.queue.broker_name, clock=self._clock, sleep=self._sleep)
        if self._needs_all:
            self._check_no_messages_deleted()
        found = find_sent_messages(self._client.puller, self.queue, self._end, self._replay_id)
        return {origin: message.queue_offset for origin, message in found}

    def _check_no_messages_deleted(self) -> None:
        """Raise an error if the queue's oldest messages were deleted, which may have been of this replay."""
        first = self._client.puller.min_offset(self.queue)
        if first > self._end:
            raise ReplayError(
                f"{format_queue(self.queue)} begins at queue offset {first}, expected {self._end} or less: the target "
                "has deleted messages since the replay was planned, and a repair of the lake has lost rows about this "
                "replay, so it is not known which messages were sent. Nothing more is sent",
                exit_code=ExitCode.REFUSED,
            )

    def send(self, batch: Batch, get_origin: Callable[[int], Origin]) -> Iterator[SendResult]:
        """Send a batch, and yield the outcome of its messages as soon as it is known.

        Args:
            batch: Messages of a part.
            get_origin: Returns the origin of the message of a row.

        Raises:
            ReplayError: if the topic is gone, the queue is no longer the same, or the broker confirmed messages that
                are not in the queue, or if the target refuses everything, or does not answer, for too long.
            StoppedError: if the replay is stopped while it waits for the target.
        """
        attempts = 0
        is_alone = False
        retries = self._start_retries()
        while True:
            attempts += 1
            connection: TrackedConnection | None = None
            try:
                connection = self._connections.open(self.queue.broker_name)
                first = self._send_batch(batch, connection, is_alone=is_alone)
            except RefusedError as error:
                self._raise_if_topic_error(error)
                if error.is_message_fault or error.code == ResponseCode.INVALID_PARAMETER:
                    # A message that is too large as a batch of one may fit as a plain message.
                    if len(batch) == 1 and not is_alone:
                        is_alone = True
                        continue
                    yield from self._send_separately(batch, get_origin, attempts, error)
                    return
                problem: Exception = error
                is_in_doubt = error.code == ResponseCode.SYSTEM_ERROR  # it may come after the broker has stored them
            except (UnreachableError, NoRouteError, ProtocolError) as error:
                problem, is_in_doubt = error, connection is not None
                if connection is not None and not isinstance(error, PositionError):  # which is an answer
                    self.wait_for_late_messages(connection)
            else:
                # A search for later messages need not begin before the ones that are known to be stored.
                self._end = first + len(batch)
                yield SendResult(batch.rows, SendOutcome.SENT, np.arange(first, self._end), attempts)
                return
            if is_in_doubt:
                found = self._find_stored_of_batch(batch, get_origin, attempts)
                yield found
                # Only those that are not there are sent again.
                batch = batch.drop_rows(found.rows.tolist())
                if not len(batch):
                    return
                if isinstance(problem, PositionError):  # sent again, they could be there twice
                    raise ReplayError(
                        f"{problem}; {len(batch):,} of the messages are not found in the queue. Nothing more is sent: "
                        "check that this is the expected broker",
                        exit_code=ExitCode.REFUSED,
                    )
            retries.wait_after(problem, f"{format_queue(self.queue)}: not sent")

    def _send_separately(
        self, batch: Batch, get_origin: Callable[[int], Origin], attempts: int, error: RefusedError
    ) -> Iterator[SendResult]:
        """Send the messages of a refused batch one by one, and yield their outcomes, which may be refusals."""
        if len(batch) == 1:
            yield SendResult(batch.rows, SendOutcome.REFUSED, None, attempts, str(error))
            return
        for one in batch.split_by_message():
            yield from self.send(one, get_origin)

    def _send_batch(self, batch: Batch, connection: TrackedConnection, *, is_alone: bool) -> int:
        producer = self._client.producer
        post = producer.send_encoded_single if is_alone else producer.send_encoded_batch
        first = post(self.queue, batch.body(), batch.sys_flag, connection.peer)
        # The ledger must not have an offset at which the messages are not.
        if not self._end <= first <= MAX_QUEUE_OFFSET - len(batch):
            raise PositionError(
                f"queue {self.queue.queue_id} of {self.queue.topic} on {self.queue.broker_name}: expected that the "
                f"broker stores the messages at queue offset {self._end} or later, but it answered with {first}"
            )
        return first

    def _raise_if_topic_error(self, error: RefusedError) -> None:
        if error.code in _OF_TOPIC:
            raise ReplayError(
                f"cannot send to the topic {self.queue.topic}: {error}", exit_code=ExitCode.REFUSED
            ) from None

    def _find_stored_of_batch(self, batch: Batch, get_origin: Callable[[int], Origin], attempts: int) -> SendResult:
        """Return the messages of a batch that were stored although no answer confirmed that."""
        there = self.find_stored_messages()
        places = {row: there[origin] for row in batch.rows.tolist() if (origin := get_origin(row)) in there}
        rows, offsets = np.array(list(places), np.int64), np.array(list(places.values()), np.int64)
        return SendResult(rows, SendOutcome.FOUND, offsets, attempts)

    def _retry_request(self, request: Callable[[], _T]) -> _T:
        """Repeat a request until the target answers."""
        retries = self._start_retries()
        while True:
            try:
                return request()
            except (UnreachableError, NoRouteError, ProtocolError, RefusedError) as error:
                retries.wait_after(error, f"{format_queue(self.queue)}: no answer")

    def _start_retries(self) -> _RetryWaits:
        return _RetryWaits(self._replay_id, self._target_timeout, self._is_stopped, self._sleep, self._clock)


class _RetryWaits:
    """Waits between the attempts of a request, which grow longer and are limited in total."""

    def __init__(
        self,
        replay_id: str,
        seconds: float,
        is_stopped: Callable[[], bool],
        sleep: Callable[[float], object],
        clock: Callable[[], float],
    ) -> None:
        self._replay_id = replay_id
        self._seconds, self._is_stopped, self._sleep, self._clock = seconds, is_stopped, sleep, clock
        # For each batch or request anew, so that the limit is for a silent target, not for a long replay.
        self._deadline = clock() + seconds
        self._wait = _FIRST_WAIT_SECONDS

    def wait_after(self, error: Exception, failed_step: str) -> None:
        """Wait before the next attempt, or raise an error if the total time is over.

        Args:
            error: error of the last attempt.
            failed_step: the queue and the failed step, for messages.
        """
        if self._is_stopped():
            raise StoppedError(f"the replay was stopped during a retry: {failed_step}: {error}") from None
        if self._clock() > self._deadline:
            raise ReplayError(
                f"{failed_step} for {self._seconds:.0f} s: {error}. 'commitlake replay resume {self._replay_id}' "
                "continues the replay",
                exit_code=ExitCode.FAILED,
                is_transient=True,
            ) from None
        self._sleep(self._wait)
        self._wait = min(2 * self._wait, _MAX_WAIT_SECONDS)
