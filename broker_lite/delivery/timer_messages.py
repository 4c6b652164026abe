"""Timer messages (5.x): messages with a delivery time of their own, parked in rmq_sys_wheel_timer until then.

The properties TIMER_DELIVER_MS (a time), TIMER_DELAY_MS or TIMER_DELAY_SEC set the delivery time. It is rounded down to
a whole second, and the message is delivered when that second is over. Waiting messages are kept in RocketMQ's own files
(see `broker_lite.stores.rocketmq.timer_files`), so that our broker and RocketMQ's can take over from each other. After
a crash, a message may have been delivered although the files do not say so; the index then shows a message with the
same UNIQ_KEY and time. Source: HookUtils.transformTimerMessage, TimerMessageStore (5.5.0).
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import deque
from typing import NamedTuple

from commitlake.broker_lite.delivery import message_rewrites
from commitlake.broker_lite.delivery.internal_queues import TargetError, parse_delivery_target, read_intact_messages
from commitlake.broker_lite.errors import IndexDisabledError, MessageRefusedError
from commitlake.broker_lite.stores.rocketmq import MessageStore, PutResult
from commitlake.schemas.layouts.integer_parsing import parse_int, parse_int64
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.commitlog import Message, NewMessage
from commitlake.schemas.layouts.rocketmq.key_hashes import java_hash
from commitlake.schemas.layouts.rocketmq.timers import (
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    NO_POSITION,
    TimerUnit,
)
from commitlake.schemas.layouts.rocketmq.topics import TIMER_TOPIC

DELIVER_MS = "TIMER_DELIVER_MS"
DELAY_MS = "TIMER_DELAY_MS"
DELAY_SECONDS = "TIMER_DELAY_SEC"
CANCELLED_KEY = "TIMER_DEL_UNIQKEY"
ROLL_WINDOW_SLOTS = 2 * 86_400
"""Maximum delay in slots; a message that is due later is parked again on the way. RocketMQ's timerRollWindowSlot."""
_MAX_MS = (1 << 62) - 1
_logger = logging.getLogger(__name__)


def has_delivery_time(properties: dict[str, str]) -> bool:
    """Return whether a message's properties set a delivery time."""
    return DELIVER_MS in properties or DELAY_MS in properties or DELAY_SECONDS in properties


def _due_ms(message: Message, properties: dict[str, str]) -> int | None:
    """Return the due time of a waiting message; its store time if no time is set, None if the time is invalid."""
    text = properties.get(props.TIMER_OUT)
    return message.store_timestamp if text is None else parse_int64(text)


class _ParkedMessage(NamedTuple):
    """Message that waits in a slot of the timer wheel.

    Attributes:
        unit: entry of the message in the timer log.
        is_doubtful: True if it may have been delivered before the store was opened.
    """

    unit: TimerUnit
    is_doubtful: bool


class TimerMessages:
    """Timer messages (messages with a delivery time) of a store; several threads may use it."""

    def __init__(self, store: MessageStore, max_delay_ms: int) -> None:
        """Read waiting messages from the store's timer files, and newer ones from the timer topic's queue."""
        self._store = store
        self._files = store.files.timers
        self._max_delay_ms = max_delay_ms
        self._guard = threading.Lock()
        self._slots: dict[int, deque[_ParkedMessage]] = {}
        self._times: list[int] = []
        self._cancelled: dict[str, int] = {}
        self._first_new = store.max_offset(TIMER_TOPIC, 0)
        waiting, last = self._files.recover(store.log_end, is_after_crash=store.recovery.crashed)
        self._opened_ms = self._slot_start_ms(store.clock())
        self._read_ms = self._files.checkpoint.last_read_time_ms
        if not self._files.has_checkpoint:
            self._read_ms = self._opened_ms - self._files.precision_ms
        self._queue_offset, self._known = self._find_resume_point(last)
        self._slot_is_partly_delivered = False
        self._warn_of_duplicates()
        for unit in waiting:
            self._add_timer_unit(unit, may_be_delivered=unit.slot_ms < self._opened_ms)
        store.before_close.append(self._deliver_rest_of_slot)

    def _warn_of_duplicates(self) -> None:
        """Log a warning that messages may be delivered twice if the timer files do not show which were delivered."""
        if self._files.has_checkpoint or self._queue_offset == self._first_new:
            return
        has_index = self._store.options.has_index
        known = "found in the index" if has_index else "delivered again, because there is no index"
        _logger.warning(
            "%d messages are in the timer topic, and config/timercheck is missing: those already delivered are %s",
            self._first_new - self._queue_offset, known,
        )  # fmt: skip

    def _slot_start_ms(self, time_ms: int) -> int:
        return time_ms // self._files.precision_ms * self._files.precision_ms

    def _find_resume_point(self, last_timer_unit: TimerUnit | None) -> tuple[int, frozenset[int]]:
        """Return the timer topic's next queue offset to read, and the messages from there that the timer files have.

        These messages are given as the physical offsets of their records.
        """
        low, high = self._store.min_offset(TIMER_TOPIC, 0), self._store.max_offset(TIMER_TOPIC, 0)
        if not self._files.has_checkpoint and last_timer_unit is None:
            return low, frozenset()
        checkpoint = self._files.checkpoint
        message = self._message_of(last_timer_unit) if last_timer_unit is not None else None
        following = checkpoint.last_timer_queue_offset if message is None else message.queue_offset + 1
        # The smaller of the two: a message that is entered twice is recognised, one that is passed over is lost.
        offset = min(max(min(following, checkpoint.master_timer_queue_offset), low), high)
        entry = self._store.entry_at(TIMER_TOPIC, 0, offset)
        if entry is None or message is None:
            return offset, frozenset()
        return offset, frozenset(unit.physical_offset for unit in self._files.read_timer_units(entry.physical_offset))

    def _message_of(self, timer_unit: TimerUnit) -> Message | None:
        """Return the message of a timer log unit, or None if the log has no intact record of the timer topic there."""
        message = self._store.get_at(timer_unit.physical_offset)
        return message if message is not None and message.topic == TIMER_TOPIC else None

    def _add_timer_unit(self, timer_unit: TimerUnit, *, may_be_delivered: bool) -> None:
        slot_ms = self._slot_start_ms(timer_unit.slot_ms)
        if slot_ms not in self._slots:
            self._slots[slot_ms] = deque()
            heapq.heappush(self._times, slot_ms)
        self._slots[slot_ms].append(_ParkedMessage(timer_unit, may_be_delivered))
        if timer_unit.magic & MAGIC_DELETE and (message := self._message_of(timer_unit)) is not None:
            self._cancelled[message.properties.get(CANCELLED_KEY, "")] = slot_ms

    def to_parked_record(self, message: NewMessage, properties: dict[str, str], now_ms: int) -> NewMessage:
        """Return the record to store in the timer topic, or the unchanged message if it is due already.

        Raises:
            MessageRefusedError: if the time is not a number or too far in the future.
        """
        wanted = self._parse_delivery_time(properties, now_ms)
        if wanted <= now_ms:
            if CANCELLED_KEY in properties:
                raise MessageRefusedError(f"{CANCELLED_KEY}: expected a time in the future, found {wanted}")
            return message
        if wanted - now_ms > self._max_delay_ms:
            raise MessageRefusedError(
                f"timer message illegal, the delay time should not be bigger than the max delay "
                f"{self._max_delay_ms}ms; or if set del msg, the delay time should be bigger than the current time"
            )
        # A time on an exact second is moved to the slot before, as RocketMQ does.
        return message_rewrites.to_timer_message(message, self._slot_start_ms(wanted - 1))

    def _parse_delivery_time(self, properties: dict[str, str], now_ms: int) -> int:
        for name, unit_ms, start_ms in ((DELAY_SECONDS, 1000, now_ms), (DELAY_MS, 1, now_ms), (DELIVER_MS, 1, 0)):
            if (text := properties.get(name)) is not None:
                number = parse_int(text, -_MAX_MS, _MAX_MS)  # negative: a time in the past
                if number is None:
                    raise MessageRefusedError(f"{name}: expected a whole number, found {text[:40]!r}")
                return start_ms + number * unit_ms
        return now_ms

    def next_due_ms(self) -> int | None:
        """Return the time at which the next message is due, or None if no message waits."""
        with self._guard:
            self._load_parked_messages()
            return self._times[0] + self._files.precision_ms if self._times else None

    def load_parked_messages(self) -> None:
        """Read new messages from the timer topic, and enter them into the timer files."""
        with self._guard:
            self._load_parked_messages()

    def deliver_due(self, now_ms: int, limit: int | None = None) -> list[PutResult]:
        """Store due messages under their real topics, in the order in which they are due."""
        delivered: list[PutResult] = []
        end_ms = self._slot_start_ms(now_ms)
        with self._guard:
            self._load_parked_messages()
            read_ms = self._read_ms
            while self._times and self._times[0] < end_ms and (limit is None or len(delivered) < limit):
                slot_ms = self._times[0]
                waiting = self._slots[slot_ms]
                while waiting and (limit is None or len(delivered) < limit):
                    if result := self._deliver_parked_message(waiting[0], now_ms):
                        delivered.append(result)
                    # Remove it only after it is stored: on a full disk it keeps waiting.
                    waiting.popleft()
                    self._slot_is_partly_delivered = True
                if not waiting:
                    self._mark_slot_delivered(slot_ms)
            if self._read_ms != read_ms:
                self._files.save_checkpoint(now_ms, last_read_time_ms=self._read_ms)
            if not self._times or self._times[0] >= end_ms:
                # The newest slot stays open for messages that are due at once.
                self._read_ms = max(self._read_ms, end_ms - self._files.precision_ms)
            self._load_parked_messages()  # messages that were parked again
        return delivered

    def _mark_slot_delivered(self, slot_ms: int) -> None:
        """Mark all messages of a slot as delivered."""
        heapq.heappop(self._times)
        del self._slots[slot_ms]
        self._read_ms = slot_ms + self._files.precision_ms
        self._slot_is_partly_delivered = False
        if self._cancelled:
            self._cancelled = {key: time for key, time in self._cancelled.items() if time > slot_ms}

    def _load_parked_messages(self) -> None:
        high = self._store.max_offset(TIMER_TOPIC, 0)
        if self._queue_offset >= high:
            return
        now_ms = self._store.clock()
        # A broker that finds fewer units than messages resumes after the last unit.
        self._files.save_checkpoint(now_ms, last_read_time_ms=self._read_ms, master_timer_queue_offset=high)
        for number, message in read_intact_messages(self._store, TIMER_TOPIC, 0, self._queue_offset):
            if message is not None and message.physical_offset not in self._known:
                self._add_message(message, number, now_ms)
            self._queue_offset = number + 1
        # Only after the units are in the timer log.
        self._files.save_checkpoint(now_ms, last_timer_queue_offset=self._queue_offset)

    def _add_message(self, message: Message, queue_offset: int, now_ms: int) -> None:
        known = message.properties
        due_ms = _due_ms(message, known)
        if due_ms is None:
            _logger.error(
                "timer message %d is skipped: expected a time in %s, found %r",
                queue_offset, props.TIMER_OUT, known[props.TIMER_OUT][:40],
            )  # fmt: skip
            return
        write_ms = self._slot_start_ms(now_ms)
        magic = MAGIC_DEFAULT
        # A slot that was read is not read again.
        slot_ms = max(self._slot_start_ms(due_ms), self._read_ms)
        window_ms = ROLL_WINDOW_SLOTS * self._files.precision_ms
        if (beyond_ms := slot_ms - write_ms - window_ms) >= 0:
            magic |= MAGIC_ROLL
            # If little is left after one window, the way is divided in halves, so that the last part is not too short
            # (TimerMessageStore.doEnqueue).
            slot_ms = write_ms + (window_ms // 2 if beyond_ms < window_ms // 3 else window_ms)
        if CANCELLED_KEY in known:
            magic |= MAGIC_DELETE
        topic_hash = java_hash(known.get(props.REAL_TOPIC, ""))
        unit = TimerUnit(
            NO_POSITION, magic, write_ms, slot_ms - write_ms, message.physical_offset, message.size, topic_hash
        )
        self._files.append_unit(unit)
        self._add_timer_unit(unit, may_be_delivered=queue_offset < self._first_new and due_ms < self._opened_ms)

    def _deliver_parked_message(self, parked_message: _ParkedMessage, now_ms: int) -> PutResult | None:
        unit = parked_message.unit
        message = self._message_of(unit)
        if message is None:
            _logger.error("a timer message is skipped: expected an intact record at %d", unit.physical_offset)
            return None
        known = message.properties
        is_rolled = bool(unit.magic & MAGIC_ROLL)
        if not is_rolled and (CANCELLED_KEY in known or self._is_cancelled(known)):
            return None
        if parked_message.is_doubtful and self._was_delivered(message, known, is_rolled=is_rolled):
            return None
        try:
            if is_rolled:
                return self._store.put(message_rewrites.to_rolled_timer_message(message, unit.write_time_ms, now_ms))
            topic, queue_id = parse_delivery_target(self._store, known)
            return self._store.put(
                message_rewrites.to_delivered_timer_message(message, topic, queue_id, unit.write_time_ms, now_ms)
            )
        except (MessageRefusedError, TargetError) as error:
            # Skip it, so that other messages are delivered. Only a damaged or foreign record fails here.
            number = message.queue_offset
            _logger.error("timer message %d is skipped, because it cannot be delivered: %r", number, error)
            return None

    def _is_cancelled(self, properties: dict[str, str]) -> bool:
        unique_key = properties.get(props.UNIQ_KEY, "")
        return f"{properties.get(props.REAL_TOPIC)}_{unique_key}" in self._cancelled or unique_key in self._cancelled

    def _was_delivered(self, message: Message, properties: dict[str, str], *, is_rolled: bool) -> bool:
        """Return whether a due message was already delivered before the store was opened."""
        unique_key = properties.get(props.UNIQ_KEY)
        topic = TIMER_TOPIC if is_rolled else properties.get(props.REAL_TOPIC)
        if not unique_key or not topic:
            return False
        try:
            found = self._store.get_by_key(topic, unique_key, begin_ms=message.store_timestamp)
        except IndexDisabledError:
            return False
        due, place = properties.get(props.TIMER_OUT), message.physical_offset
        # Stored later, and due at the same time: a resent message may have the same UNIQ_KEY.
        return any(one.physical_offset > place and one.properties.get(props.TIMER_OUT) == due for one in found)

    def _deliver_rest_of_slot(self) -> None:
        """Deliver the remaining messages of a slot of the timer wheel of which only a part was delivered."""
        with self._guard:
            if not self._slot_is_partly_delivered:
                return
            slot_ms = self._times[0]
            waiting, now_ms = self._slots[slot_ms], self._store.clock()
            while waiting:
                self._deliver_parked_message(waiting[0], now_ms)
                waiting.popleft()
            self._mark_slot_delivered(slot_ms)
            self._files.save_checkpoint(now_ms, last_read_time_ms=self._read_ms)
            self._load_parked_messages()
