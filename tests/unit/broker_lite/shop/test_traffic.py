"""Tests of the shop's three days: the story is complete and reproducible."""

from __future__ import annotations

import hashlib
import json
import zlib
from pathlib import Path

import pytest

from commitlake.broker_lite.shop.messages import Producer
from commitlake.broker_lite.shop.traffic_clock import DEFAULT_START_MS
from commitlake.broker_lite.shop_traffic import (
    BOLTMQ_SHOP_OPTIONS,
    SHOP_OPTIONS,
    ShopTraffic,
    fill_shop_store,
)
from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreFilesError
from commitlake.schemas.layouts.boltmq.dialect import Magic
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.sysflag import BodyCodec
from commitlake.schemas.layouts.rocketmq.topics import Kind, kind_of
from tests.support.message_stores import log_records

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> ShopTraffic:
    """Return the shop's store, for reading only."""
    return fill_shop_store(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def records(traffic: ShopTraffic) -> list[Message]:
    """Return all records of the store."""
    return list(log_records(traffic.path))


def digest(root: Path) -> str:
    """Return the digest of the log's bytes."""
    segments = sorted((root / "commitlog").iterdir())
    return hashlib.sha256(b"".join(path.read_bytes() for path in segments)).hexdigest()


def test_summary_matches_the_log(traffic: ShopTraffic, records: list[Message]) -> None:
    assert traffic.record_count == len(records) == sum(traffic.by_topic.values())
    assert set(traffic.by_topic) == {record.topic for record in records}
    assert {kind_of(topic) for topic in traffic.by_topic} == {
        Kind.NORMAL,
        Kind.DELAY,
        Kind.RETRY,
        Kind.DLQ,
        Kind.HALF,
        Kind.OP,
    }


def test_story_takes_three_days(traffic: ShopTraffic, records: list[Message]) -> None:
    times = [record.store_timestamp for record in records]
    assert times == sorted(times)
    assert traffic.end_ms - traffic.start_ms == 72 * HOUR_MS
    assert traffic.start_ms <= times[0] < traffic.start_ms + HOUR_MS
    assert traffic.end_ms - HOUR_MS < times[-1] <= traffic.end_ms
    assert all(record.born_timestamp <= record.store_timestamp for record in records)


def test_several_files_of_every_kind_are_written(traffic: ShopTraffic) -> None:
    for folder in ("commitlog", "index", "consumequeue/payments/0"):
        assert len(list((traffic.path / folder).iterdir())) > 1, folder


def test_order_4711_has_an_interesting_life(traffic: ShopTraffic, records: list[Message]) -> None:
    life = [(record.topic, record.tags, record.reconsume_times) for record in records if record.keys == ["order-4711"]]
    assert life == [
        ("RMQ_SYS_TRANS_HALF_TOPIC", "created", 0),
        ("orders", "created", 0),
        ("SCHEDULE_TOPIC_XXXX", "reminder", 0),
        ("payments", "reminder", 0),
        ("payments", "paid", 0),
        ("shipments", "requested", 0),
        ("SCHEDULE_TOPIC_XXXX", "requested", 1),
        ("%RETRY%shipping-service", "requested", 1),
        ("SCHEDULE_TOPIC_XXXX", "requested", 2),
        ("%RETRY%shipping-service", "requested", 2),
        ("orders", "shipped", 0),
        ("payments", "settled", 0),
    ]
    assert "order-4711" in traffic.retried
    reminder = [record.store_timestamp for record in records if record.keys == ["order-4711"]][2:4]
    assert reminder[1] - reminder[0] == HOUR_MS


def test_orders_are_rolled_back_dead_lettered_retried_and_pending(traffic: ShopTraffic, records: list[Message]) -> None:
    assert traffic.rolled_back
    assert traffic.dead_lettered
    assert len(traffic.retried) > 1
    assert len(traffic.pending) == 1
    tags = {key: {record.tags for record in records if record.keys == [key]} for key in traffic.dead_lettered}
    assert all("paid" in seen and "shipped" not in seen for seen in tags.values())
    for key in (*traffic.rolled_back, *traffic.pending):
        assert {record.topic for record in records if record.keys == [key]} == {"RMQ_SYS_TRANS_HALF_TOPIC"}


def test_every_message_has_a_unique_key_in_the_form_of_java_clients(records: list[Message]) -> None:
    produced = [record for record in records if record.topic != "RMQ_SYS_TRANS_OP_HALF_TOPIC"]
    assert all(len(record.unique_key or "") == 32 and int(record.unique_key or "", 16) for record in produced)
    first = {record.unique_key for record in produced if record.topic in ("shipments", "RMQ_SYS_TRANS_HALF_TOPIC")}
    assert len(first) == sum(record.topic in ("shipments", "RMQ_SYS_TRANS_HALF_TOPIC") for record in produced)


def test_unique_key_has_address_process_time_and_number() -> None:
    producer = Producer("shop", Host.of("192.168.1.10", 1), 0x1F90)
    # 2026-01-05T00:00:00.123Z is 4 days and 123 ms into its month.
    keys = [producer.next_unique_key(DEFAULT_START_MS + 123) for _ in range(2)]
    assert [key[:12] for key in keys] == ["C0A8010A1F90"] * 2
    assert [int(key[20:28], 16) for key in keys] == [4 * 86_400_000 + 123] * 2
    assert [key[28:] for key in keys] == ["0000", "0001"]


def test_bodies_are_json_and_long_ones_are_compressed(records: list[Message]) -> None:
    compressed = 0
    for record in records:
        if record.topic == "RMQ_SYS_TRANS_OP_HALF_TOPIC":
            continue
        body = record.body
        if record.body_codec is BodyCodec.ZLIB:
            assert record.sys_flag & 0x701 == 0x301
            body = zlib.decompress(body)
            compressed += 1
        assert (len(body) >= 4096) == (record.body_codec is BodyCodec.ZLIB)
        assert f"order-{json.loads(body)['order']}" == record.properties["KEYS"]
    assert compressed > 4


def test_some_properties_have_non_ascii_characters(records: list[Message]) -> None:
    assert any(not record.raw_properties.isascii() for record in records)


def test_some_consumers_are_at_the_end_and_some_have_a_lag(traffic: ShopTraffic) -> None:
    with MessageStore.open(traffic.path, SHOP_OPTIONS) as store:
        offsets = store.config.consumer_offsets
        shipped = [offsets.get("shipments", "shipping-service", queue_id) for queue_id in range(2)]
        assert shipped == [store.max_offset("shipments", queue_id) for queue_id in range(2)]
        behind = [
            store.max_offset("payments", queue_id) - (offsets.get("payments", "mail-service", queue_id) or 0)
            for queue_id in range(4)
        ]
        assert sum(behind) > 0
        waiting = store.max_offset("SCHEDULE_TOPIC_XXXX", 16) - store.config.delay_offsets.get(17)
        assert waiting > 0


def test_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    digests = [
        digest(fill_shop_store(tmp_path / name, orders=20, seed=seed, start_ms=start_ms).path)
        for name, seed, start_ms in (("a", 1, 0), ("b", 1, 0), ("c", 2, 0), ("d", 1, HOUR_MS))
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_smallest_shop_has_every_kind_of_order(tmp_path: Path) -> None:
    traffic = fill_shop_store(tmp_path, orders=8)
    assert traffic.rolled_back
    assert traffic.dead_lettered
    assert traffic.pending
    assert "order-4711" in traffic.retried


def test_too_few_orders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected at least 8 orders, found 7"):
        fill_shop_store(tmp_path, orders=7)


def test_store_with_messages_is_refused_and_left_unchanged(tmp_path: Path) -> None:
    before = digest(fill_shop_store(tmp_path, orders=8).path)
    with pytest.raises(StoreFilesError, match="expected a store without messages, found"):
        fill_shop_store(tmp_path, orders=8)
    assert digest(tmp_path) == before


def test_story_on_boltmq_has_no_transactions(tmp_path: Path) -> None:
    traffic = fill_shop_store(tmp_path, orders=20, options=BOLTMQ_SHOP_OPTIONS)
    found = list(log_records(tmp_path))
    assert {record.magic for record in found} == {Magic.BOLTMQ}
    assert {kind_of(topic) for topic in traffic.by_topic} == {Kind.NORMAL, Kind.DELAY, Kind.RETRY, Kind.DLQ}
    assert (traffic.record_count, traffic.rolled_back, traffic.pending) == (len(found), [], [])
    assert "order-4711" in traffic.retried
    assert traffic.dead_lettered
    life = [(record.topic, record.tags, record.reconsume_times) for record in found if record.keys == ["order-4711"]]
    assert life == [
        ("orders", "created", 0),
        ("SCHEDULE_TOPIC_XXX", "reminder", 0),
        ("payments", "reminder", 0),
        ("payments", "paid", 0),
        ("shipments", "requested", 0),
        ("SCHEDULE_TOPIC_XXX", "requested", 1),
        ("%RETRY%shipping-service", "requested", 1),
        ("SCHEDULE_TOPIC_XXX", "requested", 2),
        ("%RETRY%shipping-service", "requested", 2),
        ("orders", "shipped", 0),
        *([("payments", "settled", 0)] * sum(one[1] == "settled" for one in life)),
    ]
