"""Topics with a meaning for brokers, and the kinds of messages that their names show.

Only the stored topic determines a record's kind, because properties such as DELAY stay after delivery.
Source: TopicValidator, MixAll, TimerMessageStore (5.5.0).
"""

from __future__ import annotations

from enum import StrEnum

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BOLTMQ_SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
"""Transactions of a broker that keeps their states in RocksDB. The kind of both is `system`: their records do not refer
to each other by queue offsets, so rules for `half` and `op` do not apply to them."""
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
TRACE_TOPIC_PREFIX = "rmq_sys_TRACE_DATA_"
AUTO_CREATE_TOPIC = "TBW102"
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
SYSTEM_PREFIX = "rmq_sys_"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
"""Prefix of groups whose offsets are the broker's own progress: timers, transactions, POP."""
MAX_TOPIC_LENGTH = 127
MAX_RETRY_TOPIC_LENGTH = 255

_SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC,
        GIVEN_UP_TOPIC,
        OFFSET_MOVED_TOPIC,
        SELF_TEST_TOPIC,
        "BenchmarkTest",
        CHECKPOINT_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_TOPIC,
    }
)


class Kind(StrEnum):
    """Kind of a stored record in the life of a message."""

    NORMAL = "normal"
    DELAY = "delay"
    RETRY = "retry"
    DLQ = "dlq"
    HALF = "half"
    OP = "op"
    TRACE = "trace"
    TIMER = "timer"
    SYSTEM = "system"


_KIND_BY_TOPIC = {
    SCHEDULE_TOPIC: Kind.DELAY,
    BOLTMQ_SCHEDULE_TOPIC: Kind.DELAY,
    TIMER_TOPIC: Kind.TIMER,
    HALF_TOPIC: Kind.HALF,
    OP_TOPIC: Kind.OP,
    TRACE_TOPIC: Kind.TRACE,
}


def is_system_group(group: str) -> bool:
    """Return whether a consumer group belongs to the broker, as MixAll.isSysConsumerGroup does."""
    return group.startswith(SYSTEM_GROUP_PREFIX)


def kind_of(topic: str) -> Kind:
    """Return the kind of a record stored under `topic`."""
    if topic in _KIND_BY_TOPIC:
        return _KIND_BY_TOPIC[topic]
    if topic.startswith(RETRY_PREFIX):
        return Kind.RETRY
    if topic.startswith(DLQ_PREFIX):
        return Kind.DLQ
    if topic.startswith(TRACE_TOPIC_PREFIX):
        return Kind.TRACE
    if topic.startswith(SYSTEM_PREFIX) or topic in _SYSTEM_TOPICS:
        return Kind.SYSTEM
    return Kind.NORMAL
