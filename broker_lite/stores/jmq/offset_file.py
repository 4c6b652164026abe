"""File `offset/offset.json`: the positions of all applications in all queues.

The file is written to a temporary name, synced and renamed; its previous version is kept as `.bak`, which is read if
the file itself is missing or invalid.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from commitlake.broker_lite.stores.engine.table_and_checkpoint_files import SavedTable
from commitlake.schemas.layouts.jmq.offset_json import (
    FILE_NAME,
    FOLDER,
    ConsumedQueue,
    ConsumerPosition,
    Positions,
    parse_offsets,
    serialize_offsets,
)

_logger = logging.getLogger(__name__)
_START = ConsumerPosition(0, 0, 0)


class OffsetFile(SavedTable):
    """Consumption positions of applications, in memory and on disk; several threads may use it.

    Messages that were not acknowledged when the store was closed are delivered again.
    """

    is_dated = True

    def __init__(self, root: Path, clock: Callable[[], int]) -> None:
        """Read the positions from the file.

        Raises:
            StoreError: if neither the file nor its `.bak` can be read.
        """
        super().__init__(root, FOLDER, FILE_NAME)
        self._clock = clock
        stored = self._read_table(lambda data: parse_offsets(data)[0]) or {}
        self._positions = {place: position._replace(pull=position.ack) for place, position in stored.items()}

    @property
    def positions(self) -> Positions:
        """Positions of all applications in all queues."""
        with self._guard:
            return dict(self._positions)

    def get_or_queue_start(self, consumed_queue: ConsumedQueue) -> ConsumerPosition:
        """Return an application's position in a queue; for a new application, the start of the queue."""
        return self._positions.get(consumed_queue, _START)

    def find(self, consumed_queue: ConsumedQueue) -> ConsumerPosition | None:
        """Return an application's position in a queue; None for a new application."""
        return self._positions.get(consumed_queue)

    def remove_if(self, is_deleted: Callable[[ConsumedQueue], bool]) -> None:
        """Remove the positions whose topic or application was deleted."""
        with self._guard:
            for place in [place for place in self._positions if is_deleted(place)]:
                del self._positions[place]
                self.is_changed = True

    def mark_delivered(self, consumed_queue: ConsumedQueue, end_offset: int) -> None:
        """Record that consumers have been given all messages before a queue offset."""
        with self._guard:
            position = self.get_or_queue_start(consumed_queue)
            self._positions[consumed_queue] = position._replace(pull=max(end_offset, position.pull))
            self.is_changed = True

    def acknowledge(self, consumed_queue: ConsumedQueue, end_offset: int) -> None:
        """Record that an application has processed all messages before a queue offset."""
        with self._guard:
            position = self.get_or_queue_start(consumed_queue)
            ack = max(end_offset, position.ack)
            self._positions[consumed_queue] = ConsumerPosition(ack, max(ack, position.pull), max(0, self._clock()))
            self.is_changed = True

    def set_offset(self, consumed_queue: ConsumedQueue, queue_offset: int) -> None:
        """Set an application's position in a queue, backward or forward."""
        with self._guard:
            self._positions[consumed_queue] = ConsumerPosition(queue_offset, queue_offset, max(0, self._clock()))
            self.is_changed = True

    def clamp_to_queue_ends(self, max_offset_of: Callable[[str, int], int]) -> None:
        """Lower positions that are beyond the end of their queue to its end, so that new messages are consumed."""
        with self._guard:
            for place, position in list(self._positions.items()):
                if position.ack > (end := max_offset_of(place.topic, place.queue_id)):
                    _logger.warning("%s: lowered the position %d to the queue's end %d", place, position.ack, end)
                    self.set_offset(place, end)

    def _serialize(self) -> bytes:
        return serialize_offsets(self._positions, max(0, self._clock()))
