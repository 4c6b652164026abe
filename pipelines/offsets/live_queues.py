"""Compares offsets with the queues of live brokers: whether the queues exist, and which messages they still have."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from commitlake.connectors.rocketmq.admin import Admin
from commitlake.connectors.rocketmq.errors import NoRouteError
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.connectors.rocketmq.time_search import first_offset_at
from commitlake.pipelines.lag.backlog_counting import Queue
from commitlake.pipelines.offsets.group_offsets import GroupOffset, LiveQueue, PlannedOffset, ResultingLag
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.remoting.routes import MessageQueue
from commitlake.schemas.times import epoch_ms, epoch_ms_rounded_up


class OffsetClient(NamedTuple):
    """Clients of the brokers that query and set offsets, and pull messages."""

    admin: Admin
    puller: Puller


class LiveQueues:
    """Queries brokers for the present state of queues; raises RocketMQError if a broker does not answer.

    Args:
        client: Clients of the brokers.
        group: The consumer group.
    """

    def __init__(self, client: OffsetClient, group: str) -> None:
        self._admin, self._puller, self._group = client.admin, client.puller, group
        self._counts: dict[str, dict[str, int]] = {}

    def limit_offsets_to_queues(
        self, offsets: Iterable[GroupOffset], since: datetime.datetime | None
    ) -> Iterator[tuple[GroupOffset, LiveQueue | None]]:
        """Limit each offset to the range that its queue has now, and yield it with the queue's present state.

        Args:
            offsets: From the lake or a store.
            since: Time from which the group is to consume: the broker is queried if the source does not have the exact
                offset. None if the offsets are of another kind.
        """
        for offset in offsets:
            problem = offset.problem or self._missing_queue_text(offset.queue)
            if problem:
                yield replace(offset, problem=problem), None
                continue
            live = self._fetch_queue_state(offset.message_queue)
            yield self._limit_offset_to_queue(offset, live, since), live

    def offsets_of_queues_without_source(
        self, brokers: Collection[str], topics: Iterable[str], known_queues: Collection[Queue], since: datetime.datetime
    ) -> Iterator[tuple[GroupOffset, LiveQueue]]:
        """Yield the offsets that a group needs in queues that the broker has, but not the lake or store.

        Args:
            brokers: Brokers whose queues are included.
            known_queues: Queues of the source.
            since: Time from which the group is to consume.
        """
        for topic in sorted(topics):
            for broker, count in sorted(self._queue_counts_by_broker(topic).items()):
                for queue_id in range(count if broker in brokers else 0):
                    queue = Queue(broker, topic, queue_id)
                    if queue not in known_queues:
                        live = self._fetch_queue_state(MessageQueue(topic, broker, queue_id))
                        yield self._limit_offset_to_queue(GroupOffset(queue, 0, None), live, since), live

    def brokers_with_topics(self, topics: Iterable[str]) -> set[str]:
        """Return the brokers that have queues of the given topics."""
        return {broker for topic in topics for broker in self._queue_counts_by_broker(topic)}

    def offsets_in_other_queues(
        self, topic: str, known_queues: Collection[MessageQueue]
    ) -> dict[MessageQueue, int | None]:
        """Return the group's offset in each queue of a topic that is not in `known_queues`; None where it has none."""
        queues = [
            MessageQueue(topic, broker, queue_id)
            for broker, count in sorted(self._queue_counts_by_broker(topic).items())
            for queue_id in range(count)
        ]
        return {
            queue: self._admin.offsets.committed(queue, self._group) for queue in queues if queue not in known_queues
        }

    def compare_next_messages(self, planned_offsets: Sequence[PlannedOffset]) -> list[PlannedOffset]:
        """Add an error text to each offset at which broker and source have different messages; return all offsets."""
        return [
            replace(one, asked=replace(one.asked, problem=self._planned_difference_text(one)))
            for one in planned_offsets
        ]

    def _planned_difference_text(self, planned_offset: PlannedOffset) -> str:
        if planned_offset.asked.problem or planned_offset.live is None or planned_offset.lag is None:
            return planned_offset.asked.problem
        return self._next_message_difference(
            planned_offset.asked.message_queue, planned_offset.live, planned_offset.lag
        )

    def _next_message_difference(self, queue: MessageQueue, live_queue: LiveQueue, resulting_lag: ResultingLag) -> str:
        """Return a sentence if the next message at the broker is not that in the lake or store; else ""."""
        offset, expected = resulting_lag.next_offset, resulting_lag.next_time
        if offset is None or expected is None or not live_queue.first <= offset < live_queue.end:
            return ""
        found = [m for m in self._puller.pull(queue, offset, max_messages=1).messages if m.queue_offset == offset]
        if found and found[0].store_timestamp == epoch_ms(expected):
            return ""
        at_broker = f"has one that was stored at {found[0].store_timestamp} (ms since 1970)" if found else "has none"
        return (
            f"at offset {offset} the source has a message that was stored at {epoch_ms(expected)}, but the broker "
            f"{at_broker}: the topic was deleted and created again, or this is another broker"
        )

    def _queue_counts_by_broker(self, topic: str) -> dict[str, int]:
        """Return a topic's number of queues, by broker; empty if no broker has the topic."""
        if topic not in self._counts:
            try:
                route = self._admin.route(topic)
            except NoRouteError:
                self._counts[topic] = {}
            else:
                self._counts[topic] = {data.broker_name: data.read_queue_nums for data in route.queue_datas}
        return self._counts[topic]

    def _missing_queue_text(self, queue: Queue) -> str:
        """Return a sentence if the broker does not have the given queue; else an empty string."""
        counts = self._queue_counts_by_broker(queue.topic)
        if not counts:
            return f"no broker has the topic {queue.topic}: it was deleted"
        if queue.broker not in counts:
            return f"the broker {queue.broker} has no topic {queue.topic}: {', '.join(sorted(counts))} have it"
        if queue.queue_id >= counts[queue.broker]:
            return f"the topic now has only {format_count(counts[queue.broker], 'queue')} on the broker"
        return ""

    def _fetch_queue_state(self, queue: MessageQueue) -> LiveQueue:
        offsets = self._admin.offsets
        return LiveQueue(offsets.first(queue), offsets.next(queue), offsets.committed(queue, self._group))

    def _limit_offset_to_queue(
        self, offset: GroupOffset, live_queue: LiveQueue, since: datetime.datetime | None
    ) -> GroupOffset:
        """Limit an offset to the range that the broker's queue has now."""
        if offset.low > live_queue.end:
            problem = (
                f"offset {offset.low} is beyond the queue's end, {live_queue.end}: the topic was deleted and created "
                "again, "
                "or the broker has lost messages"
            )
            return replace(offset, problem=problem)
        notes = list(offset.notes)
        low = max(offset.low, live_queue.first)
        high = live_queue.end if offset.high is None else min(max(offset.high, low), live_queue.end)
        if low != high and since is not None:
            low = high = first_offset_at(self._puller, offset.message_queue, epoch_ms_rounded_up(since), low, high)
            notes = ["from the broker"]
        if offset.low < live_queue.first and (offset.low > 0 or offset.is_exact):
            notes.append(f"the queue now starts at {live_queue.first}: the broker has deleted earlier messages")
        return replace(offset, low=low, high=high, notes=tuple(notes))
