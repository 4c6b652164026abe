"""How far everybody is: offsets of queues and groups, and a broker's counts.

Source: TopicStatsTable, ConsumeStats, ConsumerRunningInfo, QueryConsumeQueueResponseBody (5.5.0).
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from commitlake.schemas.remoting.ext_fields import Key, Long
from commitlake.schemas.remoting.heartbeats import SubscriptionData
from commitlake.schemas.remoting.routes import MessageQueue


class ConsumerOffsetTable(NamedTuple):
    """Body of 43's answer: by `topic@group` and queue, the next offset to consume."""

    offset_table: dict[str, dict[int, Long]] = {}  # noqa: RUF012


class DelayOffsetTable(NamedTuple):
    """Body of 45's answer: by delay level, the next offset to deliver."""

    offset_table: dict[int, Long] = {}  # noqa: RUF012


class OffsetTable(NamedTuple):
    """Body of 220 and of 222's answer: where each queue is to go on."""

    offset_table: dict[MessageQueue, Long] = {}  # noqa: RUF012


class TopicOffset(NamedTuple):
    """A queue: first and next offset; when its last message was stored, ms since 1970."""

    min_offset: Long
    max_offset: Long
    last_update_timestamp: Long = 0


class TopicStats(NamedTuple):
    """Body of 202's answer."""

    offset_table: dict[MessageQueue, TopicOffset] = {}  # noqa: RUF012
    topic_put_tps: float | None = None


class OffsetWrapper(NamedTuple):
    """How far a group is in a queue.

    Attributes:
        broker_offset: the queue's next offset.
        consumer_offset: the next one to consume.
        last_timestamp: ms; when the last message that was consumed was stored, 0 for none.
        pull_offset: 5.x: the next one to fetch.
    """

    broker_offset: Long
    consumer_offset: Long
    last_timestamp: Long = 0
    pull_offset: Long | None = None

    @property
    def lag(self) -> int:
        """Messages that are still to be consumed."""
        return self.broker_offset - self.consumer_offset


class ConsumeStats(NamedTuple):
    """Body of 208's answer."""

    offset_table: dict[MessageQueue, OffsetWrapper] = {}  # noqa: RUF012
    consume_tps: float = 0.0


class GroupList(NamedTuple):
    """Body of 300's answer."""

    group_list: tuple[str, ...] = ()


class QueueTimeSpan(NamedTuple):
    """Times of a queue, ms since 1970: its first and last message, the last one consumed; and how far that is behind.

    RocketMQ spells the first two in two ways: `minTimeStamp`, but `consumeTimeStamp` beside `delayTime`.
    """

    message_queue: MessageQueue
    min_time_stamp: Long = 0
    max_time_stamp: Long = 0
    consume_time_stamp: Long = 0
    delay_time: Long = 0


class ConsumeTimeSpans(NamedTuple):
    """Body of 303's answer."""

    consume_time_span_set: tuple[QueueTimeSpan, ...] = ()


class StatsItem(NamedTuple):
    """A count over some time: the sum, a second's share, and a call's."""

    sum: Long = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(NamedTuple):
    """Body of 315's answer."""

    stats_minute: StatsItem = StatsItem()
    stats_hour: StatsItem = StatsItem()
    stats_day: StatsItem = StatsItem()


class ConsumeQueueEntry(NamedTuple):
    """An entry of a ConsumeQueue, and what a filter makes of it."""

    physic_offset: Long
    physic_size: int
    tags_code: Long
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class ConsumeQueueData(NamedTuple):
    """Body of 321's answer."""

    queue_data: tuple[ConsumeQueueEntry, ...] = ()
    min_queue_index: Long = 0
    max_queue_index: Long = 0
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None


class ProcessQueueInfo(NamedTuple):
    """What a consumer holds of a queue."""

    commit_offset: Long = 0
    cached_msg_min_offset: Long = 0
    cached_msg_max_offset: Long = 0
    cached_msg_count: int = 0
    locked: bool = False
    droped: bool = False
    last_pull_timestamp: Long = 0
    last_consume_timestamp: Long = 0


class ConsumeStatus(NamedTuple):
    """How a consumer does with a topic: times in ms, rates a second."""

    pull_rt: Annotated[float, Key("pullRT")] = 0.0
    pull_tps: Annotated[float, Key("pullTPS")] = 0.0
    consume_rt: Annotated[float, Key("consumeRT")] = 0.0
    consume_ok_tps: Annotated[float, Key("consumeOKTPS")] = 0.0
    consume_failed_tps: Annotated[float, Key("consumeFailedTPS")] = 0.0
    consume_failed_msgs: Long = 0


class ConsumerRunningInfo(NamedTuple):
    """Body of 307's answer, which a consumer gives."""

    properties: dict[str, str] = {}  # noqa: RUF012
    subscription_set: tuple[SubscriptionData, ...] = ()
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}  # noqa: RUF012
    status_table: dict[str, ConsumeStatus] = {}  # noqa: RUF012
    jstack: str | None = None
