"""Bodies with statistics: offsets of queues and groups, and counts of a broker.

Source: TopicStatsTable, ConsumeStats, ConsumerRunningInfo, QueryConsumeQueueResponseBody (5.5.0).
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from commitlake.schemas.remoting.ext_fields import ExtFieldName, Long
from commitlake.schemas.remoting.heartbeats import SubscriptionData
from commitlake.schemas.remoting.routes import MessageQueue


class ConsumerOffsetTable(NamedTuple):
    """Body of the answer to GET_ALL_CONSUMER_OFFSET (43): the next offset to consume, by `topic@group` and queue."""

    offset_table: dict[str, dict[int, Long]] = {}  # noqa: RUF012


class DelayOffsetTable(NamedTuple):
    """Body of the answer to GET_ALL_DELAY_OFFSET (45): the next offset to deliver, by delay level."""

    offset_table: dict[int, Long] = {}  # noqa: RUF012


class OffsetTable(NamedTuple):
    """Offsets from which consumers continue, by queue.

    Body of RESET_CONSUMER_CLIENT_OFFSET (220), and of the answer to INVOKE_BROKER_TO_RESET_OFFSET (222).
    """

    offset_table: dict[MessageQueue, Long] = {}  # noqa: RUF012


class TopicOffset(NamedTuple):
    """Offsets of a queue: first and next offset, and the store time of its last message, ms since 1970."""

    min_offset: Long
    max_offset: Long
    last_update_timestamp: Long = 0


class TopicStats(NamedTuple):
    """Body of the answer to GET_TOPIC_STATS_INFO (202): the offsets of each queue of a topic."""

    offset_table: dict[MessageQueue, TopicOffset] = {}  # noqa: RUF012
    topic_put_tps: float | None = None


class QueueOffsetPair(NamedTuple):
    """Offsets of a queue, and of a consumer group in it.

    Attributes:
        broker_offset: next offset of the queue.
        consumer_offset: next offset to consume.
        last_timestamp: store time of the last consumed message, ms; 0 if there is none.
        pull_offset: 5.x: next offset to fetch.
    """

    broker_offset: Long
    consumer_offset: Long
    last_timestamp: Long = 0
    pull_offset: Long | None = None

    @property
    def lag(self) -> int:
        """Number of messages that the group has not consumed yet."""
        return self.broker_offset - self.consumer_offset


class ConsumeStats(NamedTuple):
    """Body of the answer to GET_CONSUME_STATS (208)."""

    offset_table: dict[MessageQueue, QueueOffsetPair] = {}  # noqa: RUF012
    consume_tps: float = 0.0


class GroupList(NamedTuple):
    """Body of the answer to QUERY_TOPIC_CONSUME_BY_WHO (300)."""

    group_list: tuple[str, ...] = ()


class QueueTimeSpan(NamedTuple):
    """Times of a queue, ms since 1970: first, last and last consumed message; and the lag in time.

    Names follow RocketMQ, which also spells `TimeStamp` with a capital S here.
    """

    message_queue: MessageQueue
    min_time_stamp: Long = 0
    max_time_stamp: Long = 0
    consume_time_stamp: Long = 0
    delay_time: Long = 0


class ConsumeTimeSpans(NamedTuple):
    """Body of the answer to QUERY_CONSUME_TIME_SPAN (303)."""

    consume_time_span_set: tuple[QueueTimeSpan, ...] = ()


class StatsItem(NamedTuple):
    """Count over a period: the sum, the rate per second, and the average per call."""

    sum: Long = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(NamedTuple):
    """Body of the answer to VIEW_BROKER_STATS_DATA (315)."""

    stats_minute: StatsItem = StatsItem()
    stats_hour: StatsItem = StatsItem()
    stats_day: StatsItem = StatsItem()


class ConsumeQueueEntry(NamedTuple):
    """Entry of a queue, and whether a consumer group's filter accepts its message."""

    physic_offset: Long
    physic_size: int
    tags_code: Long
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class ConsumeQueueData(NamedTuple):
    """Body of the answer to QUERY_CONSUME_QUEUE (321)."""

    queue_data: tuple[ConsumeQueueEntry, ...] = ()
    min_queue_index: Long = 0
    max_queue_index: Long = 0
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None


class ProcessQueueInfo(NamedTuple):
    """State of a queue on a consumer."""

    commit_offset: Long = 0
    cached_msg_min_offset: Long = 0
    cached_msg_max_offset: Long = 0
    cached_msg_count: int = 0
    locked: bool = False
    droped: bool = False
    last_pull_timestamp: Long = 0
    last_consume_timestamp: Long = 0


class ConsumeStatus(NamedTuple):
    """Statistics of a consumer for a topic: times in ms, rates per second."""

    pull_rt: Annotated[float, ExtFieldName("pullRT")] = 0.0
    pull_tps: Annotated[float, ExtFieldName("pullTPS")] = 0.0
    consume_rt: Annotated[float, ExtFieldName("consumeRT")] = 0.0
    consume_ok_tps: Annotated[float, ExtFieldName("consumeOKTPS")] = 0.0
    consume_failed_tps: Annotated[float, ExtFieldName("consumeFailedTPS")] = 0.0
    consume_failed_msgs: Long = 0


class ConsumerRunningInfo(NamedTuple):
    """Body of the answer to GET_CONSUMER_RUNNING_INFO (307), which a consumer sends."""

    properties: dict[str, str] = {}  # noqa: RUF012
    subscription_set: tuple[SubscriptionData, ...] = ()
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}  # noqa: RUF012
    status_table: dict[str, ConsumeStatus] = {}  # noqa: RUF012
    jstack: str | None = None
