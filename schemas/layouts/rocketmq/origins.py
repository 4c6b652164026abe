"""The topic that a message was sent to, told by a record that may lie in a topic of the broker's.

A broker stores some messages in topics of its own, and says in properties where they came from:

    delayed, timer, half     REAL_TOPIC is the topic that the message goes to next: its own, or the retry topic of a
                             group where a consumer failed; then RETRY_TOPIC is its own
    retry, dead letter       RETRY_TOPIC; REAL_TOPIC is out of date by then
    retry of a POP consumer  no property has it: the retry topic is `%RETRY%group_topic`, or `%RETRY%group+topic`, and
                             ORIGIN_GROUP is the group. RETRY_TOPIC of its dead letter is this retry topic

DLQ_ORIGIN_TOPIC is a name of RocketMQ's for the same, which its brokers do not write; programs that do mean the same.
Source: ScheduleMessageService, AbstractSendMessageProcessor, PopReviveService, KeyBuilder.parseNormalTopic (5.5.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from commitlake.schemas.layouts.rocketmq.properties import DLQ_ORIGIN_TOPIC, ORIGIN_GROUP, REAL_TOPIC, RETRY_TOPIC
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, RETRY_PREFIX, Kind, kind_of

POP_SEPARATORS = ("+", "_")
"""Between group and topic in the name of a POP consumer's retry topic: of version 2, which no name has, and of 1."""
WAITING_KINDS = frozenset({Kind.DELAY, Kind.TIMER, Kind.HALF})
"""Kinds of records whose message waits for its own topic."""
FAILED_KINDS = frozenset({Kind.RETRY, Kind.DLQ})
"""Kinds of records whose message a consumer failed to consume."""


def origin_topic(topic: str, properties: Mapping[str, str]) -> str:
    """Return the topic that a message was sent to; the stored topic where no property names another.

    Args:
        topic: where the record is stored.
        properties: the record's.
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
        found = _without_group(name, groups)
        if found:
            return found
    return topic


def _without_group(topic: str, groups: Iterable[str]) -> str:
    """Return a topic, and of a POP consumer's retry topic the one that it consumes; empty for other retry topics."""
    if not topic.startswith(RETRY_PREFIX):
        return topic
    rest = topic.removeprefix(RETRY_PREFIX)
    for group in groups:
        for separator in POP_SEPARATORS:
            if rest.startswith(group + separator):
                return rest[len(group) + 1 :]
    return rest.partition(POP_SEPARATORS[0])[2]
