"""Tests of BoltMQ's JSON files in both forms: that of its documentation, and that of its source."""

from __future__ import annotations

import json
from typing import Any

import pytest

from commitlake.schemas.layouts.boltmq.config_conversion import (
    delay_offsets_to_boltmq,
    groups_from_boltmq,
    groups_to_boltmq,
    offsets_from_boltmq,
    offsets_to_boltmq,
    topics_from_boltmq,
    topics_to_boltmq,
)
from commitlake.schemas.remoting.fastjson import parse_fastjson

TOPICS_OF_DOCUMENT = (
    '{"topicConfigTable":{"topicConfigTable":{"%RETRY%g":{"SEPARATOR":"","topicName":"%RETRY%g","readQueueNums":1,'
    '"writeQueueNums":1,"perm":6,"topicFilterType":1,"topicSysFlag":0,"order":false}}},'
    '"dataVersion":{"timestamp":1511333414604049700,"counter":2023}}'
)
TOPICS_OF_SOURCE = TOPICS_OF_DOCUMENT.replace('{"topicConfigTable":{"%', '{"topicConfigs":{"%').replace(
    "SEPARATOR", "Separator"
)
GROUP = (
    '{"groupName":"g","consumeEnable":true,"consumeFromMinEnable":false,"consumeBroadcastEnable":true,'
    '"retryQueueNums":1,"retryMaxTimes":16,"brokerId":0,"whichBrokerWhenConsumeSlowly":0}'
)
VERSION = '"dataVersion":{"timestamp":1511333414604049700,"counter":7}'


@pytest.mark.parametrize("text", [TOPICS_OF_DOCUMENT, TOPICS_OF_SOURCE])
def test_topics_of_both_forms_are_read(text: str) -> None:
    document = topics_from_boltmq(parse_fastjson(text))
    assert list(document["topicConfigTable"]) == ["%RETRY%g"]
    config = document["topicConfigTable"]["%RETRY%g"]
    assert (config["readQueueNums"], config["perm"], config["topicFilterType"]) == (1, 6, "MULTI_TAG")
    assert document["dataVersion"] == {"timestamp": 1511333414604, "counter": 2023}


def test_topics_are_written_as_the_source_does() -> None:
    document = topics_from_boltmq(parse_fastjson(TOPICS_OF_DOCUMENT))
    document["topicConfigTable"]["%RETRY%g"]["attributes"] = {}
    written = topics_to_boltmq(document)
    assert written["topicConfigTable"] == parse_fastjson(TOPICS_OF_SOURCE)["topicConfigTable"]
    assert written["dataVersion"] == {"timestamp": 1511333414604000000, "counter": 2023}


@pytest.mark.parametrize(
    "document",
    [
        {"topicConfigTable": {"orders": {"topicName": "orders", "perm": 6}}},
        {"topicConfigTable": {"topicConfigs": {"topicName": "topicConfigs", "perm": 6}}},  # a topic of that name
        {"topicConfigTable": {}},
        {"topicConfigTable": []},
        {"topicConfigTable": {"topicConfigs": 1}},
        {},
    ],
)
def test_topics_of_rocketmq_are_unchanged(document: dict[str, Any]) -> None:
    assert topics_from_boltmq(document) == document


@pytest.mark.parametrize(
    "text", ['{"g":' + GROUP + "," + VERSION + "}", '{"tables":{"g":' + GROUP + "}," + VERSION + "}"]
)
def test_groups_of_both_forms_are_read(text: str) -> None:
    document = groups_from_boltmq(parse_fastjson(text))
    assert document == {
        "subscriptionGroupTable": {"g": json.loads(GROUP)},
        "dataVersion": {"timestamp": 1511333414604, "counter": 7},
    }
    assert groups_to_boltmq(document)["tables"] == {"g": json.loads(GROUP)}


def test_a_group_named_tables_is_a_group_in_the_documented_form() -> None:
    group = json.loads(GROUP.replace('"g"', '"tables"'))
    assert groups_from_boltmq({"tables": group})["subscriptionGroupTable"] == {"tables": group}


@pytest.mark.parametrize(
    "document",
    [
        {"subscriptionGroupTable": {"tables": {"groupName": "tables"}}, "forbiddenTable": {}},
        {"forbiddenTable": {}, "dataVersion": {"counter": 1}},
        {"tables": 1},
        {},
    ],
)
def test_groups_of_rocketmq_are_unchanged(document: dict[str, Any]) -> None:
    assert groups_from_boltmq(document) == document


@pytest.mark.parametrize(
    ("keys", "groups", "expected"),
    [
        (["orders@g", "%RETRY%g@g"], (), ["orders@g", "%RETRY%g@g"]),  # the source's
        (["g@orders", "g@%RETRY%g"], (), ["orders@g", "%RETRY%g@g"]),  # in the documented form, recognized by a prefix
        (["g@orders"], ("g",), ["orders@g"]),  # recognized by a known group
        (["orders@g"], ("g",), ["orders@g"]),
        (["a@b"], (), ["a@b"]),  # the form cannot be recognized
        (["g@orders", "orders@g"], ("g",), ["g@orders", "orders@g"]),  # contradictory
        (["a@b", "g@%RETRY%g"], (), ["b@a", "%RETRY%g@g"]),  # a file is of one form
    ],
)
def test_offsets_of_both_forms_are_read(keys: list[str], groups: tuple[str, ...], expected: list[str]) -> None:
    document = offsets_from_boltmq({"offsets": {key: {"0": 12, "1": 9} for key in keys}}, groups)
    assert document == {"offsetTable": {key: {"0": 12, "1": 9} for key in expected}}


@pytest.mark.parametrize("document", [{"offsetTable": {"a@b": {0: 1}}, "offsets": {}}, {"offsets": []}, {}])
def test_offsets_of_rocketmq_are_unchanged(document: dict[str, Any]) -> None:
    assert offsets_from_boltmq(document) == document


def test_offsets_are_written_with_quoted_numbers_as_go_does() -> None:
    assert json.dumps(offsets_to_boltmq({"offsetTable": {"orders@g": {0: 12}}, "dataVersion": {}})) == (
        '{"offsets": {"orders@g": {"0": 12}}}'
    )
    assert (
        json.dumps(delay_offsets_to_boltmq({"offsetTable": {3: 17}, "dataVersion": {}})) == '{"offsetTable": {"3": 17}}'
    )
