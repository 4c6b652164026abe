"""From a command to its handler, and from what the handler raises to an answer."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping

from commitlake.broker_lite.broker.accounts import Accounts
from commitlake.broker_lite.broker.administration import check_without_accounts
from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.broker.slices import SLICE_SECONDS, Steps
from commitlake.broker_lite.delivery import DeliveryError
from commitlake.broker_lite.handlers import (
    failures,
    group_administration,
    members,
    offsets,
    progress,
    pulling,
    queries,
    relays,
    replies,
    runtime,
    sending,
    topic_administration,
    transactions,
)
from commitlake.broker_lite.handlers.kinds import Answering, Handlers
from commitlake.broker_lite.protocol import Channel
from commitlake.broker_lite.stores.engine.errors import (
    DiskFullError,
    MessageRefusedError,
    StoreError,
    StoreUnusableError,
    UnsupportedError,
)
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.errors import CommandError, NotPermittedError, SignatureError
from commitlake.schemas.remoting.frames import Command

_logger = logging.getLogger(__name__)

DELIVERED_AT_ONCE = 16
"""Messages whose time has come, before it is checked whether clients have waited long enough."""
MAX_UNSYNCED = 50_000
"""Answers that wait for the disk; with more, messages are refused until it has caught up."""
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
_KEPT_BYTES: Mapping[int, int] = {RequestCode.QUERY_MESSAGE: queries.ANSWER_BYTES}
"""What requests keep until they are answered, beside their bodies."""
_BEHIND = "the answers to many messages wait for the disk or a slave, try again later"
_TOO_MUCH_WORK = "too many requests that take long are waiting, try again later"
DELIVERY_PAUSE_MS = 5_000
"""After the store could not take one of them."""

HANDLERS: Handlers = {
    **sending.HANDLERS,
    **pulling.HANDLERS,
    **members.HANDLERS,
    **offsets.HANDLERS,
    **failures.HANDLERS,
    **transactions.HANDLERS,
    **queries.HANDLERS,
    **replies.HANDLERS,
    **topic_administration.HANDLERS,
    **group_administration.HANDLERS,
    **progress.HANDLERS,
    **relays.HANDLERS,
    **runtime.HANDLERS,
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
    (SignatureError, ResponseCode.NO_PERMISSION),
    (NotPermittedError, ResponseCode.NO_PERMISSION),
    (MessageRefusedError, ResponseCode.MESSAGE_ILLEGAL),
    (DiskFullError, ResponseCode.SERVICE_NOT_AVAILABLE),
    (StoreUnusableError, ResponseCode.SERVICE_NOT_AVAILABLE),
    (UnsupportedError, ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
)


def _code_for(error: Exception) -> ResponseCode:
    return next((code for kind, code in _CODES_FOR if isinstance(error, kind)), ResponseCode.SYSTEM_ERROR)


def _is_due(due_ms: int | None, now_ms: int) -> bool:
    return due_ms is not None and due_ms <= now_ms


class Dispatcher:
    """A broker's answers to commands, and what it does by itself when time goes by.

    Attributes:
        broker: what it answers for.
    """

    def __init__(self, broker: Broker, accounts: Accounts | None = None) -> None:
        """Begin to answer.

        Args:
            broker: what it answers for.
            accounts: who may ask; None for everybody.
        """
        self.broker = broker
        self._accounts = accounts
        self._unsynced: deque[tuple[int, Channel, Command]] = deque()
        self._next_check_ms = broker.now_ms() + broker.options.transaction_check_interval_ms
        self._asking: Iterator[None] | None = None
        self._next_delivery_ms = self._next_poll_ms = broker.now_ms()

    def handle(self, channel: Channel, request: Command) -> None:
        """Do what a request asks, and answer it; what takes long is answered after some calls of `work`."""
        before = self.broker.store.log_end
        answer = self._answer(channel, request)
        if answer is None or isinstance(answer, Command):
            self._send(channel, request, answer, before)
            return
        kept_bytes = len(request.body) + _KEPT_BYTES.get(request.code, 0)
        if not self.broker.slices.run(self._answer_in_slices(channel, request, answer, before), channel, kept_bytes):
            self._send(channel, request, request.reply(ResponseCode.SYSTEM_BUSY, remark=_TOO_MUCH_WORK), before)

    def _answer_in_slices(self, channel: Channel, request: Command, answering: Answering, before: int) -> Steps:
        try:
            answer = yield from answering
        except Exception as error:  # noqa: BLE001 (it is answered, and logged)
            answer = self._failure(channel, request, error)
        self._send(channel, request, answer, before)

    def _send(self, channel: Channel, request: Command, answer: Command | None, before: int) -> None:
        """Send an answer; it waits for the disk if the log has grown since `before` and the broker is so set."""
        if answer is None or request.is_one_way:
            return
        end = self.broker.store.log_end
        if end != before and self.broker.options.sync_flush:
            self._unsynced.append((end, channel, answer))
        else:
            channel.send(answer)

    def work(self) -> bool:
        """Go on with requests that take long, for some milliseconds; returns whether more is to be done."""
        return self.broker.slices.turn()

    @property
    def unsent_answers(self) -> int:
        """How many answers wait for the disk, or for slaves."""
        return len(self._unsynced)

    def _answer(self, channel: Channel, request: Command) -> Command | Answering | None:
        if self.unsent_answers >= MAX_UNSYNCED and request.code in _WRITES:
            return request.reply(ResponseCode.SYSTEM_BUSY, remark=_BEHIND)
        handler = HANDLERS.get(request.code)
        if handler is None:
            remark = f"request type {request.code} not supported"
            if request.code in _POP_CODES:
                remark = f"{remark}: this broker has no POP consumption; consume with client-side rebalancing"
            return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        try:
            if self._accounts is not None:
                self._accounts.check(request, channel)
            else:
                check_without_accounts(request, channel)
            return handler(self.broker, channel, request)
        except Exception as error:  # noqa: BLE001 (it is answered, and logged)
            return self._failure(channel, request, error)

    @staticmethod
    def _failure(channel: Channel, request: Command, error: Exception) -> Command:
        """Return the answer to a request whose handler has failed."""
        if isinstance(error, CommandError | StoreError | DeliveryError):
            return request.reply(_code_for(error), remark=str(error))
        _logger.error("request %d of %s failed", request.code, channel.peer, exc_info=error)
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")

    def answer_arrived(self) -> None:
        """Answer the waiting pulls for which something has come; to be called when some requests were handled."""
        pulling.answer_arrived(self.broker)

    @property
    def wants_sync(self) -> bool:
        """Whether answers wait for the disk."""
        return bool(self._unsynced)

    def synced(self, log_end: int) -> None:
        """Send the answers to what is on the disk now."""
        while self._unsynced and self._unsynced[0][0] <= log_end:
            _, channel, answer = self._unsynced.popleft()
            channel.send(answer)

    def sync_failed(self, error: BaseException) -> None:
        """Tell those who wait for the disk that it failed."""
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

    def lost(self, channel: Channel) -> None:
        """Note that a connection has ended."""
        self.broker.slices.run(self.broker.notify_members(self.broker.clients.lost(channel)))

    def tick(self, now_ms: int) -> bool:
        """Do what is due by itself; to be called several times a second, and at once where it says that more is due."""
        self.broker.statistics.tick(now_ms)
        has_more = False
        try:
            if now_ms >= self._next_delivery_ms:
                has_more = self._deliver(now_ms)
        except StoreError as error:
            # A full disk, say. Nothing is lost by it, and consumers are served.
            self._next_delivery_ms = now_ms + DELIVERY_PAUSE_MS
            _logger.error("messages whose time has come wait for %d s: %s", DELIVERY_PAUSE_MS // 1000, error)
        finally:
            self._attend_clients(now_ms)
        return has_more

    def _deliver(self, now_ms: int) -> bool:
        """Let consumers have what is due, and ask about halves; tells whether more is due."""
        broker = self.broker
        end = time.perf_counter() + SLICE_SECONDS
        is_behind = _is_due(broker.delivery.next_due_ms(), now_ms)
        while is_behind:
            is_behind = len(broker.delivery.deliver_due(now_ms, DELIVERED_AT_ONCE)) >= DELIVERED_AT_ONCE
            if time.perf_counter() >= end:
                break
        return self._ask_producers(now_ms) or is_behind

    def _ask_producers(self, now_ms: int) -> bool:
        """Ask about some of the halves that have waited too long, every so often; tells whether there are more."""
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

    def _attend_clients(self, now_ms: int) -> None:
        """Answer the pulls for which something has come, or which have waited long enough; see who has gone."""
        broker = self.broker
        if now_ms >= self._next_poll_ms:
            self._next_poll_ms = now_ms + broker.options.long_poll_check_ms
            pulling.answer_late(broker, now_ms)
            broker.slices.run(broker.notify_members(broker.clients.expire(now_ms)))
            broker.locks.expire(now_ms)
            relays.give_up_late(broker, now_ms)
        self.answer_arrived()
