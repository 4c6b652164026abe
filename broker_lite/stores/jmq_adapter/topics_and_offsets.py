"""Topics, groups and consumers' offsets of a broker in JMQ's layout.

JMQ stores topics and applications in a registry outside the broker, and copies them to brokers. This broker is its own
registry: `config/topics.json` and `config/subscriptionGroup.json`, in RocketMQ's format. Offsets are stored as JMQ
does: positions, and a record of every consumption.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from commitlake.broker_lite.errors import UnsupportedError
from commitlake.broker_lite.stores.jmq import JournalStore
from commitlake.broker_lite.stores.jmq.options import MAX_QUEUES, JournalOptions
from commitlake.broker_lite.stores.jmq.retry_queues import retry_queue_of
from commitlake.broker_lite.stores.jmq_adapter.failed_messages import FailedMessages
from commitlake.broker_lite.stores.rocketmq.config_files import DelayOffsets, Groups, Topics
from commitlake.schemas.layouts.jmq.consume_records import Consumption, DeliveryOutcome
from commitlake.schemas.layouts.jmq.offset_json import ConsumedQueue
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.topics import RETRY_PREFIX

RECORDS_PER_ANSWER = 1000
"""Records written before an answer is sent; they take about ten milliseconds."""


class _UnrecordedRange(NamedTuple):
    """Range of queue offsets that a client has consumed, but whose consume records are not written yet."""

    place: ConsumedQueue
    numbers: range
    client: Host
    time_ms: int


class ConsumedOffsets:
    """Consumer offsets of groups, from `offset.json` and the retry store; only the broker's thread uses it.

    A consumer that acknowledges an offset has consumed all messages before it, except those that it has sent back,
    which were recorded then. If its group has no position yet, consumption starts at the first message that it
    received, not at the queue's first: a consumer may start at the end. Records are written before the position, so a
    crash in between may repeat a consumption, but never leaves one unrecorded. Only if an acknowledgement covers very
    many messages, the position is written first, and the records follow step by step, so that other clients do not
    wait.

    Offsets that an administrator sets do not count as consumption.
    """

    def __init__(self, journal: JournalStore, failed_messages: FailedMessages) -> None:
        self._journal = journal
        self._positions = journal.offsets
        self._failures = failed_messages
        self._begun: dict[ConsumedQueue, int] = {}
        self._unrecorded: deque[_UnrecordedRange] = deque()

    @property
    def entries(self) -> dict[Any, Any]:
        """Next queue offsets to consume, as a mapping by `topic@group` and then by queue id."""
        entries: dict[str, dict[int, int]] = {}
        for place, position in self._positions.positions.items():
            entries.setdefault(f"{place.topic}@{place.app}", {})[place.queue_id] = position.ack
        return entries

    @property
    def count(self) -> int:
        """Number of stored offsets."""
        return len(self._positions.positions)

    def get(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return the queue offset of the next message for the group, or None if it has no offset."""
        if topic == f"{RETRY_PREFIX}{group}":
            return self._failures.queue_offset_range(topic, queue_id).start
        position = self._positions.find(ConsumedQueue(topic, group, queue_id))
        return None if position is None else position.ack

    def commit(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set a group's offset in a queue, whether or not it has consumed the messages before it.

        Raises:
            UnsupportedError: if the topic is the group's retry topic.
        """
        if topic.startswith(RETRY_PREFIX):
            raise UnsupportedError(
                f"{topic}: the offset of a JMQ journal's retries cannot be set, because they are delivered by time"
            )
        place = ConsumedQueue(topic, group, queue_id)
        self._begun.pop(place, None)
        self._positions.set_offset(place, min(offset, self._queue_end(place)))

    def mark_delivered(self, topic: str, group: str, queue_id: int, offset: int, end_offset: int) -> None:
        """Record that a member of a group has been given the messages of a queue from `offset` to `end_offset` - 1."""
        if topic.startswith(RETRY_PREFIX):
            return
        place = ConsumedQueue(topic, group, queue_id)
        if self._positions.find(place) is None:
            self._begun.setdefault(place, offset)
        else:
            self._positions.mark_delivered(place, end_offset)

    def acknowledge(self, topic: str, group: str, queue_id: int, offset: int, client: Host) -> None:
        """Set a group's offset in a queue after a member has finished all messages before it, successfully or not."""
        if topic.startswith(RETRY_PREFIX):
            if topic == f"{RETRY_PREFIX}{group}" and queue_id == 0:
                self._failures.acknowledge(group, offset, client)
            return
        place = ConsumedQueue(topic, group, queue_id)
        position = self._positions.find(place)
        # A client may name any offset, but can only have consumed what is there.
        offset = min(offset, self._queue_end(place))
        start = self._begun.pop(place, offset) if position is None else position.ack
        if position is not None and offset == position.ack:
            return
        if position is not None and offset < position.ack:
            self._positions.set_offset(place, offset)
            return
        self._unrecorded.append(_UnrecordedRange(place, range(start, offset), client, self._journal.clock()))
        # Behind ranges that wait already, this one waits, too, so that records are in the order of time.
        if len(self._unrecorded) == 1:
            self.write_consume_records(RECORDS_PER_ANSWER)
        self._positions.acknowledge(place, offset)

    def _queue_end(self, consumed_queue: ConsumedQueue) -> int:
        if retry_queue_of(consumed_queue.topic) is not None:
            return self._failures.queue_offset_range(consumed_queue.topic, consumed_queue.queue_id).stop
        return self._journal.max_offset(consumed_queue.topic, consumed_queue.queue_id)

    @property
    def has_unrecorded_consumptions(self) -> bool:
        """True if consume records of reported consumptions remain to be written."""
        return bool(self._unrecorded)

    def write_consume_records(self, max_messages: int | None = None) -> None:
        """Write consume records of reported consumptions, for at most `max_messages` messages.

        Args:
            max_messages: maximum number of messages; None for all.
        """
        while self._unrecorded and (max_messages is None or max_messages > 0):
            place, numbers, client, time_ms = self._unrecorded.popleft()
            now = numbers if max_messages is None else numbers[:max_messages]
            if len(now) < len(numbers):
                self._unrecorded.appendleft(_UnrecordedRange(place, numbers[len(now) :], client, time_ms))
            if max_messages is not None:
                # An empty range costs a step, too, so that many of them cannot hold up the answer.
                max_messages -= max(1, len(now))
            if now:
                self._record_consumed_range(_UnrecordedRange(place, now, client, time_ms))

    def _record_consumed_range(self, offset_range: _UnrecordedRange) -> None:
        place, numbers, client, time_ms = offset_range
        topic, group, queue_id = place
        queue = retry_queue_of(topic)
        if queue is not None:
            for letter in self._failures.dead_letters(queue.app, numbers):
                self._failures.write_consume_record(letter, group, DeliveryOutcome.CONSUMED, 1, client)
            return
        failed = self._failures.queues.take_failed_offsets(place, numbers.start, numbers.stop)
        self._journal.log_consumption(
            [
                Consumption(
                    topic, queue_id, number, entry.journal_offset, group, DeliveryOutcome.CONSUMED, time_ms, 1, client
                )
                for number, entry in self._journal.entries(topic, queue_id, numbers)
                if number not in failed
            ]
        )

    def remove_if(self, is_deleted: Callable[[str, str], bool]) -> None:
        """Remove the positions whose topic or group was deleted."""
        # Consumptions that happened are recorded before their position is gone.
        self.write_consume_records()
        self._positions.remove_if(lambda place: is_deleted(place.topic, place.app))
        self._begun = {place: start for place, start in self._begun.items() if not is_deleted(place.topic, place.app)}


class TopicsAndGroups:
    """Topics and groups of a store, in memory and on disk."""

    def __init__(self, root: Path, clock: Callable[[], int], options: JournalOptions) -> None:
        """Read the files of the store at `root`.

        Raises:
            StoreError: if a file and its `.bak` cannot be read.
        """
        self.topics = Topics(root, clock)
        self.groups = Groups(root, clock)
        self._options = options

    def queue_count_of(self, topic: str) -> int:
        """Return the number of queues of a topic to which producers may send."""
        entry = self.topics.entries.get(topic, {})
        count: int = entry.get("writeQueueNums", self._options.queue_count_of(topic))
        return max(1, min(count, MAX_QUEUES))

    def save_if_changed(self) -> None:
        """Save changed tables."""
        for file in (self.topics, self.groups):
            file.save_if_changed()


class JmqConfig:
    """Tables that a broker keeps in a store in JMQ's layout: topics, groups and offsets.

    Attributes:
        consumer_offsets: offsets of groups.
        delay_offsets: always empty, because JMQ has no delay levels.
    """

    def __init__(
        self, root: Path, clock: Callable[[], int], registry: TopicsAndGroups, offsets: ConsumedOffsets
    ) -> None:
        self.topics = registry.topics
        self.groups = registry.groups
        self.consumer_offsets = offsets
        self.delay_offsets = DelayOffsets(root, clock)
