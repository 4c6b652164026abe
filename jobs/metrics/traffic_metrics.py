"""Traffic of a lake's stores as Prometheus metrics, with the names and labels of apache/rocketmq-exporter.

    name                            labels                                         value
    rocketmq_broker_tps             cluster, brokerIP, broker                      messages stored per second
    rocketmq_producer_message_size  cluster, broker, topic                         bytes of log stored per second
    rocketmq_topic_dlq_offset       cluster, broker, group                         ends of the dead-letter queues
    rocketmq_group_dlqdiff          group, topic, countOfOnlineConsumers, msgModel dead letters not yet consumed

Rates are those of the newest minute that is archived completely; the exporter's are those of the last minute. For the
minute's age see commitlake_archive_newest_message_timestamp_seconds. rocketmq_broker_tps also counts messages that the
broker stores itself, such as retries; the exporter counts only those that clients send. The exporter declares
rocketmq_group_dlqdiff, but has no values for it; here, it has the groups that consume a dead-letter topic. A store that
is not in a lake has only rocketmq_group_dlqdiff.

Two metrics are missing, because neither a log nor offsets show them: rocketmq_broker_qps (messages per second that
consumers got, from all brokers' gets), and rocketmq_consumer_message_size (their bytes).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily

from commitlake.jobs.metrics.gauges import Labels, make_gauge
from commitlake.pipelines.archive_health.traffic import Traffic
from commitlake.pipelines.lag.store_lag import LagAnswer
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, RETRY_PREFIX

_SECONDS = 60
_BROADCASTING, _CLUSTERING = "0", "1"
"""Values of `msgModel`: ordinals of RocketMQ's MessageModel."""


def traffic_metrics(traffic: Traffic, lag_answer: LagAnswer, cluster: str) -> Iterator[GaugeMetricFamily]:
    """Yield Prometheus metrics for the traffic of the brokers in a lake.

    Args:
        traffic: Traffic of all stores.
        lag_answer: Lag of the stores.
        cluster: Value of the label `cluster`.
    """
    stored: dict[Labels, int] = defaultdict(int)
    sizes: dict[Labels, float] = {}
    for one in traffic.topics:
        stored[cluster, traffic.addresses.get(one.broker, ""), one.broker] += one.messages
        if not one.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            sizes[cluster, one.broker, one.topic] = one.bytes / _SECONDS
    rates = {labels: messages / _SECONDS for labels, messages in stored.items()}
    ends = {(cluster, broker, group): float(end) for (broker, group), end in traffic.dead_letter_ends.items()}
    yield make_gauge("rocketmq_broker_tps", "BrokerPutNums", ("cluster", "brokerIP", "broker"), rates.items())
    yield make_gauge(
        "rocketmq_producer_message_size", "TopicPutMessageSize", ("cluster", "broker", "topic"), sizes.items()
    )
    yield make_gauge("rocketmq_topic_dlq_offset", "TopicRetryOffset", ("cluster", "broker", "group"), ends.items())
    labels = ("group", "topic", "countOfOnlineConsumers", "msgModel")
    yield make_gauge("rocketmq_group_dlqdiff", "GroupDLQDiff", labels, _unconsumed_dead_letters(lag_answer).items())


def _unconsumed_dead_letters(lag_answer: LagAnswer) -> dict[Labels, float]:
    rows = [row for row in lag_answer.rows if row.kind == "group" and row.topic.startswith(DLQ_PREFIX)]
    members: dict[str, int] = {}
    for row in rows:
        members[row.group] = max(row.members or 0, members.get(row.group, 0))
    broadcasting = {row.group for row in rows if row.broadcasts}
    found: dict[Labels, float] = defaultdict(float)
    for row in rows:
        model = _BROADCASTING if row.group in broadcasting else _CLUSTERING
        found[row.group, row.topic, str(members[row.group]), model] += row.messages.largest
    return found
