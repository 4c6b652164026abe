"""Tests of a store in BoltMQ's dialect: its bytes, its config files, its recovery, and deliveries."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.broker.store_layouts import FileLayout, detect_layouts
from commitlake.broker_lite.delivery import Delivery
from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.broker_lite.stores.rocketmq import (
    IndexDisabledError,
    MessageRefusedError,
    MessageStore,
    StoreError,
    StoreFilesError,
)
from commitlake.broker_lite.stores.rocketmq.options import StoreOptions
from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ, DIALECTS, ROCKETMQ, Dialect, Magic
from commitlake.schemas.layouts.rocketmq.commitlog import BLANK
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from tests.support.brokers import Peer, pull_fields, records, send_fields
from tests.support.message_stores import SMALL, fill, log_records, message, queue_entries
from tests.support.small_stores import STORED_MS, Clock, all_messages, crash

OPTIONS = replace(SMALL, dialect=BOLTMQ)
NEGATIVE_CRC_BODY = b"123456789"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXX"
COUNT = 40


def open_store(root: Path, clock: Clock, options: StoreOptions = OPTIONS) -> MessageStore:
    """Open a small store in BoltMQ's dialect."""
    return MessageStore.open(root, options, clock=clock)


def test_records_have_boltmqs_magic_and_all_bits_of_the_crc(root: Path, clock: Clock) -> None:
    with open_store(root, clock) as store:
        store.put(message(body=NEGATIVE_CRC_BODY))
        store.put(message(body=b"abc"))
    found = list(log_records(root))
    assert [record.magic for record in found] == [Magic.BOLTMQ] * 2
    assert [record.body_crc & 0xFFFFFFFF for record in found] == [0xCBF43926, 0x352441C2]


def test_a_segment_is_closed_by_boltmqs_blank_and_zeros(root: Path, clock: Clock) -> None:
    with open_store(root, clock) as store:
        fill(store, COUNT)
    segments = sorted((root / "commitlog").iterdir())
    assert len(segments) > 1
    for segment in segments[:-1]:
        last = [record for record in log_records(root) if record.physical_offset < int(segment.name) + 4096][-1]
        end = last.physical_offset + last.size - int(segment.name)
        data = segment.read_bytes()
        assert BLANK.unpack(data, end) == (4096 - end, Magic.BOLTMQ_BLANK)
        assert not any(data[end + BLANK.size :])


def test_queue_entries_have_fnv_codes_and_no_index_is_written(root: Path, clock: Clock) -> None:
    with open_store(root, clock) as store:
        for tag in ("TagA", "TagB"):
            store.put(message(properties=(("TAGS", tag), ("KEYS", "order-1"))))
        store.put(message(properties=()))
        with pytest.raises(IndexDisabledError, match=r"no index of keys, because .* is BoltMQ's"):
            store.get_by_key("orders", "order-1")
    assert [entry.tags_code for entry in queue_entries(root)] == [0x75F21B7E02076ED4, 0x75F21B7E02076ED7, 0]
    assert not list((root / "index").iterdir())


def test_config_files_have_the_form_of_boltmqs_source(root: Path, clock: Clock) -> None:
    with open_store(root, clock) as store:
        store.put(message())
        store.config.groups.create("mail", retry_max_times=3)
        store.config.consumer_offsets.commit("orders", "mail", 1, 3)
        store.config.delay_offsets.set(3, 7)
    files = {path.name: json.loads(path.read_text()) for path in (root / "config").glob("*.json")}
    topics = files["topics.json"]["topicConfigTable"]["topicConfigs"]
    assert topics["orders"] == {
        "Separator": "", "topicName": "orders", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
        "topicSysFlag": 0, "order": False, "topicFilterType": 0,
    }  # fmt: skip
    assert files["topics.json"]["dataVersion"]["timestamp"] == STORED_MS * 1_000_000
    assert files["subscriptionGroup.json"]["tables"]["mail"]["retryMaxTimes"] == 3
    assert files["consumerOffset.json"] == {"offsets": {"orders@mail": {"1": 3}}}
    assert files["delayOffset.json"] == {"offsetTable": {"3": 7}}
    with open_store(root, clock) as again:
        assert again.config.consumer_offsets.get("orders", "mail", 1) == 3
        assert again.config.delay_offsets.get(3) == 7
        assert again.config.groups.find_or_create("mail").retry_max_times == 3
        assert again.config.topics.entries["orders"]["topicFilterType"] == "SINGLE_TAG"


def test_config_files_in_the_documents_form_are_read(root: Path, clock: Clock) -> None:
    config = root / "config"
    config.mkdir(parents=True)
    topic = {"SEPARATOR": " ", "topicName": "paid", "readQueueNums": 2, "writeQueueNums": 2, "topicFilterType": 1}
    version = {"timestamp": STORED_MS * 1_000_000, "counter": 9}
    documents = {
        "topic.json": {"topicConfigTable": {"topicConfigTable": {"paid": topic}}, "dataVersion": version},
        "subscriptionGroup.json": {"mail": {"groupName": "mail", "retryMaxTimes": 5}, "dataVersion": version},
        "consumerOffset.json": {"offsets": {"mail@paid": {"0": 12, "1": 9}}},
    }
    for name, document in documents.items():
        (config / name).write_text(json.dumps(document))
    with open_store(root, clock) as store:
        assert store.config.topics.entries["paid"]["readQueueNums"] == 2
        assert store.config.groups.find_or_create("mail").retry_max_times == 5
        assert store.config.consumer_offsets.get("paid", "mail", 1) == 9
    written = json.loads((config / "topics.json").read_text())
    assert written["topicConfigTable"]["topicConfigs"]["paid"]["Separator"] == " "
    assert written["dataVersion"]["counter"] == 9
    assert json.loads((config / "consumerOffset.json").read_text()) == {"offsets": {"paid@mail": {"0": 12, "1": 9}}}


@pytest.mark.parametrize("lost", [None, "consumequeue"])
def test_a_store_is_recovered_after_a_crash(root: Path, clock: Clock, lost: str | None) -> None:
    store = open_store(root, clock)
    results = fill(store, COUNT)
    before = all_messages(store)
    crash(store)
    entries = queue_entries(root)
    for path in sorted((root / "consumequeue").rglob("*"), reverse=True) if lost else ():
        path.rmdir() if path.is_dir() else path.unlink()
    with open_store(root, clock) as again:
        assert again.recovery.crashed
        assert all_messages(again) == before
        assert again.put(message(COUNT)).physical_offset >= results[-1].physical_offset + results[-1].size
    assert queue_entries(root)[: len(entries)] == entries


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_store_of_another_dialect_is_refused(root: Path, clock: Clock, dialect: Dialect) -> None:
    other = ROCKETMQ if dialect is BOLTMQ else BOLTMQ
    with open_store(root, clock, replace(SMALL, dialect=dialect)) as store:
        fill(store, 2)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    with pytest.raises(StoreFilesError, match=f"expected a log of {other.name}, found one of {dialect.name}"):
        open_store(root, clock, replace(SMALL, dialect=other))
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    assert detect_layouts(root) == (FileLayout.BOLTMQ if dialect is BOLTMQ else FileLayout.ROCKETMQ,)


def test_values_too_large_for_boltmq_are_refused(root: Path, clock: Clock) -> None:
    with pytest.raises(StoreError, match="IPv4"):
        replace(OPTIONS, store_host=Host.of("::1", 10911))
    with open_store(root, clock) as store, pytest.raises(MessageRefusedError, match="at most 127 characters"):
        store.put(message(topic="%RETRY%" + "g" * 130))


def test_a_delayed_message_waits_in_boltmqs_topic(root: Path, clock: Clock) -> None:
    with open_store(root, clock) as store:
        delivery = Delivery(store)
        delivery.send(message(properties=(("DELAY", "2"), ("TAGS", "TagA"))))
        entry = store.entry_at(SCHEDULE_TOPIC, 1, 0)
        assert entry is not None
        assert entry.tags_code == STORED_MS + 5000
        assert store.config.topics.entries[SCHEDULE_TOPIC]["readQueueNums"] == 18
        assert delivery.next_due_ms() == STORED_MS + 5000
        delivery.deliver_due(STORED_MS + 5000)
    assert [(record.topic, record.magic) for record in log_records(root)] == [
        (SCHEDULE_TOPIC, Magic.BOLTMQ), ("orders", Magic.BOLTMQ),
    ]  # fmt: skip


def test_a_failed_message_is_retried_and_becomes_a_dead_letter(root: Path, clock: Clock) -> None:
    with open_store(root, clock) as store:
        delivery = Delivery(store)
        offset = store.put(message()).physical_offset
        delivery.send_back("mail", offset)
        assert [one.queue_offset for one in delivery.deliver_due(STORED_MS + 10_000)] == [0]
        delivery.send_back("mail", offset, delay_level=-1)
    assert [record.topic for record in log_records(root)] == ["orders", SCHEDULE_TOPIC, "%RETRY%mail", "%DLQ%mail"]


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ((("TRAN_MSG", "true"), ("PGROUP", "shop")), "because BoltMQ does not support transactions"),
        ((("TIMER_DELAY_MS", "1000"),), "BoltMQ does not support delivery times"),
    ],
)
def test_features_that_boltmq_lacks_are_refused(
    root: Path, clock: Clock, properties: tuple[tuple[str, str], ...], reason: str
) -> None:
    with open_store(root, clock) as store:
        with pytest.raises(MessageRefusedError, match=reason):
            Delivery(store).send(message(properties=properties))
        assert store.max_physical_offset == 0


def test_rocketmq_clients_receive_records_in_rocketmqs_dialect(root: Path, clock: Clock) -> None:
    with open_store(root, clock) as store:
        peer = Peer(Dispatcher(Broker(store, BrokerOptions())))
        for tag in ("TagA", "TagB"):
            answer = peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields("orders", {"TAGS": tag}), NEGATIVE_CRC_BODY)
            assert answer.code == ResponseCode.SUCCESS
        assert store.config.topics.entries.keys() >= {SCHEDULE_TOPIC}
        assert not store.config.topics.entries.keys() & {"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"}
        for subscription, tags in (("TagB", ["TagB"]), ("*", ["TagA", "TagB"]), ("TagC || TagA", ["TagA"])):
            found = records(peer.ask(RequestCode.PULL_MESSAGE, pull_fields("orders", subscription=subscription)).body)
            assert [one.tags for one in found] == tags
            assert {(one.magic, one.body_crc) for one in found} == {(Magic.V1, 0x4BF43926)}
        sent = store.get("orders", 0, 0).messages[0]
        viewed = peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": sent.physical_offset})
        assert records(viewed.body)[0].magic == Magic.V1
    assert {record.magic for record in log_records(root)} == {Magic.BOLTMQ}
