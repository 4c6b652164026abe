"""Internal topics and groups of brokers, and the kinds of messages that topics contain.

Only the stored topic determines a record's kind, because properties such as DELAY stay after delivery. A broker stores
some messages in internal topics, with their original topic in properties:

    delayed, timer, half     REAL_TOPIC is the next topic: the original one, or after a failed delivery the retry topic
                             of a group; then RETRY_TOPIC is the original topic
    retry, dead letter       RETRY_TOPIC; REAL_TOPIC is outdated then
    retry of a POP consumer  no property: the retry topic is `%RETRY%group_topic` or `%RETRY%group+topic`, and
                             ORIGIN_GROUP is the group. RETRY_TOPIC of its dead letter is this retry topic

DLQ_ORIGIN_TOPIC has the same meaning as RETRY_TOPIC in RocketMQ; its brokers do not write it, but other programs do.

A half message is in RMQ_SYS_TRANS_HALF_TOPIC. Commit and rollback both store an op record in
RMQ_SYS_TRANS_OP_HALF_TOPIC, in the queue with the same id; its body contains the queue offsets of finished half
messages. Brokers 4.9 and 5.0 write an op record for each half message; later ones write one for many, up to three
seconds late (transactionOpBatchInterval). An unfinished half message is stored again with the same UNIQ_KEY before its
producer is asked, and goes to TRANS_CHECK_MAX_TIME_TOPIC after 15 times. The broker's progress in both topics is the
offset of the group CID_RMQ_SYS_TRANS: every half message before it is finished, given up, or stored again.

Source: TopicValidator, MixAll, TimerMessageStore, ScheduleMessageService, AbstractSendMessageProcessor,
PopReviveService, KeyBuilder.parseNormalTopic (5.5.0), TransactionalMessageServiceImpl (4.9.7, 5.5.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from commitlake.schemas.layouts.integer_parsing import INT64_MAX, parse_int
from commitlake.schemas.layouts.rocketmq.properties import DLQ_ORIGIN_TOPIC, ORIGIN_GROUP, REAL_TOPIC, RETRY_TOPIC

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
LIGHT_PREFIX = "%LMQ%"
"""Prefix of the names of light queues, see `light_queues`."""
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
TOPICS_FILE, TOPICS_TABLE = "config/topics.json", "topicConfigTable"
GROUPS_FILE, GROUPS_TABLE = "config/subscriptionGroup.json", "subscriptionGroupTable"
"""Files of a store with the settings of topics and groups, and the keys under which they have their entries."""
OFFSETS_FILES = ("consumerOffset.json", "lmqConsumerOffset.json")
"""With `enableLmq=true`, a broker stores offsets in the second file, and does not read the first."""
BROADCAST_SUFFIX = "@broadcast"
"""End of a group's name in the keys of offsets that a broker stores for a broadcasting group."""
POP_SEPARATORS = ("+", "_")
"""Separators between group and topic in a POP consumer's retry topic: version 2, not valid in names, and version 1."""
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
TOOLS_GROUP = "TOOLS_CONSUMER"
"""Consumer group for tools, which every broker has."""
FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
"""Values of `topicFilterType` in a topic's settings, in the order of their numbers."""
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
"""Property of a half message that was stored again to ask its producer: the number of times."""
PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
"""Property of a half message that was stored again because it was too young to be checked: its first queue offset."""


class Kind(StrEnum):
    """Kind of a stored message, such as a normal message, a delayed message or a dead letter."""

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
    """Return whether a consumer group is one that brokers use themselves; their names begin with `CID_RMQ_SYS_`."""
    return group.startswith(SYSTEM_GROUP_PREFIX)


def kind_of(topic: str) -> Kind:
    """Return the kind of a message (normal, delayed, dead letter, ...) that is stored under `topic`."""
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


_MADE_AT_START = frozenset({Kind.DELAY, Kind.HALF, Kind.OP, Kind.TIMER, Kind.SYSTEM})


def needs_topic_config(topic: str) -> bool:
    """Return whether a broker serves a topic only if topics.json lists it.

    Light queues are not in topics.json. A broker creates its own topics when it starts, except the topic for messages
    whose transaction was given up, which it creates with the first such message.
    """
    if topic.startswith(LIGHT_PREFIX):
        return False
    return topic == GIVEN_UP_TOPIC or kind_of(topic) not in _MADE_AT_START


def strip_broadcast_suffix(group: str) -> str:
    """Return the group in a stored offset's key without the suffix that marks a broadcasting consumer."""
    return group.removesuffix(BROADCAST_SUFFIX)


def split_offset_key(key: str) -> tuple[str, str]:
    """Return topic and group of a key of consumerOffset.json; the group is everything after the first `@`.

    A topic's name cannot contain an `@` (TopicValidator), but a group's name can: a broker 5.x stores the offset of a
    broadcasting group under `orders@billing@broadcast`. It is the smallest one at which a client of the group last
    pulled. Source: BroadcastOffsetManager (5.5.0).
    """
    topic, _, group = key.partition("@")
    return topic, group


WAITING_KINDS = frozenset({Kind.DELAY, Kind.TIMER, Kind.HALF})
"""Kinds of records whose message waits for delivery to its topic."""
FAILED_KINDS = frozenset({Kind.RETRY, Kind.DLQ})
"""Kinds of records whose message a consumer failed to consume."""


def origin_topic(topic: str, properties: Mapping[str, str]) -> str:
    """Return the topic to which a producer sent a message, or the stored topic if no property names another.

    Args:
        topic: topic in which the record is stored.
        properties: properties of the record.
    """
    kind = kind_of(topic)
    if kind in WAITING_KINDS:
        named = [REAL_TOPIC, RETRY_TOPIC, DLQ_ORIGIN_TOPIC]
    elif kind in FAILED_KINDS:
        named = [RETRY_TOPIC, DLQ_ORIGIN_TOPIC]
    else:
        return topic
    groups = [properties[ORIGIN_GROUP]] if ORIGIN_GROUP in properties else []
    if kind is Kind.DLQ:
        groups.append(topic.removeprefix(DLQ_PREFIX))
    stored = [topic] if kind is Kind.RETRY else []
    for name in (*(properties[name] for name in named if name in properties), *stored):
        found = _find_pop_topic(name, groups)
        if found:
            return found
    return topic


def _find_pop_topic(topic: str, groups: Iterable[str]) -> str:
    """Return the original topic in the name of a POP retry topic, which also contains the consumer group.

    Return an empty text for other retry topics, and any other topic unchanged.
    """
    if not topic.startswith(RETRY_PREFIX):
        return topic
    rest = topic.removeprefix(RETRY_PREFIX)
    for group in groups:
        for separator in POP_SEPARATORS:
            if rest.startswith(group + separator):
                return rest[len(group) + 1 :]
    return rest.partition(POP_SEPARATORS[0])[2]


def parse_op_offsets(body: bytes) -> list[int]:
    """Return the queue offsets of half messages that an op record marks as finished, in any version's format.

    >>> [parse_op_offsets(body) for body in (b"3", b"3,", b"0,1,3,")]
    [[3], [3], [0, 1, 3]]
    """
    numbers = [parse_int(part, 0, INT64_MAX) for part in body.decode("ascii", "replace").split(",")]
    return [number for number in numbers if number is not None]
