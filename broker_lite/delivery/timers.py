"""Messages with a time of their own (5.x): parked in rmq_sys_wheel_timer until then.

A message says when it is to come by TIMER_DELIVER_MS (a time), TIMER_DELAY_MS or TIMER_DELAY_SEC; the time is taken
down to a whole second. RocketMQ keeps what waits in files of its own (a wheel and its log); here it is read from the
timer topic's queue again when a store is opened. What was due before that may have been delivered already: it is then
found in the index, as a message of the same UNIQ_KEY and time. Source: HookUtils.transformTimerMessage,
TimerMessageStore (5.5.0).
"""

from __future__ import annotations

import heapq
import logging
import threading

from broker_lite.delivery import rewrites
from broker_lite.delivery.own_queues import whole_message, whole_messages
from broker_lite.delivery.targets import TargetError, real_place
from broker_lite.store import IndexDisabledError, MessageRefusedError, MessageStore, PutResult
from schemas.layouts import properties as props
from schemas.layouts.commitlog import Message, NewMessage
from schemas.layouts.numbers import parse_int, parse_int64
from schemas.layouts.topics import TIMER_TOPIC

DELIVER_MS = "TIMER_DELIVER_MS"
DELAY_MS = "TIMER_DELAY_MS"
DELAY_SECONDS = "TIMER_DELAY_SEC"
CANCELLED_KEY = "TIMER_DEL_UNIQKEY"
PRECISION_MS = 1000
GROUP = "CID_RMQ_SYS_TIMER"
"""Whose consumer offset of the timer topic says before which message nothing waits any more."""
_MAX_MS = (1 << 62) - 1
_logger = logging.getLogger(__name__)


def asks_for_timer(known: dict[str, str]) -> bool:
    """Whether a message's properties name a time."""
    return DELIVER_MS in known or DELAY_MS in known or DELAY_SECONDS in known


def _due_ms(message: Message, known: dict[str, str]) -> int | None:
    """Return when a parked message is due, at once where it does not say so; None for what is not a time."""
    text = known.get(rewrites.TIMER_OUT)
    return message.store_timestamp if text is None else parse_int64(text)


class Timers:
    """The messages of a store that wait for their time; several threads may use it."""

    def __init__(self, store: MessageStore, max_delay_ms: int) -> None:
        """Read what waits from the timer topic's queue."""
        self._store = store
        self._max_delay_ms = max_delay_ms
        self._guard = threading.Lock()
        self._waiting: list[tuple[int, int]] = []
        self._unfinished: set[int] = set()
        self._cancelled: dict[str, int] = {}
        self._opened_ms = store.clock()
        progress = store.config.consumer_offsets.get(TIMER_TOPIC, GROUP, 0) or 0
        self._read_to = max(progress, store.min_offset(TIMER_TOPIC, 0))
        self._first_new = store.max_offset(TIMER_TOPIC, 0)
        self._read_new()

    def park(self, message: NewMessage, known: dict[str, str], now_ms: int) -> NewMessage:
        """The message as it waits; as it is, where its time has come already.

        Raises:
            MessageRefusedError: if the time is no number, or too far off.
        """
        wanted = self._wanted_ms(known, now_ms)
        if wanted <= now_ms:
            if CANCELLED_KEY in known:
                raise MessageRefusedError(f"{CANCELLED_KEY}: expected a time to come, found {wanted}")
            return message
        if wanted - now_ms > self._max_delay_ms:
            raise MessageRefusedError(
                f"timer message illegal, the delay time should not be bigger than the max delay "
                f"{self._max_delay_ms}ms; or if set del msg, the delay time should be bigger than the current time"
            )
        # An exact second is moved one unit ahead, as RocketMQ does.
        due_ms = (wanted - 1) // PRECISION_MS * PRECISION_MS
        return rewrites.park_timer(message, due_ms)

    def _wanted_ms(self, known: dict[str, str], now_ms: int) -> int:
        for name, unit_ms, start_ms in ((DELAY_SECONDS, 1000, now_ms), (DELAY_MS, 1, now_ms), (DELIVER_MS, 1, 0)):
            if (text := known.get(name)) is not None:
                number = parse_int(text, -_MAX_MS, _MAX_MS)  # below zero: a time that has passed
                if number is None:
                    raise MessageRefusedError(f"{name}: expected a whole number, found {text[:40]!r}")
                return start_ms + number * unit_ms
        return now_ms

    def next_due_ms(self) -> int | None:
        """When the next message is due; None where none waits."""
        with self._guard:
            self._read_new()
            return self._waiting[0][0] if self._waiting else None

    def deliver_due(self, now_ms: int, limit: int | None = None) -> list[PutResult]:
        """Store the messages that are due under their real topics, in the order of their times; see `Schedule`."""
        delivered: list[PutResult] = []
        with self._guard:
            self._read_new()
            while self._waiting and self._waiting[0][0] <= now_ms and (limit is None or len(delivered) < limit):
                number = self._waiting[0][1]
                if result := self._deliver(number, now_ms):
                    delivered.append(result)
                # Not before it is stored: on a full disk it waits on.
                heapq.heappop(self._waiting)
                self._unfinished.discard(number)
            self._note_progress()
        return delivered

    def _read_new(self) -> None:
        for number, message in whole_messages(self._store, TIMER_TOPIC, 0, self._read_to):
            if message is not None:
                self._take(message)
            self._read_to = number + 1

    def _take(self, message: Message) -> None:
        known = message.properties
        due_ms = _due_ms(message, known)
        if due_ms is None:
            _logger.error(
                "timer message %d is left out: expected a time in %s, found %r",
                message.queue_offset, rewrites.TIMER_OUT, known[rewrites.TIMER_OUT][:40],
            )  # fmt: skip
            return
        if key := known.get(CANCELLED_KEY):
            self._cancelled[key] = due_ms
        heapq.heappush(self._waiting, (due_ms, message.queue_offset))
        self._unfinished.add(message.queue_offset)

    def _deliver(self, number: int, now_ms: int) -> PutResult | None:
        message = whole_message(self._store, TIMER_TOPIC, 0, number)
        if message is None:
            return None
        known = message.properties
        if (cancelled := known.get(CANCELLED_KEY)) is not None:
            self._cancelled.pop(cancelled, None)
            return None
        if self._is_cancelled(known) or (number < self._first_new and self._was_delivered(message, known)):
            return None
        try:
            topic, queue_id = real_place(self._store, known)
            return self._store.put(rewrites.unpark_timer(message, topic, queue_id, message.store_timestamp, now_ms))
        except (MessageRefusedError, TargetError) as error:
            # Only a damaged or foreign record is such; the others must not wait for it.
            _logger.error("timer message %d is left out, it cannot be delivered: %r", number, error)
            return None

    def _is_cancelled(self, known: dict[str, str]) -> bool:
        unique_key = known.get(props.UNIQ_KEY, "")
        return f"{known.get(props.REAL_TOPIC)}_{unique_key}" in self._cancelled or unique_key in self._cancelled

    def _was_delivered(self, message: Message, known: dict[str, str]) -> bool:
        """Whether a message that was due before the store was opened came then already."""
        unique_key, topic = known.get(props.UNIQ_KEY), known.get(props.REAL_TOPIC)
        due_ms = _due_ms(message, known)
        if not unique_key or not topic or due_ms is None or due_ms > self._opened_ms:
            return False
        try:
            found = self._store.get_by_key(topic, unique_key, begin_ms=message.store_timestamp)
        except IndexDisabledError:
            return False
        due = known.get(rewrites.TIMER_OUT)
        return any(one.properties.get(rewrites.TIMER_OUT) == due for one in found)

    def _note_progress(self) -> None:
        progress = min(self._unfinished, default=self._read_to)
        offsets = self._store.config.consumer_offsets
        if offsets.get(TIMER_TOPIC, GROUP, 0) != progress and self._read_to:
            offsets.commit(TIMER_TOPIC, GROUP, 0, progress)
