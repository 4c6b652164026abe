"""Delayed messages: parked in a schedule topic with one queue per level, and stored again when they are due.

The ConsumeQueue of the schedule topic contains the delivery time of each message, and the times rise within a level, so
only the first message of each level has to be checked. The progress of each level is stored in `delayOffset.json` with
a delay, so a message can be delivered twice after a crash, as with RocketMQ. Source: ScheduleMessageService.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from commitlake.broker_lite.delivery.internal_queues import parse_delivery_target
from commitlake.broker_lite.delivery.message_rewrites import to_delivered_message
from commitlake.broker_lite.errors import MessageRefusedError
from commitlake.broker_lite.stores.rocketmq import MessageStore, PutResult
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ScheduledMessage:
    """Message that is the next to deliver of its delay level.

    Attributes:
        due_ms: time at which it must be delivered.
        level: delay level.
        queue_offset: offset of the parked record in its level's queue.
        physical_offset: physical offset of the parked record.
    """

    due_ms: int
    level: int
    queue_offset: int
    physical_offset: int


class DelayedMessageSchedule:
    """Messages of a store that wait for their delay level's time; several threads may use it."""

    def __init__(self, store: MessageStore) -> None:
        """Resume from `delayOffset.json`, within the range that the queues still contain."""
        self._store = store
        self._topic = store.options.dialect.schedule_topic
        self._delays_ms = store.options.delay_levels_ms
        self._guard = threading.Lock()
        offsets = store.config.delay_offsets
        for level in self._delay_levels:
            low, high = store.min_offset(self._topic, level - 1), store.max_offset(self._topic, level - 1)
            if (offset := min(max(offsets.get(level), low), high)) != offsets.get(level):
                offsets.set(level, offset)

    @property
    def _delay_levels(self) -> range:
        return range(1, len(self._delays_ms) + 1)

    def next_due_ms(self) -> int | None:
        """Return the time at which the next message is due, or None if no message is delayed."""
        heads = [head for level in self._delay_levels if (head := self._next_message_of_level(level))]
        return min((head.due_ms for head in heads), default=None)

    def _next_message_of_level(self, level: int) -> ScheduledMessage | None:
        offsets = self._store.config.delay_offsets
        offset = offsets.get(level)
        entry = self._store.entry_at(self._topic, level - 1, offset)
        if entry is None and offset < (low := self._store.min_offset(self._topic, level - 1)):
            # Their segments were deleted because the disk was full; skip them so that later messages are delivered.
            _logger.error(
                "messages %d to %d of delay level %d were deleted before they were due", offset, low - 1, level
            )
            offsets.set(level, low)
            offset, entry = low, self._store.entry_at(self._topic, level - 1, low)
        return ScheduledMessage(entry.tags_code, level, offset, entry.physical_offset) if entry else None

    def deliver_due(self, now_ms: int, limit: int | None = None) -> list[PutResult]:
        """Deliver all due messages, ordered by the time at which they are due.

        Args:
            now_ms: deliver messages that are due at or before this time.
            limit: maximum number of messages; None for no limit.

        Returns:
            Positions of the delivered messages.
        """
        delivered: list[PutResult] = []
        with self._guard:
            heads = {level: head for level in self._delay_levels if (head := self._next_message_of_level(level))}
            while heads and (limit is None or len(delivered) < limit):
                level, head = min(heads.items(), key=lambda item: (self._due_ms(item[1], now_ms), item[0]))
                if self._due_ms(head, now_ms) > now_ms:
                    break
                if result := self._deliver_message(head):
                    delivered.append(result)
                # Only after the message is stored: a crash in between delivers it twice, but never not at all.
                self._store.config.delay_offsets.set(level, head.queue_offset + 1)
                del heads[level]
                if following := self._next_message_of_level(level):
                    heads[level] = following
        return delivered

    def _due_ms(self, scheduled_message: ScheduledMessage, now_ms: int) -> int:
        """Return the delivery time of a delayed message; now, if that time is implausibly far in the future."""
        latest = now_ms + self._delays_ms[scheduled_message.level - 1]
        return now_ms if scheduled_message.due_ms > latest else scheduled_message.due_ms

    def _deliver_message(self, scheduled_message: ScheduledMessage) -> PutResult | None:
        try:
            return self._store.put(self._read_original_message(scheduled_message.physical_offset))
        except (MessageRefusedError, ValueError) as error:
            # Skip it, or it would block its level forever. Only a damaged or foreign record fails here.
            _logger.error(
                "the message parked at %d is skipped, because it cannot be delivered: %r",
                scheduled_message.physical_offset,
                error,
            )
            return None

    def _read_original_message(self, physical_offset: int) -> NewMessage:
        message = self._store.get_at(physical_offset)
        if message is None:
            raise ValueError("the record of the delayed message in the log is missing or damaged")
        return to_delivered_message(message, *parse_delivery_target(self._store, message.properties))
