"""Dispatcher of requests to handlers, which also converts errors of handlers to answers."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping

from commitlake.broker_lite.broker.accounts import Accounts, check_admin_request_is_local
from commitlake.broker_lite.broker.broker import Answering, Broker, Handlers
from commitlake.broker_lite.broker.slice_scheduler import SLICE_SECONDS, Steps
from commitlake.broker_lite.delivery import DeliveryError
from commitlake.broker_lite.errors import (
    DiskFullError,
    MessageRefusedError,
    StoreError,
    StoreUnusableError,
    UnsupportedError,
)
from commitlake.broker_lite.handlers import (
    consume_progress,
    forwarded_requests,
    group_administration,
    group_members,
    message_queries,
    offsets,
    pulling,
    replies,
    runtime_info,
    sending,
    topic_administration,
    transactions,
)
from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.errors import CommandError, NotPermittedError
from commitlake.schemas.remoting.frames import Command

_logger = logging.getLogger(__name__)

DELIVERY_CHUNK = 16
"""Delayed messages delivered between two checks of the elapsed time."""
MAX_UNSYNCED = 50_000
"""Answers that wait for the disk; beyond that, messages are refused until the flush has caught up."""
_WRITES = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.CONSUMER_SEND_MSG_BACK,
    }
)
_KEPT_BYTES: Mapping[int, int] = {RequestCode.QUERY_MESSAGE: message_queries.ANSWER_BYTES}
"""Memory that a request keeps until it is answered, besides its body."""
_FLUSH_IS_SLOW = "too many answers wait for the disk or a slave, try again later"
_TOO_MANY_LONG_REQUESTS = "too many long requests are waiting, try again later"
DELIVERY_PAUSE_MS = 5_000
"""Pause after the store could not take a delayed message."""

HANDLERS: Handlers = {
    **sending.HANDLERS,
    **pulling.HANDLERS,
    **group_members.HANDLERS,
    **offsets.HANDLERS,
    **transactions.HANDLERS,
    **message_queries.HANDLERS,
    **replies.HANDLERS,
    **topic_administration.HANDLERS,
    **group_administration.HANDLERS,
    **consume_progress.HANDLERS,
    **forwarded_requests.HANDLERS,
    **runtime_info.HANDLERS,
}

_POP_CODES = frozenset(
    {
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.NOTIFICATION,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
    }
)

_CODES_FOR: tuple[tuple[type[Exception], ResponseCode], ...] = (
    (NotPermittedError, ResponseCode.NO_PERMISSION),
    (MessageRefusedError, ResponseCode.MESSAGE_ILLEGAL),
    (DiskFullError, ResponseCode.SERVICE_NOT_AVAILABLE),
    (StoreUnusableError, ResponseCode.SERVICE_NOT_AVAILABLE),
    (UnsupportedError, ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
)


def _response_code_for(error: Exception) -> ResponseCode:
    return next((code for kind, code in _CODES_FOR if isinstance(error, kind)), ResponseCode.SYSTEM_ERROR)


def _is_time_reached(due_ms: int | None, now_ms: int) -> bool:
    return due_ms is not None and due_ms <= now_ms


class Dispatcher:
    """Handler of all requests to a broker, and of its periodic work.

    Attributes:
        broker: state of the broker.
    """

    def __init__(self, broker: Broker, accounts: Accounts | None = None) -> None:
        """Create the dispatcher of a broker.

        Args:
            accounts: accounts whose requests are accepted; None if requests need no signature.
        """
        self.broker = broker
        self._accounts = accounts
        self._unsynced: deque[tuple[int, Channel, Command]] = deque()
        self._next_check_ms = broker.now_ms() + broker.options.transaction_check_interval_ms
        self._asking: Iterator[None] | None = None
        self._is_expiring = False
        self._next_delivery_ms = self._next_poll_ms = broker.now_ms()

    def handle(self, channel: Channel, request: Command) -> None:
        """Handle and answer a request; a request that takes long is continued by later calls of `run_long_requests`."""
        # Whether a request has written is seen by the end of the log.
        before = self.broker.store.log_end
        answer = self._compute_answer(channel, request)
        if answer is None or isinstance(answer, Command):
            self.broker.slices.note_short_request()
            self._send_answer(channel, request, answer, before)
            return
        kept_bytes = len(request.body) + _KEPT_BYTES.get(request.code, 0)
        if not self.broker.slices.run(self._answer_in_slices(channel, request, answer, before), channel, kept_bytes):
            self._send_answer(
                channel, request, request.reply(ResponseCode.SYSTEM_BUSY, remark=_TOO_MANY_LONG_REQUESTS), before
            )

    def _answer_in_slices(
        self, channel: Channel, request: Command, answer_steps: Answering, previous_log_end: int
    ) -> Steps:
        try:
            answer = yield from answer_steps
        except Exception as error:  # noqa: BLE001 (it is answered and logged)
            answer = self._error_answer(channel, request, error)
        self._send_answer(channel, request, answer, previous_log_end)

    def _send_answer(self, channel: Channel, request: Command, answer: Command | None, previous_log_end: int) -> None:
        """Send an answer; with synchronous flushes, only after a flush of what its request has written."""
        if answer is None or request.is_one_way:
            return
        end = self.broker.store.log_end
        # If another request wrote meanwhile, this answer waits for the disk without need, which does no harm.
        if end != previous_log_end and self.broker.options.sync_flush:
            self._unsynced.append((end, channel, answer))
        else:
            channel.send(answer)

    def run_long_requests(self) -> bool:
        """Run one slice of the requests that take long, and return whether work remains."""
        return self.broker.slices.run_next_slice()

    @property
    def unsent_answer_count(self) -> int:
        """Number of answers that wait for a flush or for slaves."""
        return len(self._unsynced)

    def _compute_answer(self, channel: Channel, request: Command) -> Command | Answering | None:
        if self.unsent_answer_count >= MAX_UNSYNCED and request.code in _WRITES:
            return request.reply(ResponseCode.SYSTEM_BUSY, remark=_FLUSH_IS_SLOW)
        handler = HANDLERS.get(request.code)
        if handler is None:
            remark = f"request type {request.code} not supported"
            if request.code in _POP_CODES:
                remark = f"{remark}: this broker does not support POP consumption; use client-side rebalancing"
            return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        try:
            if self._accounts is not None:
                self._accounts.check_request(request, channel)
            else:
                check_admin_request_is_local(request, channel)
            return handler(self.broker, channel, request)
        except Exception as error:  # noqa: BLE001 (it is answered and logged)
            return self._error_answer(channel, request, error)

    @staticmethod
    def _error_answer(channel: Channel, request: Command, error: Exception) -> Command:
        """Return the answer to a request whose handler failed; log unexpected errors."""
        if isinstance(error, CommandError | StoreError | DeliveryError):
            return request.reply(_response_code_for(error), remark=str(error))
        _logger.error("request %d of %s failed", request.code, channel.peer, exc_info=error)
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")

    def answer_held_pulls(self) -> None:
        """Answer waiting pull requests for which messages have arrived; call this after handling requests."""
        pulling.answer_pulls_with_new_messages(self.broker)

    @property
    def needs_log_sync(self) -> bool:
        """True if answers wait for a flush of the log."""
        return bool(self._unsynced)

    def on_log_synced(self, log_end: int) -> None:
        """Send the answers that waited for a flush of the log up to `log_end`."""
        while self._unsynced and self._unsynced[0][0] <= log_end:
            _, channel, answer = self._unsynced.popleft()
            channel.send(answer)

    def on_sync_failed(self, error: BaseException) -> None:
        """Answer all requests that wait for the disk with an error."""
        while self._unsynced:
            _, channel, answer = self._unsynced.popleft()
            channel.send(
                Command(
                    ResponseCode.SERVICE_NOT_AVAILABLE,
                    remark=f"service not available now: {error}",
                    opaque=answer.opaque,
                    flag=answer.flag,
                    serialize_type=answer.serialize_type,
                )
            )

    def on_connection_lost(self, channel: Channel) -> None:
        """Remove a closed connection's clients from their groups."""
        self.broker.slices.run(self.broker.notify_members(self.broker.clients.remove_connection(channel)))

    def run_periodic_work(self, now_ms: int) -> bool:
        """Do periodic work, such as deliveries; call this several times a second, and at once if it returns True."""
        self.broker.statistics.take_due_samples(now_ms)
        has_more = False
        try:
            if now_ms >= self._next_delivery_ms:
                has_more = self._deliver_due_messages(now_ms)
        except StoreError as error:
            # For example, the disk is full. Nothing is lost, and consumers are still served.
            self._next_delivery_ms = now_ms + DELIVERY_PAUSE_MS
            _logger.error("delivery of delayed messages is paused for %d s: %s", DELIVERY_PAUSE_MS // 1000, error)
        finally:
            self._serve_waiting_clients(now_ms)
        return has_more

    def _expire_clients(self, now_ms: int) -> Steps:
        try:
            changed = yield from self.broker.clients.remove_expired_clients(now_ms)
        finally:
            self._is_expiring = False
        yield from self.broker.notify_members(changed)

    def _deliver_due_messages(self, now_ms: int) -> bool:
        """Deliver due messages, and ask producers about half messages; return whether there is more to do now."""
        broker = self.broker
        end = time.perf_counter() + SLICE_SECONDS
        may_have_more = _is_time_reached(broker.delivery.next_due_ms(), now_ms)
        while may_have_more:
            may_have_more = len(broker.delivery.deliver_due(now_ms, DELIVERY_CHUNK)) >= DELIVERY_CHUNK
            if time.perf_counter() >= end:
                break
        return self._ask_producers(now_ms) or may_have_more

    def _ask_producers(self, now_ms: int) -> bool:
        """At an interval, ask producers about overdue half messages, a few per call; return whether more remain."""
        if self._asking is None:
            if now_ms < self._next_check_ms:
                return False
            self._next_check_ms = now_ms + self.broker.options.transaction_check_interval_ms
            self._asking = transactions.ask_producers(self.broker, now_ms)
        end = time.perf_counter() + SLICE_SECONDS
        for _ in self._asking:
            if time.perf_counter() >= end:
                return True
        self._asking = None
        return False

    def _serve_waiting_clients(self, now_ms: int) -> None:
        """Answer waiting pulls, and remove clients and locks that have expired."""
        broker = self.broker
        if now_ms >= self._next_poll_ms:
            self._next_poll_ms = now_ms + broker.options.long_poll_check_ms
            pulling.answer_pulls_past_deadline(broker, now_ms)
            if not self._is_expiring:
                self._is_expiring = True
                broker.slices.run(self._expire_clients(now_ms))
            broker.locks.remove_expired_locks(now_ms)
            forwarded_requests.expire_relayed_requests(broker, now_ms)
        self.answer_held_pulls()
