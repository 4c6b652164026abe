"""Tests of the files under config/: RocketMQ's format, kept settings, and broken files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreError
from commitlake.broker_lite.stores.rocketmq.config_files import ConsumerOffsets, DelayOffsets, Groups, Topics
from commitlake.schemas.remoting.fastjson import parse_fastjson, serialize_fastjson
from tests.support.message_stores import SMALL, fill, message
from tests.support.small_stores import STORED_MS, Clock

CONSUMER_OFFSETS_5_5_0 = """{
\t"dataVersion":{
\t\t"counter":0,
\t\t"stateVersion":0,
\t\t"timestamp":1795255082812
\t},
\t"groupTopicMap":{
\t\t"CG":[
\t\t\t"TopicR"
\t\t]
\t},
\t"offsetTable":{
\t\t"TopicR@CG":{
\t\t\t0:1,
\t\t\t3:12
\t\t}
\t},
\t"pullOffsetTable":{}
}"""
"""As a broker 5.5.0 wrote it, shortened."""
DELAY_OFFSETS_4_9_7 = '{\n\t"offsetTable":{2:1,3:1\n\t}\n}'
"""As a broker 4.9.7 wrote it."""


def write(root: Path, name: str, text: str) -> Path:
    path = root / "config" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_integer_keys_are_written_without_quotes() -> None:
    assert serialize_fastjson({"offsetTable": {1: 2}}) == '{\n\t"offsetTable":{\n\t\t1:2\n\t}\n}'


def test_a_brokers_file_is_the_same_after_it_was_read_and_written() -> None:
    assert serialize_fastjson(parse_fastjson(CONSUMER_OFFSETS_5_5_0)) == CONSUMER_OFFSETS_5_5_0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{0:1,1:0}", {0: 1, 1: 0}),
        ("{ 0 : 1 , -1:2}", {0: 1, -1: 2}),
        ('{"0":1}', {"0": 1}),
        ('{"a":[1,2],"b":{3:[4]}}', {"a": [1, 2], "b": {3: [4]}}),
        ('{"a":"{0:1,2:3}","b\\\\":"\\",4:5"}', {"a": "{0:1,2:3}", "b\\": '",4:5'}),
        ("{}", {}),
    ],
)
def test_both_dialects_are_read(text: str, value: object) -> None:
    assert parse_fastjson(text) == value


@pytest.mark.parametrize("text", ["", "{", "{0}", "{0:}", "{a:1}", '{"a":1,}', "[" * 100_000])
def test_invalid_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_fastjson(text)


def test_store_writes_all_four_files_and_their_backups(root: Path, clock: Clock) -> None:
    for number in range(2):
        with MessageStore.open(root, SMALL, clock=clock) as store:
            fill(store, 1, start=number)
    names = ["consumerOffset.json", "delayOffset.json", "subscriptionGroup.json", "topics.json"]
    assert sorted(path.name for path in (root / "config").iterdir()) == sorted(
        names + [f"{name}.bak" for name in names]
    )
    topics = json.loads((root / "config" / "topics.json").read_text())
    assert topics["topicConfigTable"]["orders"] == {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 4,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "orders",
        "topicSysFlag": 0,
        "writeQueueNums": 4,
    }
    assert topics["dataVersion"] == {"counter": 1, "stateVersion": 0, "timestamp": STORED_MS}


def test_topic_gets_as_many_queues_as_its_messages_use(store: MessageStore) -> None:
    for topic, queue_id in (("orders", 9), ("%RETRY%g", 0), ("%DLQ%g", 0), ("SCHEDULE_TOPIC_XXXX", 2), ("orders", 5)):
        store.put(message(topic=topic, queue_id=queue_id))
    queues = {topic: config["readQueueNums"] for topic, config in store.config.topics.entries.items()}
    assert queues == {"orders": 10, "%RETRY%g": 1, "%DLQ%g": 1, "SCHEDULE_TOPIC_XXXX": 18}


def test_lost_topics_are_recovered_from_their_queues(root: Path, store: MessageStore) -> None:
    store.put(message(queue_id=6))
    store.close()
    for path in (root / "config").iterdir():
        path.unlink()
    with MessageStore.open(root, SMALL) as again:
        assert again.config.topics.entries["orders"]["writeQueueNums"] == 7


def test_unknown_settings_are_kept(root: Path, clock: Clock) -> None:
    path = write(root, "consumerOffset.json", CONSUMER_OFFSETS_5_5_0)
    offsets = ConsumerOffsets(root, clock)
    offsets.commit("TopicR", "CG", 3, 13)
    offsets.commit("orders", "CG", 0, 1)
    offsets.save()
    document = parse_fastjson(path.read_text())
    assert document["groupTopicMap"] == {"CG": ["TopicR"]}
    assert document["offsetTable"] == {"TopicR@CG": {0: 1, 3: 13}, "orders@CG": {0: 1}}
    assert path.with_name("consumerOffset.json.bak").read_text() == CONSUMER_OFFSETS_5_5_0


@pytest.mark.parametrize("is_newer", [True, False])
def test_offsets_are_read_from_the_newer_of_the_plain_and_light_files(root: Path, clock: Clock, is_newer: bool) -> None:
    plain = write(root, "consumerOffset.json", '{"offsetTable":{"orders@CG":{0:1}}}')
    light = write(
        root, "lmqConsumerOffset.json", '{"lmqOffsetTable":{"%LMQ%a@%LMQ%c":3},"offsetTable":{"orders@CG":{0:7}}}'
    )
    os.utime(plain, (2, 2))
    os.utime(light, (3, 3) if is_newer else (1, 1))
    offsets = ConsumerOffsets(root, clock)
    assert offsets.get("orders", "CG", 0) == (7 if is_newer else 1)
    offsets.commit("orders", "CG", 0, 9)
    offsets.save()
    documents = [parse_fastjson(path.read_text()) for path in (plain, light)]
    assert [document["offsetTable"]["orders@CG"][0] for document in documents] == ([1, 9] if is_newer else [9, 7])
    assert documents[1]["lmqOffsetTable"] == {"%LMQ%a@%LMQ%c": 3}


def test_topic_keeps_its_other_settings(root: Path, clock: Clock) -> None:
    write(root, "topics.json", '{"topicConfigTable":{"orders":{"topicName":"orders","perm":4,"readQueueNums":2}}}')
    topics = Topics(root, clock)
    topics.ensure_queue("orders", 1)
    assert not topics.is_changed
    topics.ensure_queue("orders", 2)
    assert (topics.entries["orders"]["perm"], topics.entries["orders"]["readQueueNums"]) == (4, 4)


def test_delay_offsets_of_4_9_are_read(root: Path, clock: Clock) -> None:
    write(root, "delayOffset.json", DELAY_OFFSETS_4_9_7)
    offsets = DelayOffsets(root, clock)
    assert [offsets.get(level) for level in (1, 2, 3)] == [0, 1, 1]


def test_quoted_numbers_are_read(root: Path, clock: Clock) -> None:
    write(root, "consumerOffset.json", '{"offsetTable":{"orders@CG":{"0":7}}}')
    write(root, "delayOffset.json", '{"offsetTable":{"2":5}}')
    assert ConsumerOffsets(root, clock).get("orders", "CG", 0) == 7
    assert DelayOffsets(root, clock).get(2) == 5


def test_unknown_group_gets_rocketmqs_limits(root: Path, clock: Clock) -> None:
    groups = Groups(root, clock)
    assert tuple(groups.find_or_create("shipping")) == (1, 16)
    groups.create("shipping", retry_queue_count=3, retry_max_times=2)
    assert tuple(groups.find_or_create("shipping")) == (3, 2)
    groups.save()
    assert tuple(Groups(root, clock).find_or_create("shipping")) == (3, 2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[]",
        '"text"',
        '{"offsetTable":[]}',
        '{"offsetTable":{"a@b":1}}',
        '{"dataVersion":7}',
        '{"dataVersion":{"counter":"x"}}',
        '{"dataVersion":{"counter":' + "9" * 5000 + "}}",
        '{"offsetTable":{"a@b":{0:' + "9" * 20 + "}}}",
        '{"offsetTable":{"a@b":{' + "9" * 5000 + ":1}}}",
        '{"offsetTable":{"a@b":{"0":true}}}',
    ],
)
def test_backup_is_read_if_the_file_is_broken(root: Path, clock: Clock, text: str) -> None:
    path = write(root, "consumerOffset.json", text)
    with pytest.raises(StoreError, match=r"consumerOffset.json: expected a config file in RocketMQ's format, found"):
        ConsumerOffsets(root, clock)
    write(root, "consumerOffset.json.bak", CONSUMER_OFFSETS_5_5_0)
    assert ConsumerOffsets(root, clock).get("TopicR", "CG", 3) == 12
    path.unlink()
    assert ConsumerOffsets(root, clock).get("TopicR", "CG", 3) == 12


def test_broken_file_without_a_backup_is_an_error_on_opening(root: Path) -> None:
    write(root, "topics.json", "{")
    with pytest.raises(StoreError, match=r"topics\.json"):
        MessageStore.open(root, SMALL)
    assert (root / "config" / "topics.json").read_text() == "{"


def test_unchanged_offsets_get_a_new_time_and_nothing_else(root: Path, clock: Clock) -> None:
    with MessageStore.open(root, SMALL, clock=clock) as store:
        store.config.save()
        before = {path.name: path.stat().st_mtime for path in (root / "config").iterdir()}
        for path in (root / "config").iterdir():
            os.utime(path, (1000, 1000))
        store.config.save_if_changed()
        after = {path.name: path.stat().st_mtime for path in (root / "config").iterdir()}
    renewed = {name for name, time in after.items() if time >= before[name]}
    assert renewed == {"consumerOffset.json", "delayOffset.json"}


def test_changes_are_saved_in_the_background(root: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commitlake.broker_lite.stores.engine.flushing.CONFIG_SAVE_INTERVAL_SECONDS", 0.0)
    with MessageStore.open(root, SMALL, clock=clock) as store:
        store.config.consumer_offsets.commit("orders", "CG", 0, 5)
        path = root / "config" / "consumerOffset.json"
        for _ in range(2000):
            if path.exists() and "orders@CG" in path.read_text():
                return
            store._flusher._stop.wait(0.01)
    pytest.fail("consumerOffset.json was not saved")
