"""`offset/offset.json`: how far each application has consumed each queue.

The file is written beside its place, synced and renamed; its previous version is kept as `.bak`, which is read where
the file itself is missing or broken.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from commitlake.broker_lite.stores.engine.kept_table import KeptTable
from commitlake.schemas.layouts.jmq.offsets import (
    FILE_NAME,
    FOLDER,
    ConsumedQueue,
    Position,
    Positions,
    parse_offsets,
    serialize_offsets,
)

_logger = logging.getLogger(__name__)
_START = Position(0, 0, 0)


class OffsetFile(KeptTable):
    """The positions, in memory and on the disk; several threads may use it.

    What was handed out and not acknowledged when the store was closed is handed out again.
    """

    def __init__(self, root: Path, clock: Callable[[], int]) -> None:
        """Read the file.

        Raises:
            ConfigFileError: if neither it nor its `.bak` can be read.
        """
        super().__init__(root, FOLDER, FILE_NAME)
        self._clock = clock
        stored = self._read(lambda data: parse_offsets(data)[0]) or {}
        self._positions = {place: position._replace(pull=position.ack) for place, position in stored.items()}

    @property
    def positions(self) -> Positions:
        """All positions."""
        with self._guard:
            return dict(self._positions)

    def get(self, place: ConsumedQueue) -> Position:
        """A position; the queue's start for an application that is new to it."""
        return self._positions.get(place, _START)

    def find(self, place: ConsumedQueue) -> Position | None:
        """A position; None for an application that is new to the queue."""
        return self._positions.get(place)

    def remove(self, is_gone: Callable[[ConsumedQueue], bool]) -> None:
        """Forget the positions of topics and applications that are gone."""
        with self._guard:
            for place in [place for place in self._positions if is_gone(place)]:
                del self._positions[place]
                self.is_changed = True

    def hand_out(self, place: ConsumedQueue, following: int) -> None:
        """Note that all messages before a queue offset were given to somebody."""
        with self._guard:
            position = self.get(place)
            self._positions[place] = position._replace(pull=max(following, position.pull))
            self.is_changed = True

    def acknowledge(self, place: ConsumedQueue, following: int) -> None:
        """Note that all messages before a queue offset are done with."""
        with self._guard:
            position = self.get(place)
            ack = max(following, position.ack)
            self._positions[place] = Position(ack, max(ack, position.pull), max(0, self._clock()))
            self.is_changed = True

    def set_back(self, place: ConsumedQueue, queue_offset: int) -> None:
        """Let an application go on at a queue offset, before or behind where it is."""
        with self._guard:
            self._positions[place] = Position(queue_offset, queue_offset, max(0, self._clock()))
            self.is_changed = True

    def clamp(self, max_offset_of: Callable[[str, int], int]) -> None:
        """Set positions back that are behind the end of their queue: what comes there next is new."""
        with self._guard:
            for place, position in list(self._positions.items()):
                if position.ack > (end := max_offset_of(place.topic, place.queue_id)):
                    _logger.warning("%s: expected at most %d to be acknowledged, found %d", place, end, position.ack)
                    self.set_back(place, end)

    def _serialize(self) -> bytes:
        return serialize_offsets(self._positions, max(0, self._clock()))
