"""Original topic of a message whose record may be in an internal topic of the broker.

A broker stores some messages in internal topics, with their original topic in properties:

    delayed, timer, half     REAL_TOPIC is the next topic: the original one, or after a failed delivery the retry topic
                             of a group; then RETRY_TOPIC is the original topic
    retry, dead letter       RETRY_TOPIC; REAL_TOPIC is outdated then
    retry of a POP consumer  no property: the retry topic is `%RETRY%group_topic` or `%RETRY%group+topic`, and
                             ORIGIN_GROUP is the group. RETRY_TOPIC of its dead letter is this retry topic

DLQ_ORIGIN_TOPIC has the same meaning in RocketMQ; its brokers do not write it, but other programs do.
Source: ScheduleMessageService, AbstractSendMessageProcessor, PopReviveService, KeyBuilder.parseNormalTopic (5.5.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from commitlake.schemas.layouts.rocketmq.properties import DLQ_ORIGIN_TOPIC, ORIGIN_GROUP, REAL_TOPIC, RETRY_TOPIC
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, RETRY_PREFIX, Kind, kind_of

POP_SEPARATORS = ("+", "_")
"""Separators between group and topic in a POP consumer's retry topic: version 2, not valid in names, and version 1."""
WAITING_KINDS = frozenset({Kind.DELAY, Kind.TIMER, Kind.HALF})
"""Kinds of records whose message waits for delivery to its topic."""
FAILED_KINDS = frozenset({Kind.RETRY, Kind.DLQ})
"""Kinds of records whose message a consumer failed to consume."""


def origin_topic(topic: str, properties: Mapping[str, str]) -> str:
    """Return the original topic of a message, or the stored topic if no property names another.

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
        found = _without_group(name, groups)
        if found:
            return found
    return topic


def _without_group(topic: str, groups: Iterable[str]) -> str:
    """Return a topic, or the topic in a POP consumer's retry topic; empty for other retry topics."""
    if not topic.startswith(RETRY_PREFIX):
        return topic
    rest = topic.removeprefix(RETRY_PREFIX)
    for group in groups:
        for separator in POP_SEPARATORS:
            if rest.startswith(group + separator):
                return rest[len(group) + 1 :]
    return rest.partition(POP_SEPARATORS[0])[2]
