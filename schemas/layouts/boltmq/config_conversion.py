"""Conversion of BoltMQ's JSON files under `config/` to and from RocketMQ's format.

Its documentation (1.0.0, 2017) and its source (1897b02, 2018) show two formats of the same files; both are read, the
source's is written. Times of a `dataVersion` are nanoseconds in BoltMQ, and milliseconds in RocketMQ.

    file                    documentation                                   source
    topics.json             {"topicConfigTable":{"topicConfigTable":{…}}}   {"topicConfigTable":{"topicConfigs":{…}}}
    consumerOffset.json     {"offsets":{"group@topic":{"0":12}}}            {"offsets":{"topic@group":{"0":12}}}
    subscriptionGroup.json  {"group":{…},"dataVersion":{…}}                 {"tables":{"group":{…}},"dataVersion":{…}}
    delayOffset.json                                                        {"offsetTable":{"3":17}}, as RocketMQ's

A topic's `topicFilterType` is a number, and it has a `Separator` (in the documentation `SEPARATOR`). Prefixes and known
groups show whether a key is `topic@group`, which is assumed unless something contradicts it.

The reading functions accept any parsed JSON object; one that is not in BoltMQ's format is returned unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeGuard

from commitlake.schemas.layouts.rocketmq.topics import (
    DLQ_PREFIX,
    FILTER_TYPES,
    GROUPS_TABLE,
    RETRY_PREFIX,
    TOPICS_TABLE,
)

Document = dict[Any, Any]


OFFSETS = "offsetTable"
"""RocketMQ's name of the table of offsets."""
OLD_TOPICS_NAME = "topic.json"
"""Name of topics.json in the documentation."""
_NESTED_TOPICS = ("topicConfigs", "topicConfigTable")
_NESTED_GROUPS = "tables"
_BOLTMQ_OFFSETS = "offsets"
_VERSION = "dataVersion"
_NS_OF_MS = 1_000_000
_SEPARATORS = ("Separator", "SEPARATOR")
_TOPIC_FIELDS = {
    "topicName": "", "readQueueNums": 0, "writeQueueNums": 0, "perm": 6, "topicSysFlag": 0, "order": False,
}  # fmt: skip
_GROUP_FIELDS = {
    "groupName": "", "consumeEnable": True, "consumeFromMinEnable": True, "consumeBroadcastEnable": True,
    "retryQueueNums": 1, "retryMaxTimes": 16, "brokerId": 0, "whichBrokerWhenConsumeSlowly": 0,
}  # fmt: skip


def topics_from_boltmq(document: Document) -> Document:
    """Convert a BoltMQ topics.json to RocketMQ's format; return any other document unchanged."""
    table = document.get(TOPICS_TABLE)
    if not isinstance(table, dict) or len(table) != 1:
        return document
    inner = next((table[name] for name in _NESTED_TOPICS if name in table), None)
    if not _is_dict_of_dicts(inner):
        return document
    topics = {name: _topic_from_boltmq(config) for name, config in inner.items()}
    return {**document, **_data_version_from_boltmq(document), TOPICS_TABLE: topics}


def _is_dict_of_dicts(value: object) -> TypeGuard[dict[Any, Document]]:
    """Return whether a value is a dictionary whose values are all dictionaries, as in a table of entries by name."""
    return isinstance(value, dict) and all(isinstance(entry, dict) for entry in value.values())


def _topic_from_boltmq(config: Document) -> Document:
    kind = config.get("topicFilterType")
    if type(kind) is int and 0 <= kind < len(FILTER_TYPES):
        return {**config, "topicFilterType": FILTER_TYPES[kind]}
    return config


def _data_version_from_boltmq(document: Document) -> Document:
    version = document.get(_VERSION)
    if not isinstance(version, dict) or type(version.get("timestamp")) is not int:
        return {}
    return {_VERSION: {**version, "timestamp": version["timestamp"] // _NS_OF_MS}}


def groups_from_boltmq(document: Document) -> Document:
    """Convert a BoltMQ subscriptionGroup.json to RocketMQ's format; return any other document unchanged."""
    if GROUPS_TABLE in document:
        return document
    table, kept = document.get(_NESTED_GROUPS), {name: document[name] for name in (_VERSION,) if name in document}
    if not _is_dict_of_dicts(table):
        table = {name: entry for name, entry in document.items() if name != _VERSION}
        if not table or not all(isinstance(entry, dict) and "groupName" in entry for entry in table.values()):
            return document
    groups = {str(entry.get("groupName") or name): entry for name, entry in table.items()}
    return {**kept, **_data_version_from_boltmq(document), GROUPS_TABLE: groups}


def offsets_from_boltmq(document: Document, groups: Collection[str] = ()) -> Document:
    """Convert a BoltMQ consumerOffset.json to RocketMQ's format; return any other document unchanged.

    Args:
        document: content of the file.
        groups: known groups.
    """
    if OFFSETS in document or not isinstance(table := document.get(_BOLTMQ_OFFSETS), dict):
        return document
    if _has_group_first_keys(table, groups):
        table = {"@".join(reversed(str(key).split("@", 1))): offsets for key, offsets in table.items()}
    kept = {name: value for name, value in document.items() if name != _BOLTMQ_OFFSETS}
    return {**kept, **_data_version_from_boltmq(document), OFFSETS: table}


def _has_group_first_keys(table: Document, groups: Collection[str]) -> bool:
    """Return whether the keys of an offset file have the form `group@topic` instead of `topic@group`."""
    found = set()
    for key in table:
        first, _, second = str(key).partition("@")
        if _is_retry_or_dlq_topic(second) or (first in groups and second not in groups):
            found.add(True)
        if _is_retry_or_dlq_topic(first) or (second in groups and first not in groups):
            found.add(False)
    return found == {True}


def _is_retry_or_dlq_topic(name: str) -> bool:
    return name.startswith((RETRY_PREFIX, DLQ_PREFIX))


def topics_to_boltmq(document: Document) -> Document:
    """Convert a topics.json from RocketMQ's format to the format in BoltMQ's source code."""
    topics = {name: _topic_to_boltmq(config) for name, config in document[TOPICS_TABLE].items()}
    return {TOPICS_TABLE: {_NESTED_TOPICS[0]: topics}, **_data_version_to_boltmq(document)}


def _topic_to_boltmq(config: Mapping[Any, Any]) -> Document:
    separator = next((config[name] for name in _SEPARATORS if name in config), "")
    kind = config.get("topicFilterType")
    number = FILTER_TYPES.index(kind) if kind in FILTER_TYPES else 0
    known = {name: config.get(name, default) for name, default in _TOPIC_FIELDS.items()}
    return {_SEPARATORS[0]: separator, **known, "topicFilterType": number}


def groups_to_boltmq(document: Document) -> Document:
    """Convert a subscriptionGroup.json from RocketMQ's format to the format in BoltMQ's source code."""
    groups = {
        name: {field: config.get(field, default) for field, default in _GROUP_FIELDS.items()}
        for name, config in document[GROUPS_TABLE].items()
    }
    return {_NESTED_GROUPS: groups, **_data_version_to_boltmq(document)}


def offsets_to_boltmq(document: Document) -> Document:
    """Convert a consumerOffset.json from RocketMQ's format to the format in BoltMQ's source code."""
    return {_BOLTMQ_OFFSETS: document[OFFSETS]}


def delay_offsets_to_boltmq(document: Document) -> Document:
    """Convert a delayOffset.json from RocketMQ's format to the format in BoltMQ's source code."""
    return {OFFSETS: document[OFFSETS]}


def _data_version_to_boltmq(document: Document) -> Document:
    version = document[_VERSION]
    return {_VERSION: {"timestamp": version["timestamp"] * _NS_OF_MS, "counter": version["counter"]}}
