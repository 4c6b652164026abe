"""What RocketMQ's consumers say of their progress, as JMQ keeps it: positions, and a record of every consumption.

A consumer that has done with everything before an offset has consumed it, but for the messages that it has sent back:
those were recorded when they came. Where its group has no position yet, its first message is the first that it was
given, and not the queue's: a consumer may begin at the end. Records come before the position, so a kill between the two
lets a message be consumed twice, but never without a record. Only where somebody goes very far at once the position
comes first, and the records follow from turn to turn: nobody else is kept waiting.

An administrator who moves a group consumes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from commitlake.broker_lite.stores.engine.errors import UnsupportedError
from commitlake.broker_lite.stores.jmq import JournalStore
from commitlake.broker_lite.stores.jmq.retry_queues import retry_queue_of
from commitlake.broker_lite.stores.jmq_adapter.retrying import Retrying
from commitlake.schemas.layouts.jmq.consumption import Consumption, Outcome
from commitlake.schemas.layouts.jmq.offsets import ConsumedQueue
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.topics import RETRY_PREFIX

RECORDED_AT_ONCE = 1000
"""Records that one answer waits for: some ten milliseconds."""


class _Stretch(NamedTuple):
    """Messages of a queue that are still to be recorded."""

    place: ConsumedQueue
    numbers: range
    client: Host
    time_ms: int


class ConsumedOffsets:
    """The offsets of groups: `offset.json` for queues, the retry store for retries; the broker's thread uses it."""

    def __init__(self, journal: JournalStore, retrying: Retrying) -> None:
        self._journal = journal
        self._positions = journal.offsets
        self._retrying = retrying
        self._begun: dict[ConsumedQueue, int] = {}
        self._unrecorded: deque[_Stretch] = deque()

    @property
    def entries(self) -> dict[Any, Any]:
        """By `topic@group`, the next message of each queue."""
        entries: dict[str, dict[int, int]] = {}
        for place, position in self._positions.positions.items():
            entries.setdefault(f"{place.topic}@{place.app}", {})[place.queue_id] = position.ack
        return entries

    @property
    def count(self) -> int:
        """How many offsets there are."""
        return len(self._positions.positions)

    def get(self, topic: str, group: str, queue_id: int) -> int | None:
        """The next message that the group consumes; None where it has not begun."""
        if topic == f"{RETRY_PREFIX}{group}":
            return self._retrying.bounds(topic, queue_id).start
        position = self._positions.find(ConsumedQueue(topic, group, queue_id))
        return None if position is None else position.ack

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Let the group go on at an offset, whatever it has consumed.

        Raises:
            UnsupportedError: for its retries.
        """
        if topic.startswith(RETRY_PREFIX):
            raise UnsupportedError(f"{topic}: retries of a journal's messages come by their times, and are never moved")
        place = ConsumedQueue(topic, group, queue_id)
        self._begun.pop(place, None)
        self._positions.set_back(place, min(offset, self._end_of(place)))

    def hand_out(self, topic: str, group: str, queue_id: int, offset: int, following: int) -> None:
        """Note that a member of the group is given the messages from an offset to before another."""
        if topic.startswith(RETRY_PREFIX):
            return
        place = ConsumedQueue(topic, group, queue_id)
        if self._positions.find(place) is None:
            self._begun.setdefault(place, offset)
        else:
            self._positions.hand_out(place, following)

    def acknowledge(self, topic: str, group: str, queue_id: int, offset: int, client: Host) -> None:
        """Note that a member of the group has consumed everything before an offset, or has failed on it."""
        if topic.startswith(RETRY_PREFIX):
            if topic == f"{RETRY_PREFIX}{group}" and queue_id == 0:
                self._retrying.acknowledge(group, offset, client)
            return
        place = ConsumedQueue(topic, group, queue_id)
        position = self._positions.find(place)
        offset = min(offset, self._end_of(place))
        start = self._begun.pop(place, offset) if position is None else position.ack
        if position is not None and offset == position.ack:
            return
        if position is not None and offset < position.ack:
            self._positions.set_back(place, offset)
            return
        self._unrecorded.append(_Stretch(place, range(start, offset), client, self._journal.clock()))
        if len(self._unrecorded) == 1:
            self.record(RECORDED_AT_ONCE)
        self._positions.acknowledge(place, offset)

    def _end_of(self, place: ConsumedQueue) -> int:
        if retry_queue_of(place.topic) is not None:
            return self._retrying.bounds(place.topic, place.queue_id).stop
        return self._journal.max_offset(place.topic, place.queue_id)

    @property
    def is_behind(self) -> bool:
        """Whether there is something left to record."""
        return bool(self._unrecorded)

    def record(self, limit: int | None = None) -> None:
        """Record what was consumed.

        Args:
            limit: how many messages at most; None for all.
        """
        while self._unrecorded and (limit is None or limit > 0):
            place, numbers, client, time_ms = self._unrecorded.popleft()
            now = numbers if limit is None else numbers[:limit]
            if len(now) < len(numbers):
                self._unrecorded.appendleft(_Stretch(place, numbers[len(now) :], client, time_ms))
            if limit is not None:
                limit -= max(1, len(now))
            if now:
                self._record(_Stretch(place, now, client, time_ms))

    def _record(self, stretch: _Stretch) -> None:
        place, numbers, client, time_ms = stretch
        topic, group, queue_id = place
        queue = retry_queue_of(topic)
        if queue is not None:
            for letter in self._retrying.dead_letters(queue.app, numbers):
                self._retrying.record(letter, group, Outcome.CONSUMED, 1, client)
            return
        failed = self._retrying.queues.take_failed(place, numbers.start, numbers.stop)
        self._journal.log_consumption(
            [
                Consumption(topic, queue_id, number, entry.journal_offset, group, Outcome.CONSUMED, time_ms, 1, client)
                for number, entry in self._journal.entries(topic, queue_id, numbers)
                if number not in failed
            ]
        )

    def remove(self, is_gone: Callable[[str, str], bool]) -> None:
        """Forget the positions of topics and groups that are gone."""
        self.record()
        self._positions.remove(lambda place: is_gone(place.topic, place.app))
        self._begun = {place: start for place, start in self._begun.items() if not is_gone(place.topic, place.app)}
