"""Plan of a run that pulls, for one broker, and the queues that the broker has."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from commitlake.connectors.lake.archive_commits import StoreProgress
from commitlake.connectors.lake.store_progress import PulledProgress, QueueReport
from commitlake.connectors.rocketmq.admin import Admin
from commitlake.connectors.rocketmq.errors import ProtocolError
from commitlake.connectors.rocketmq.log_extent import LogExtent
from commitlake.connectors.rocketmq.queue_reading import LogPart, format_queue
from commitlake.pipelines.archive.from_broker.pull_task_input import PulledRange
from commitlake.schemas.layouts.rocketmq.topics import HALF_TOPIC, OP_TOPIC
from commitlake.schemas.layouts.segment_names import MAX_QUEUE_OFFSET
from commitlake.schemas.remoting.routes import PERM_READ, MessageQueue
from commitlake.schemas.remoting.topic_and_group_configs import TopicConfig

_THREADS = 8


@dataclass(frozen=True, slots=True)
class QueueExtent:
    """A queue with the offsets of its first and its next message."""

    queue: MessageQueue
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class BrokerQueues:
    """The queues that a broker has, with their offsets.

    Attributes:
        readable: queues that can be pulled, in order.
        closed: queues with messages that cannot be pulled: the topic is not readable, the queue is beyond its read
            queues, or it is of the op topic of a broker 4.9, which does not list that topic and delivers nothing of it.
        topics: names of all topics that the broker has.
    """

    readable: Sequence[QueueExtent]
    closed: Sequence[QueueExtent] = field(default=())
    topics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """Plan for pulling from one broker: queue ranges, with the archived progress and the extent of the log.

    Attributes:
        broker: name of the broker.
        before: its archived progress; None if it was never archived.
        extent: extent of its log; the run ends at its end.
        held: offsets of its queues.
        ranges: ranges to pull.
        reports: reports on queues that are not pulled, or that have lost messages.
    """

    broker: str
    before: StoreProgress | None
    extent: LogExtent
    held: BrokerQueues
    ranges: Sequence[PulledRange] = field(default=())
    reports: Sequence[QueueReport] = field(default=())

    @property
    def archived_end(self) -> int:
        """Physical offset up to which the broker's log is archived in the lake."""
        return self.extent.begin if self.before is None else self.before.end

    @property
    def previous_progress(self) -> PulledProgress:
        """Progress of pulling from the broker before the run.

        If the store was archived only from files before, it has the end of these files.
        """
        if self.before is None:
            return PulledProgress()
        return self.before.pulled or PulledProgress(files_end=self.before.end)

    @property
    def log_part(self) -> LogPart:
        """Part of the broker's log whose messages the run archives."""
        return LogPart(self.previous_progress.files_end, self.extent.end, self.archived_end)

    @property
    def new_byte_count(self) -> int:
        """Size of the log that the broker has and the lake does not."""
        return max(0, self.extent.end - max(self.archived_end, self.extent.begin))

    @property
    def has_new_data(self) -> bool:
        """True if there are messages to pull, lost messages to record, or log bytes after the archived end."""
        return bool(self.ranges or self.reports) or self.extent.end > self.archived_end


def fetch_broker_queues(admin: Admin, broker_name: str, topics: Collection[str] = ()) -> BrokerQueues:
    """Query a broker for its topics, including system topics, and for the offsets of their queues.

    Args:
        topics: topics to query; all if empty.
    """
    configs = admin.topic_configs(broker_name)
    wanted = sorted(configs.keys() & set(topics) if topics else configs)
    readable: list[QueueExtent] = []
    closed: list[QueueExtent] = []
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="rocketmq-queues") as pool:
        for topic, held in zip(
            wanted, pool.map(lambda each: _fetch_topic_queues(admin, broker_name, each), wanted), strict=True
        ):
            for one in held:
                if _is_readable(configs[topic], one.queue.queue_id):
                    readable.append(one)
                elif one.first < one.end:
                    closed.append(one)
    # A broker may not list the topic of its op records, whose queues have the same ids as those of the half messages.
    if not topics and OP_TOPIC not in configs:
        halves = [one.queue.queue_id for one in readable if one.queue.topic == HALF_TOPIC]
        closed += _fetch_unlisted_queues(admin, [MessageQueue(OP_TOPIC, broker_name, queue_id) for queue_id in halves])
    return BrokerQueues(readable, closed, frozenset(configs))


def _fetch_unlisted_queues(admin: Admin, queues: Sequence[MessageQueue]) -> Iterator[QueueExtent]:
    """Ask the broker for the offsets of each queue, and yield the queues that have ever had a message."""
    for queue in queues:
        if end := admin.offsets.next(queue):
            yield _to_queue_extent(queue, admin.offsets.first(queue), end)


def _is_readable(config: TopicConfig, queue_id: int) -> bool:
    return bool(config.perm & PERM_READ) and queue_id < config.read_queue_nums


def _fetch_topic_queues(admin: Admin, broker_name: str, topic: str) -> list[QueueExtent]:
    stats = admin.broker_topic_stats(topic, broker_name)
    if stats is None:  # deleted since the topics were listed
        return []
    return [
        _to_queue_extent(MessageQueue(topic, broker_name, queue.queue_id), held.min_offset, held.max_offset)
        for queue, held in sorted(stats.offset_table.items())
        if queue.topic == topic
    ]


def _to_queue_extent(queue: MessageQueue, first_offset: int, end_offset: int) -> QueueExtent:
    """Return a queue with its first and end offset; a broker may give -1 for those of an empty queue."""
    first_offset, end_offset = max(0, first_offset), max(0, end_offset)
    if not first_offset <= end_offset <= MAX_QUEUE_OFFSET or queue.queue_id < 0:
        raise ProtocolError(
            f"{format_queue(queue)}: expected a first queue offset from 0 to the queue's end in the broker's answer, "
            f"found the first offset {first_offset} and the end {end_offset}"
        )
    return QueueExtent(queue, first_offset, end_offset)
