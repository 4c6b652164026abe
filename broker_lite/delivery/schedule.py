"""Delayed messages: parked in the schedule topic, a queue for each level, and stored again when their time has come.

The ConsumeQueue of the schedule topic holds the time of delivery of every message, and within a level the times rise;
so the next of a level is all that must be looked at. How far a level has come is kept in `delayOffset.json`, which
lags: after a crash a message can be delivered twice, as by RocketMQ. Source: ScheduleMessageService.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from commitlake.broker_lite.delivery.rewrites import unpark
from commitlake.broker_lite.delivery.targets import real_place
from commitlake.broker_lite.stores.engine.errors import MessageRefusedError
from commitlake.broker_lite.stores.rocketmq import MessageStore, PutResult
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The next message of a level.

    Attributes:
        due_ms: when it is to be delivered.
        level: its delay level.
        queue_offset: of the parked record in its level's queue.
        physical_offset: of the parked record.
    """

    due_ms: int
    level: int
    queue_offset: int
    physical_offset: int


class Schedule:
    """The parked messages of a store; several threads may use it."""

    def __init__(self, store: MessageStore) -> None:
        """Take up where `delayOffset.json` says, within what the queues still hold."""
        self._store = store
        self._topic = store.options.dialect.schedule_topic
        self._delays_ms = store.options.delay_levels_ms
        self._guard = threading.Lock()
        offsets = store.config.delay_offsets
        for level in self._levels:
            low, high = store.min_offset(self._topic, level - 1), store.max_offset(self._topic, level - 1)
            if (offset := min(max(offsets.get(level), low), high)) != offsets.get(level):
                offsets.set(level, offset)

    @property
    def _levels(self) -> range:
        return range(1, len(self._delays_ms) + 1)

    def next_due_ms(self) -> int | None:
        """When the next message is due; None where none waits."""
        heads = [head for level in self._levels if (head := self._head(level))]
        return min((head.due_ms for head in heads), default=None)

    def _head(self, level: int) -> Waiting | None:
        offsets = self._store.config.delay_offsets
        offset = offsets.get(level)
        entry = self._store.entry_at(self._topic, level - 1, offset)
        if entry is None and offset < (low := self._store.min_offset(self._topic, level - 1)):
            # Their segments went from a disk that was too full; those behind them must not wait for them.
            _logger.error("messages %d to %d of delay level %d have expired before their time", offset, low - 1, level)
            offsets.set(level, low)
            offset, entry = low, self._store.entry_at(self._topic, level - 1, low)
        return Waiting(entry.tags_code, level, offset, entry.physical_offset) if entry else None

    def deliver_due(self, now_ms: int, limit: int | None = None) -> list[PutResult]:
        """Deliver everything that is due, what was due first coming first.

        Args:
            now_ms: what was due by then.
            limit: how many at most; None for all.

        Returns:
            Where the messages were stored.
        """
        delivered: list[PutResult] = []
        with self._guard:
            heads = {level: head for level in self._levels if (head := self._head(level))}
            while heads and (limit is None or len(delivered) < limit):
                level, head = min(heads.items(), key=lambda item: (self._due_ms(item[1], now_ms), item[0]))
                if self._due_ms(head, now_ms) > now_ms:
                    break
                if result := self._deliver(head):
                    delivered.append(result)
                self._store.config.delay_offsets.set(level, head.queue_offset + 1)
                del heads[level]
                if following := self._head(level):
                    heads[level] = following
        return delivered

    def _due_ms(self, waiting: Waiting, now_ms: int) -> int:
        """When it is due; at once if that is further off than its level allows: the clock was put back."""
        latest = now_ms + self._delays_ms[waiting.level - 1]
        return now_ms if waiting.due_ms > latest else waiting.due_ms

    def _deliver(self, waiting: Waiting) -> PutResult | None:
        try:
            return self._store.put(self._unparked(waiting.physical_offset))
        except (MessageRefusedError, ValueError) as error:
            # It would stop its level for ever. Only a damaged or foreign record is such.
            _logger.error(
                "the message parked at %d is left out, it cannot be delivered: %r", waiting.physical_offset, error
            )
            return None

    def _unparked(self, physical_offset: int) -> NewMessage:
        message = self._store.get_at(physical_offset)
        if message is None:
            raise ValueError("expected a whole record, found none")
        return unpark(message, *real_place(self._store, message.properties))
