"""Lag as Prometheus metrics, with the names and labels of apache/rocketmq-exporter, so that its dashboards work.

    name                                      labels                                         value
    rocketmq_group_diff                       group, topic, countOfOnlineConsumers, msgModel messages behind
    rocketmq_group_retrydiff                  the same                                       of retry topics
    rocketmq_group_get_latency_by_storetime   cluster, broker, topic, group                  ms behind
    rocketmq_consumer_offset                  the same                                       offsets of the group
    rocketmq_group_consume_total_offset       the same                                       the same
    rocketmq_consumer_tps                     the same                                       messages a second consumed
    rocketmq_group_consume_tps                the same                                       the same
    rocketmq_producer_offset                  cluster, broker, topic                         ends of the queues
    rocketmq_topic_retry_offset               the same                                       of retry topics
    rocketmq_producer_tps                     the same                                       messages a second stored

The exporter's help text of rocketmq_consumer_offset, GroupBrokerTotalOffset, does not match its value. In its
dashboards the difference of rocketmq_producer_offset and rocketmq_consumer_offset is the lag, and so it is here.
Messages that a group's filter excludes do not count in rocketmq_group_diff; the exporter counts them. Topics that no
group consumes have metrics only if the messages are in a lake. If only bounds of a figure are known, the value is the
upper bound, or the lower one if there is no upper bound. Unknown values have no metric; they are never zero. Names that
begin with commitlake_ are this project's own:

    commitlake_lag_verdict                    broker, topic, group, verdict                  queues with this verdict
    commitlake_lag_lost_messages              broker, topic, group                           deleted before consumption
    commitlake_lag_as_of_timestamp_seconds    broker                                         time of the figures
    commitlake_lag_stores_missing                                                            stores without a snapshot
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily

from commitlake.jobs.metrics.gauges import Labels, make_gauge
from commitlake.pipelines.lag.backlog_counting import Queue
from commitlake.pipelines.lag.group_lag import LagRow
from commitlake.pipelines.lag.queue_offset_spans import QueueSpan
from commitlake.pipelines.lag.store_lag import LagAnswer
from commitlake.schemas.layouts.rocketmq.topics import RETRY_PREFIX

_OF_GROUP = ("cluster", "broker", "topic", "group")
_OF_TOPIC = ("cluster", "broker", "topic")
_DIFF = ("group", "topic", "countOfOnlineConsumers", "msgModel")
_BROADCASTING, _CLUSTERING = "0", "1"
"""Values of `msgModel`: ordinals of RocketMQ's MessageModel."""
_MS_PER_SECOND = 1000


def lag_metrics(
    lag_answer: LagAnswer, cluster: str, queues_without_rows: Mapping[Queue, QueueSpan] | None = None
) -> Iterator[GaugeMetricFamily]:
    """Yield Prometheus metrics for the measured lag of consumer groups.

    Args:
        lag_answer: The lag of all stores.
        cluster: Value of the label `cluster`, which neither lake nor store has.
        queues_without_rows: Ends of the queues of topics without a row; see `queue_ends`.
    """
    consuming = [row for row in lag_answer.rows if row.kind in {"group", "retry"}]
    yield from _queue_lag_metrics(consuming)
    yield from _group_lag_metrics(consuming, cluster)
    yield from _topic_offset_metrics(_queue_states(lag_answer, consuming, queues_without_rows or {}), cluster)
    verdicts = Counter((row.broker, row.topic, row.group, str(row.judged.verdict)) for row in consuming)
    labels = ("broker", "topic", "group", "verdict")
    yield make_gauge("commitlake_lag_verdict", "Queues of a group with this verdict", labels, verdicts.items())
    lost: dict[Labels, float] = defaultdict(float)
    for row in consuming:
        lost[row.broker, row.topic, row.group] += row.lost.largest
    help_text = "Messages that the broker deleted before the group consumed them"
    yield make_gauge("commitlake_lag_lost_messages", help_text, ("broker", "topic", "group"), lost.items())
    times = {(row.broker,): row.as_of.timestamp() for row in consuming or lag_answer.rows}
    yield make_gauge("commitlake_lag_as_of_timestamp_seconds", "Time of the figures", ("broker",), times.items())
    missing = [((), float(len(lag_answer.missing)))]
    yield make_gauge("commitlake_lag_stores_missing", "Stores whose lag is not known", (), missing)


def _queue_lag_metrics(rows: Sequence[LagRow]) -> Iterator[GaugeMetricFamily]:
    for kind, name, help_text in (
        ("group", "rocketmq_group_diff", "GroupDiff"),
        ("retry", "rocketmq_group_retrydiff", "GroupRetryDiff"),
    ):
        here = [row for row in rows if row.kind == kind]
        totals: dict[tuple[str, str], float] = defaultdict(float)
        # Each client of a group is connected to every broker.
        members: dict[str, int] = {}
        for row in here:
            totals[row.group, row.topic] += row.messages.largest
            members[row.group] = max(row.members or 0, members.get(row.group, 0))
        broadcasting = {row.group for row in here if row.broadcasts}
        values = (
            ((group, topic, str(members[group]), _BROADCASTING if group in broadcasting else _CLUSTERING), value)
            for (group, topic), value in totals.items()
        )
        yield make_gauge(name, help_text, _DIFF, values)


def _group_lag_metrics(rows: Sequence[LagRow], cluster: str) -> Iterator[GaugeMetricFamily]:
    by_group: dict[Labels, list[LagRow]] = defaultdict(list)
    for row in rows:
        by_group[cluster, row.broker, row.topic, row.group].append(row)
    figures: tuple[tuple[str, str, Callable[[Sequence[LagRow]], float | None]], ...] = (
        ("rocketmq_group_get_latency_by_storetime", "GroupGetLatencyByStoreTime", _max_latency_ms),
        ("rocketmq_consumer_offset", "GroupBrokerTotalOffset", _consumed_offset_sum),
        ("rocketmq_group_consume_total_offset", "GroupConsumeTotalOffset", _consumed_offset_sum),
        ("rocketmq_consumer_tps", "GroupGetNums", _consume_tps),
        ("rocketmq_group_consume_tps", "GroupConsumeTPS", _consume_tps),
    )
    for name, help_text, figure in figures:
        found = ((labels, figure(some)) for labels, some in by_group.items())
        yield make_gauge(name, help_text, _OF_GROUP, ((labels, value) for labels, value in found if value is not None))


def _consumed_offset_sum(rows: Sequence[LagRow]) -> float:
    return float(sum(row.offset.low for row in rows))


def _max_latency_ms(rows: Sequence[LagRow]) -> float:
    return _MS_PER_SECOND * max(row.seconds.largest for row in rows)


def _consume_tps(rows: Sequence[LagRow]) -> float | None:
    """Return the sum of the consume rates of all queues, messages per second; None if one is unknown."""
    rates = [row.judged.consume_tps for row in rows]
    known = [rate for rate in rates if rate is not None]
    return sum(known) if len(known) == len(rates) else None


class _QueueOffsetState(NamedTuple):
    """End offset of a queue, and its rate of incoming messages; None where unknown."""

    end: int
    produce_tps: float | None


def _queue_states(
    lag_answer: LagAnswer, rows: Sequence[LagRow], queues_without_rows: Mapping[Queue, QueueSpan]
) -> dict[Queue, _QueueOffsetState]:
    found = {
        Queue(row.broker, row.topic, row.queue_id): _QueueOffsetState(row.end, row.judged.produce_tps)
        for row in rows
        if row.end is not None
    }
    for queue, span in queues_without_rows.items():
        times = lag_answer.times[queue.broker]
        found.setdefault(queue, _QueueOffsetState(span.end, span.produce_tps(times.seconds_between)))
    return found


def _topic_offset_metrics(queues: Mapping[Queue, _QueueOffsetState], cluster: str) -> Iterator[GaugeMetricFamily]:
    ends: dict[Labels, float] = defaultdict(float)
    rates: dict[Labels, list[float | None]] = defaultdict(list)
    for queue, state in queues.items():
        ends[cluster, queue.broker, queue.topic] += state.end
        rates[cluster, queue.broker, queue.topic].append(state.produce_tps)
    for name, help_text, is_retry in (
        ("rocketmq_producer_offset", "TopicOffset", False),
        ("rocketmq_topic_retry_offset", "TopicRetryOffset", True),
    ):
        here = [(labels, end) for labels, end in ends.items() if labels[-1].startswith(RETRY_PREFIX) == is_retry]
        yield make_gauge(name, help_text, _OF_TOPIC, here)
    known = {
        labels: sum(rate for rate in some if rate is not None) for labels, some in rates.items() if None not in some
    }
    yield make_gauge("rocketmq_producer_tps", "TopicPutNums", _OF_TOPIC, known.items())
